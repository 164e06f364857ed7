"""Events and requests in words: one line per event, and for each open request the commands that settle it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.cli.common.invocation import holdfast, pastable
from holdfast.cli.foreground.answer_parsing import fields_of, prompt_of
from holdfast.cli.output.format import count, distance, duration, one_line, strip_control_chars, usd, value
from holdfast.core.cards import CATEGORY_WORDS, HAPPENED_WORDS, KEPT_WORDS, REMEDY_WORDS, choices_after, choices_of
from holdfast.core.commands import REASON_WORDS

Wired = Mapping[str, Any]

_WAITING_WORDS = {**REASON_WORDS, "question": "an answer"}


def _by(event: Wired) -> str:
    who = f" by {event['by']}" if event.get("by") else ""
    return who + (f": {event['why']}" if event.get("why") else "")


def waiting_for(reasons: Iterable[Wired], since: str | None = None) -> str:
    """`an approval (publish) and an event (go)`; times are seen from the moment `since`, or from now."""
    parts: list[str] = []
    more = 0
    for reason in reasons:
        more += reason.get("more") or 0
        words = _WAITING_WORDS.get(reason["kind"], reason["kind"])
        kind, name = reason["kind"], reason["path"]
        if kind == "event":
            name = reason["name"]
        elif kind in ("limit", "breaker"):
            name = f"{reason['name']}, for {reason['path']}"
        due = f" {distance(reason['due_at'], since)}" if kind in ("timer", "breaker") and reason.get("due_at") else ""
        parts.append(f"{words}{f' ({name})' if name else ''}{due}")
    return " and ".join([*parts, *([f"{more} more"] if more else [])]) or "nothing"


def _started(event: Wired) -> str:
    words = {"created": "started", "resumed": "goes on", "woken": "woken"}
    return words[event["because"]]


def how_again(step: Wired) -> str:
    """What was done before another attempt, of a step or of its start."""
    return (", with less" if step["reduced"] else "") + (", after a refresh" if step["refreshed"] else "")


def _step_started(event: Wired) -> str:
    again = f", attempt {event['attempt']}{how_again(event)}" if event["attempt"] > 1 else ""
    if event["kind"] in ("tool", "code"):
        other = ", its fallback" if event["fallback"] else ""
        return f"{event['path']}: started ({event['tool']}{other}{again})"
    inside = f" ({event['total']} steps)" if event["total"] else ""
    return f"{event['path']}: started{inside}"


def _step_completed(event: Wired) -> str:
    took = f" in {duration(event['duration_s'])}" if event.get("duration_s") is not None else ""
    how = " from the cache" if event["cached"] else f" with {event['tool']}" if event["tool"] else ""
    if event["verified"]:
        took, how = "", ": it was in doubt, and the tool's own check found that it happened"
    warning = f"; warning: {value(event['warning'])}" if event.get("warning") else ""
    return f"{event['path']}: completed{took}{how}{_by(event)}{warning}"


def _step_failed(event: Wired) -> str:
    lived_with = "" if event["critical"] else " (not critical, going on)"
    affected = "" if event["critical"] else _left_out(event["failure"]["affects"])
    return f"{event['path']}: failed{lived_with}: {value(event['error'])}{affected}"


def _left_out(affected: Sequence[str]) -> str:
    return f"; left out for it: {', '.join(affected)}" if affected else ""


def _step_retrying(event: Wired) -> str:
    next_one = distance(event["due_at"], event["at"])
    return f"{event['path']}: attempt {event['attempt']} failed, next {next_one}: {value(event['error'])}"


def _words_for(request: Wired) -> str:
    kind: str = request["kind"]
    return _WAITING_WORDS.get(kind, kind)


def _asked(event: Wired) -> str:
    request = event["request"]
    return f"{request['path']}: asks for {_words_for(request)}: {value(request['message'])}"


def _exhausted(event: Wired) -> str:
    left = f"{usd(max(0.0, event['room_usd']))} of {usd(event['limit_usd'])} are left"
    return f"{event['path']}: the budget is exhausted: {left}, and {usd(event['needed_usd'])} may be needed"


_LINES: dict[str, Callable[[Wired], str]] = {
    "task:created": lambda e: f"{one_line(e['title'] or e['program']['name'])} is execution {e['task_id']}",
    "task:started": _started,
    "task:recovered": lambda _: "taken over: the process that drove it is gone",
    "task:waiting": lambda e: f"waiting for {waiting_for(e['reasons'], e['at'])}",
    "task:paused": lambda e: f"paused{_by(e)}",
    "task:pause_expiring": lambda e: f"the pause ends {distance(e['due_at'], e['at'])}: it will {e['then']}",
    "task:resumed": lambda e: f"resumed{_by(e)}",
    "task:interrupted": lambda e: f"interrupted{_by(e)}",
    "task:stopped": lambda e: f"stopped{_by(e)}",
    "task:completed": lambda e: f"completed, {e['failures']}" if e["failures"] else "completed",
    "task:error": lambda e: f"failed{' at ' + e['path'] if e['path'] else ''}: {value(e['error'])}",
    "step:started": _step_started,
    "step:waiting": lambda e: f"{e['path']}: waits for {_WAITING_WORDS.get(e['reason'], e['reason'])}",
    "step:completed": _step_completed,
    "step:failed": _step_failed,
    "step:retrying": _step_retrying,
    "step:skipped": lambda e: f"{e['path']}: skipped: {e['reason']}",
    "step:interrupted": lambda e: f"{e['path']}: {'lost with its process' if e.get('lost') else 'interrupted'}",
    "step:in_doubt": lambda e: f"{e['path']}: in doubt: {e['why']}",
    "step:noted": lambda e: f"{e['path']}: noted {value(e['data'])}",
    "step:logged": lambda e: f"{e['path']}: said {count(e['lines'], 'line')}",
    "step:diverged": lambda e: f"{e['path']}: input changed since it was recorded; recorded outcome used{_by(e)}",
    "step:carried": lambda e: f"{e['path']}: had begun before, begins again",
    "step:discarded": lambda e: f"{e['path']}: kept outcome not used{_by(e)}: {e['why']}",
    "step:undone": lambda e: f"{e['path']}: undone{_by(e)}",
    "approval:requested": _asked,
    "approval:granted": lambda e: f"{_path_of(e)}: approved{_by(e)}",
    "approval:denied": lambda e: f"{_path_of(e)}: denied{_by(e)}",
    "approval:expired": lambda e: f"{_path_of(e)}: nobody approved it in time",
    "request:opened": _asked,
    "request:answered": lambda e: f"{_path_of(e)}: {e['remedy']}{_by(e)}",
    "budget:warned": lambda e: f"{usd(e['settled_usd'])} of {usd(e['limit_usd'])} are spent",
    "budget:exhausted": _exhausted,
    "budget:raised": lambda e: f"the budget is {usd(e['limit_usd'])} now{_by(e)}",
    "pressure:felt": lambda e: f"{e['path']}: waits, because the machine is under pressure: {e['why']}",
    "event:received": lambda e: f"received {e['name']}{_by(e)}",
    "child:started": lambda e: f"{e['path']}: started child {e['child_id']}",
    "child:ended": lambda e: f"{e['path']}: its child {e['status']}",
    "checkpoint:saved": lambda e: f"saved up to event {e['through']} in {e['file']}",
    "plan:extended": lambda e: f"extended by {e['count']} steps{_by(e)}",
}


def _path_of(event: Wired) -> str:
    return event["request_id"].rpartition("#")[0]


def line_of(event: Wired) -> str:
    """A durable event in one line. An event without words of its own is shown by its name."""
    event = strip_control_chars(dict(event))
    write = _LINES.get(event["type"])
    return write(event) if write else event["type"]


def commands_for(request: Wired, execution_id: str) -> list[tuple[str, str]]:
    """What a person can type to settle a request, each with what it means."""
    fields = fields_of(request) or {}
    failure: Wired = request.get("failure") or {}
    choices = choices_of(
        request["kind"],
        request["path"],
        tuple(request["remedies"]),
        execution_id,
        fields=tuple(fields),
        limit=failure.get("limit", ""),
        wants_output=bool(request.get("wants_output")),
        words=REMEDY_WORDS | KEPT_WORDS if request.get("keeps") else REMEDY_WORDS,
    )
    return [(pastable(choice.command), pastable(choice.meaning)) for choice in choices]


def request_lines(request: Wired, execution_id: str) -> list[str]:
    """An open request with everything needed to decide, and how to."""
    request = strip_control_chars(dict(request))
    first, *rest = request["message"].splitlines() or [""]
    lines = [f"{request['path']} asks for {_words_for(request)}: {first}", *(f"  {line.strip()}" for line in rest)]
    if request["tool"]:
        lines.append(f"  would run: {request['tool']} {value(request['arguments'])}")
    if request["kind"] == "question" and request["schema"]:
        lines += _expected_lines(request["schema"])
    lines += [f"  before it: {line}" for line in request.get("failed") or ()]
    lines += _stakes(request)
    if request["expires_at"]:
        lines.append(f"  expires {distance(request['expires_at'])}, and {_silence(request)}")
    typed = commands_for(request, execution_id)
    width = max(len(command) for command, _ in typed)
    lines += [f"  {command.ljust(width)}  {f'# {words}' if words else ''}".rstrip() for command, words in typed]
    return lines


def _expected_lines(schema: Wired) -> list[str]:
    fields = schema.get("fields")
    if fields is None:
        return [f"  expected: {value(schema)}"]
    return [f"  {prompt_of(name, field)}" for name, field in fields.items()]


def _silence(request: Wired) -> str:
    if request["kind"] != "question":
        return "silence is a no"
    schema: Wired = request["schema"] or {}
    return "silence takes the defaults" if schema.get("on_expiry") else "silence fails the step"


def failure_lines(shown: Wired) -> list[str]:
    """Of a failed execution: what happened, what it affects, what can be done now."""
    shown = strip_control_chars(dict(shown))
    failure = shown["failure"]
    where = f" at step {shown['failed_step']}" if shown.get("failed_step") else ""
    first, *rest = failure["message"].splitlines() or [""]
    lines = [
        f"what happened: {first.removesuffix(';')}{where} ({failure['category']})",
        *(f"  {line.strip()}" for line in rest),
    ]
    if failure.get("untried"):
        lines.append(f"its fallback {failure['untried'][0]} was not tried: the call may have had its effect")
    if failure.get("place"):
        log = f"{holdfast()} logs {shown['id']}" + (f" {shlex.quote(shown['failed_step'])}" if where else "")
        lines.append(f"where: {failure['place']}; the whole trace: {log}")
    if failure["affects"]:
        lines.append(f"what it affects: {', '.join(failure['affects'])} did not run")
    first_choice, *others = choices_after(failure["category"], shown["kind"], shown["id"], failure.get("limit", ""))
    lines.append(f"what can be done now: {pastable(first_choice.command)}    # {first_choice.meaning}")
    lines += [f"or: {pastable(choice.command)}    # {choice.meaning}" for choice in others]
    return lines


def _stakes(request: Wired) -> list[str]:
    """What is known of a failure, and which steps hang on the answer."""
    failure = request.get("failure")
    lines: list[str] = []
    if failure:
        known = f"{CATEGORY_WORDS[failure['category']]}; {HAPPENED_WORDS[failure['happened']]}"
        lines.append(f"  what is known: {known} ({failure['category']})")
        lines += [f"  where: {failure['place']}"] if failure.get("place") else []
    affected = request.get("affects") or (failure["affects"] if failure else ())
    if affected:
        lines.append(f"  what hangs on it: {', '.join(affected)}")
    return lines
