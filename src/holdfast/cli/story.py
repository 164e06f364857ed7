"""Events and requests in words: one line per event, and for each open request the commands that settle it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast.cli.text import distance, duration, value
from holdfast.core.commands import REASON_WORDS

Wired = Mapping[str, Any]

_REMEDY_WORDS = {
    "done": "it did happen: go on (--output JSON gives its output)",
    "again": "run it again (--with k=v changes an argument)",
    "skip": "go on without it",
    "fallback": "run its fallback instead",
    "fail": "let it fail",
}
_NOT_MENDED_BY_REPEATING = ("logic", "configuration")
_WAITING_WORDS = {**REASON_WORDS, "question": "an answer"}


def _by(event: Wired) -> str:
    who = f" by {event['by']}" if event.get("by") else ""
    return who + (f": {event['why']}" if event.get("why") else "")


def waiting_for(reasons: Iterable[Wired], since: str | None = None) -> str:
    """`an approval (publish) and an event (go)`; times are seen from the moment `since`, or from now."""
    parts: list[str] = []
    for reason in reasons:
        words = _WAITING_WORDS.get(reason["kind"], reason["kind"])
        name = reason["name"] if reason["kind"] == "event" else reason["path"]
        due = f" {distance(reason['due_at'], since)}" if reason["kind"] == "timer" and reason.get("due_at") else ""
        parts.append(f"{words}{f' ({name})' if name else ''}{due}")
    return " and ".join(parts) or "nothing"


def _started(event: Wired) -> str:
    words = {"created": "started", "resumed": "goes on", "woken": "woken"}
    return words[event["because"]]


def _step_started(event: Wired) -> str:
    again = f", attempt {event['attempt']}" if event["attempt"] > 1 else ""
    if event["kind"] in ("tool", "code"):
        return f"{event['path']}: started ({event['tool']}{again})"
    inside = f" ({event['total']} steps)" if event["total"] else ""
    return f"{event['path']}: started{inside}"


def _step_completed(event: Wired) -> str:
    took = f" in {duration(event['duration_s'])}" if event.get("duration_s") is not None else ""
    how = " from the cache" if event["cached"] else f" with {event['tool']}" if event["tool"] else ""
    return f"{event['path']}: completed{took}{how}{_by(event)}"


def _step_failed(event: Wired) -> str:
    lived_with = "" if event["critical"] else " (not critical, going on)"
    return f"{event['path']}: failed{lived_with}: {value(event['error'])}"


def _step_retrying(event: Wired) -> str:
    next_one = distance(event["due_at"], event["at"])
    return f"{event['path']}: attempt {event['attempt']} failed, next {next_one}: {value(event['error'])}"


def _words_for(request: Wired) -> str:
    kind: str = request["kind"]
    return _WAITING_WORDS.get(kind, kind)


def _asked(event: Wired) -> str:
    request = event["request"]
    return f"{request['path']}: asks for {_words_for(request)}: {value(request['message'])}"


_LINES: dict[str, Callable[[Wired], str]] = {
    "task:created": lambda e: f"{e['title'] or e['program']['name']} is execution {e['task_id']}",
    "task:started": _started,
    "task:recovered": lambda _: "taken over: the process that drove it is gone",
    "task:waiting": lambda e: f"waiting for {waiting_for(e['reasons'], e['at'])}",
    "task:paused": lambda e: f"paused{_by(e)}",
    "task:pause_expiring": lambda e: f"the pause ends {distance(e['due_at'], e['at'])}: it will {e['then']}",
    "task:resumed": lambda e: f"resumed{_by(e)}",
    "task:interrupted": lambda e: f"interrupted{_by(e)}",
    "task:stopped": lambda e: f"stopped{_by(e)}",
    "task:completed": lambda _: "completed",
    "task:error": lambda e: f"failed{' at ' + e['path'] if e['path'] else ''}: {value(e['error'])}",
    "step:started": _step_started,
    "step:waiting": lambda e: f"{e['path']}: waits for {_WAITING_WORDS.get(e['reason'], e['reason'])}",
    "step:completed": _step_completed,
    "step:failed": _step_failed,
    "step:retrying": _step_retrying,
    "step:skipped": lambda e: f"{e['path']}: skipped: {e['reason']}",
    "step:interrupted": lambda e: f"{e['path']}: interrupted",
    "step:in_doubt": lambda e: f"{e['path']}: in doubt: {e['why']}",
    "step:noted": lambda e: f"{e['path']}: noted {value(e['data'])}",
    "step:diverged": lambda e: f"{e['path']}: the recorded outcome counts, though it would be called otherwise today",
    "approval:requested": _asked,
    "approval:granted": lambda e: f"{_path_of(e)}: approved{_by(e)}",
    "approval:denied": lambda e: f"{_path_of(e)}: denied{_by(e)}",
    "approval:expired": lambda e: f"{_path_of(e)}: nobody approved it in time",
    "request:opened": _asked,
    "request:answered": lambda e: f"{_path_of(e)}: {e['remedy']}{_by(e)}",
    "event:received": lambda e: f"received {e['name']}{_by(e)}",
    "child:started": lambda e: f"{e['path']}: started child {e['child_id']}",
    "child:ended": lambda e: f"{e['path']}: its child {e['status']}",
    "plan:extended": lambda e: f"extended by {e['count']} steps{_by(e)}",
}


def _path_of(event: Wired) -> str:
    return event["request_id"].rpartition("#")[0]


def line_of(event: Wired) -> str:
    """A durable event in one line. An event without words of its own is shown by its name."""
    write = _LINES.get(event["type"])
    return write(event) if write else event["type"]


def commands_for(request: Wired, execution_id: str) -> list[tuple[str, str]]:
    """What a person can type to settle a request, each with what it means."""
    path = request["path"]
    match request["kind"]:
        case "approval":
            return [
                (f"holdfast approve {execution_id} {path}", "yes"),
                (f'holdfast deny {execution_id} {path} --why "…"', "no"),
            ]
        case "question":
            return [(f"holdfast answer {execution_id} {path} 'TEXT OR JSON'", "")]
        case _:
            return [
                (f"holdfast resolve {execution_id} {path} --{remedy}", _REMEDY_WORDS.get(remedy, ""))
                for remedy in request["remedies"]
            ]


def request_lines(request: Wired, execution_id: str) -> list[str]:
    """An open request with everything needed to decide, and how to."""
    first, *rest = request["message"].splitlines() or [""]
    lines = [f"{request['path']} asks for {_words_for(request)}: {first}", *(f"  {line.strip()}" for line in rest)]
    if request["tool"]:
        lines.append(f"  would run: {request['tool']} {value(request['arguments'])}")
    if request["kind"] == "question" and request["schema"]:
        lines.append(f"  expected: {value(request['schema'])}")
    if request["expires_at"]:
        lines.append(f"  expires {distance(request['expires_at'])}, and silence is a no")
    typed = commands_for(request, execution_id)
    width = max(len(command) for command, _ in typed)
    lines += [f"  {command.ljust(width)}  {f'# {words}' if words else ''}".rstrip() for command, words in typed]
    return lines


def failure_lines(shown: Wired) -> list[str]:
    """Of a failed execution: what happened, what it affects, what can be done now."""
    failure = shown["failure"]
    where = f" at step {shown['failed_step']}" if shown.get("failed_step") else ""
    first, *rest = failure["message"].splitlines() or [""]
    lines = [f"what happened: {first}{where} ({failure['category']})", *(f"  {line.strip()}" for line in rest)]
    if failure["affects"]:
        lines.append(f"what it affects: {', '.join(failure['affects'])} did not run")
    lines.append(f"what can be done now: holdfast retry {shown['id']}    # keeps what completed, runs the rest again")
    if failure["category"] in _NOT_MENDED_BY_REPEATING and shown["kind"] == "plan":
        lines.append(f"or, if the plan is wrong: holdfast retry {shown['id']} --plan FILE    # with a corrected plan")
    return lines
