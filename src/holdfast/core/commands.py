"""What people and programs ask of an execution, and what becomes of it: command × state → events or a refusal.

Every command is idempotent: a second pause is a no-op that says so. A refusal changes nothing and says what to do
instead. Nothing here knows who drives; the driver, or whoever claims the execution to apply a command, appends the
events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from holdfast.core import events as ev
from holdfast.core.budget import MICROS, USD_MAX, say_usd
from holdfast.core.budget_change import BudgetChange, new_limit, raised, validation_error
from holdfast.core.differences import Difference
from holdfast.core.error_text import did_you_mean, quoted
from holdfast.core.errors import InputInvalid
from holdfast.core.execution import Asked, Execution
from holdfast.core.failure import Failure
from holdfast.core.forms import complete
from holdfast.core.policy import PAUSE_TIMEOUT_S

Verb = Literal[
    "pause", "resume", "interrupt", "stop", "approve", "deny", "answer", "resolve", "send", "extend", "budget",
    "child_ended", "checkpoint", "undone",
]  # fmt: skip
Outcome = Literal["applied", "unchanged", "refused", "queued"]
PASSED_DOWN: frozenset[str] = frozenset({"pause", "resume", "interrupt", "stop"})

MAILBOX_EVENTS_MAX = 1000  # events from outside that no step has taken yet
PAUSE_LIMIT = ("holdfast", "the pause limit was reached")  # who stops or resumes it then, and why
AWAITED_SHOWN = 5  # events named in the warning about one that no step waits for
COMMAND_ID_CHARS_MAX = 200  # made by whoever asks; stores keep an index of them
DATA_BYTES_MAX = 4 * 1024 * 1024  # what a command may carry


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is made by whoever asks, so that asking twice is answered once."""

    id: str
    execution_id: str
    verb: Verb
    at: int
    by: str = ""
    arguments: Raw = Raw(b"{}")


OURS = "holdfast:"  # begins the id of every command that no client has made


def internal_id(text: str) -> str:
    return text if text.startswith(OURS) else OURS + text


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    command_id: str
    outcome: Outcome
    text: str
    seq: int = 0


class Arguments(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that any verb takes; each reads its own."""

    why: str = ""
    step: str = ""  # a step's path, or a request's id
    remedy: str = ""
    arguments: ev.MaybeRaw = UNSET
    data: ev.MaybeRaw = UNSET
    sticky: bool = False
    name: str = ""
    until: int | None = None
    pause_limit: bool = False  # the limit of a pause says it, and no person
    accepted: tuple[Difference, ...] = ()
    forced: tuple[str, ...] = ()  # the same as texts, from before there were codes
    count: int = 0
    child_id: str = ""
    status: str = ""
    failure: Failure | None = None
    limit_micros: int | None = None
    add_micros: int = 0
    spent_micros: int | None = None
    unknown: int = 0


def _is_expired(asked: Asked, at: int) -> bool:
    return asked.request.expires_at is not None and at >= asked.request.expires_at


def expired(request: ev.Request, at: int) -> ev.Event:
    """That nobody answered in time."""
    if request.kind == "question":
        return ev.RequestAnswered(at=at, request_id=request.id, remedy="expired")
    return ev.ApprovalExpired(at=at, request_id=request.id)


def _too_late(asked: Asked, at: int) -> Ruling:
    """Silence has an answer of its own, whoever notices first."""
    meaning = "" if asked.request.kind == "question" else ", and silence is a no"
    text = f"{asked.request.path} expired before it was answered{meaning}"
    return Ruling(outcome="refused", text=text, events=(expired(asked.request, at),))


class RequestReply(NamedTuple):
    """What a person says to a request, and whether they change something with it."""

    remedy: str
    edits: bytes = b""  # JSON; null is as good as nothing

    def changes(self, said: ev.MaybeRaw) -> bool:
        return self.edits not in (b"", b"null", bytes(said or b""))


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Outcome
    text: str
    events: tuple[ev.Event, ...] = ()


def rule(state: Execution, command: Command, at: int) -> Ruling:
    """What this command does to this state at this time."""
    if len(bytes(command.arguments)) > DATA_BYTES_MAX:
        limit_mb = DATA_BYTES_MAX // 1024**2
        return _refused(f"{command.verb}: more than {limit_mb} MB of data; put it in a file and send its path")
    try:
        arguments = msgspec.json.decode(command.arguments, type=Arguments)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _refused(f"{command.verb}: the arguments cannot be read: {error}")
    ruled = _RULES.get(command.verb)
    if ruled is None:  # two versions of Holdfast may share one store
        return _refused(f"the driver's Holdfast does not know the command {command.verb}; upgrade it")
    return ruled(state, arguments, command.by, at)


def close_attempts(state: Execution, at: int, why: str) -> list[ev.Event]:
    """Settle what was running when its attempt was cut off: `once` is in doubt, the rest may simply run again."""
    events: list[ev.Event] = []
    for step in state.running_steps():
        if step.kind not in ("tool", "code"):
            continue
        if step.effect == "once":
            events.append(ev.StepInDoubt(at=at, path=step.path, why=why, attempt=step.attempt))
        else:
            duration = max(0, at - step.started_at)
            events.append(
                ev.StepInterrupted(
                    at=at, path=step.path, attempt=step.attempt, started_at=step.started_at, duration_us=duration
                )
            )
    return events


def _applied(text: str, *events: ev.Event) -> Ruling:
    return Ruling(outcome="applied", text=text, events=events)


def _unchanged(text: str) -> Ruling:
    return Ruling(outcome="unchanged", text=text)


def _refused(text: str) -> Ruling:
    return Ruling(outcome="refused", text=text)


def _ended(state: Execution) -> Ruling:
    from_step = " --from STEP" if state.status == "completed" else ""
    return _refused(f"the execution is {state.status}; to run it again: holdfast retry {state.id}{from_step}")


# ---- holding and going on --------------------------------------------------------------------------------------


def _pause(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    if state.is_ended:
        return _ended(state)
    if state.status in ("paused", "interrupted"):
        return _unchanged(f"already {state.status}{_by(state.by)}")
    created = state.facts()
    limit_s = created.pause_timeout_s if created.pause_timeout_s is not None else PAUSE_TIMEOUT_S
    until = arguments.until if arguments.until is not None else at + int(limit_s * 1e6)
    event = ev.TaskPaused(at=at, by=by, why=arguments.why, until=until, on_timeout=created.on_pause_timeout)
    return _applied("paused; steps that are running finish first", event)


def _resume(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    if state.is_ended:
        return _ended(state)
    held = state.status == "queued" and state.facts().hold
    resumed = ev.TaskResumed(
        at=at, by=by, why=arguments.why, accepted=arguments.accepted, forced=arguments.forced,
        pause_limit="resume" if arguments.pause_limit else None,
    )  # fmt: skip
    if state.status in ("paused", "interrupted") or held:
        return _applied("resumed", resumed, ev.TaskStarted(at=at, because="resumed"))
    if arguments.accepted or arguments.forced:
        return _applied("going on in spite of the differences", resumed)
    if state.status == "waiting":
        return _unchanged(f"waiting for {describe_reasons(state)}; it goes on by itself when that arrives")
    return _unchanged(f"already {state.status}")


def _interrupt(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    if state.is_ended:
        return _ended(state)
    if state.status == "interrupted":
        return _unchanged(f"already interrupted{_by(state.by)}")
    cut = close_attempts(state, at, f"interrupted{_by(by)} while it ran")
    return _applied("interrupted", *cut, ev.TaskInterrupted(at=at, by=by, why=arguments.why))


def _stop(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    if state.status == "stopped":
        return _unchanged(f"already stopped{_by(state.by)}")
    if state.is_ended:
        return _refused(f"the execution is already {state.status}; there is nothing to stop")
    if arguments.pause_limit and state.status == "paused" and not state.stopping and _has_finally(state):
        resumed = ev.TaskResumed(at=at, by=by, why=arguments.why, pause_limit="stop")
        return _applied("its finally steps run, then it is stopped", resumed, ev.TaskStarted(at=at, because="resumed"))
    cut = close_attempts(state, at, f"stopped{_by(by)} while it ran")
    stopped = ev.TaskStopped(at=at, by=by, why=arguments.why, pause_limit=arguments.pause_limit)
    return _applied("stopped", *cut, stopped)


def _has_finally(state: Execution) -> bool:
    program = state.facts().program
    return program.kind == "plan" and bool(msgspec.json.decode(program.source).get("finally"))


# ---- people answer ---------------------------------------------------------------------------------------------


def _approve(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    asked = _find(state, arguments.step, ("approval",), RequestReply("granted", bytes(arguments.arguments or b"")))
    if isinstance(asked, Ruling):
        return asked
    if _is_expired(asked, at):
        return _too_late(asked, at)
    event = ev.ApprovalGranted(
        at=at,
        request_id=asked.request.id,
        by=by,
        why=arguments.why,
        arguments=arguments.arguments,
        sticky=arguments.sticky,
    )
    edited = " with edited arguments" if arguments.arguments else ""
    return _applied(f"approved {asked.request.path}{edited}", event)


def _deny(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    asked = _find(state, arguments.step, ("approval",), RequestReply("denied"))
    if isinstance(asked, Ruling):
        return asked
    if _is_expired(asked, at):
        return _too_late(asked, at)
    event = ev.ApprovalDenied(at=at, request_id=asked.request.id, by=by, why=arguments.why)
    return _applied(f"denied {asked.request.path}", event)


def _answer(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    asked = _find(state, arguments.step, ("question",), RequestReply("answered"))
    if isinstance(asked, Ruling):
        return asked
    if _is_expired(asked, at):
        return _too_late(asked, at)
    value, problems = complete(
        msgspec.json.decode(asked.request.schema), msgspec.json.decode(arguments.data or b"null")
    )
    if problems:
        lines = [f"{asked.request.path}: the answer does not fit:", *(f"  {problem}" for problem in problems)]
        return _refused("\n".join(lines) if len(problems) > 1 else f"{asked.request.path}: {problems[0]}")
    data = Raw(msgspec.json.encode(value))
    event = ev.RequestAnswered(at=at, request_id=asked.request.id, remedy="answered", by=by, data=data)
    return _applied(f"answered {asked.request.path}", event)


def _resolve(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    kinds = ("doubt", "correction", "budget")
    asked = _find(state, arguments.step, kinds, RequestReply(arguments.remedy, bytes(arguments.data or b"")))
    if isinstance(asked, Ruling):
        return asked
    offered = asked.request.remedies
    if arguments.remedy not in offered:
        return _refused(f"{asked.request.path} can be resolved with {', '.join(offered)}; not with {arguments.remedy}")
    event = ev.RequestAnswered(at=at, request_id=asked.request.id, remedy=arguments.remedy, by=by, data=arguments.data)
    return _applied(f"resolved {asked.request.path}: {arguments.remedy}", event)


def _decided(path: str, said: str, by: str, wanted: RequestReply, data: ev.MaybeRaw = UNSET) -> Ruling:
    """The same answer again changes nothing; another one comes too late."""
    how = said if said in ("granted", "denied", "expired", "answered") else f'settled with "{said}"'
    text = f"{path} was already {how}{_by(by)}"
    if wanted.changes(data):
        return _refused(f"{text}; its arguments cannot be changed any more")
    return _unchanged(text) if said == wanted.remedy else _refused(text)


def _find(state: Execution, step_or_request: str, kinds: tuple[str, ...], wanted: RequestReply) -> Asked | Ruling:
    """The open request meant by a step's path or a request's id; without either, the only open one."""
    if state.is_ended:
        settled = _settled(state, step_or_request, kinds, wanted)
        return settled if settled is not None and settled.outcome == "unchanged" else _ended(state)
    fitting = [asked for asked in state.requests.values() if asked.request.kind in kinds]
    if not step_or_request:
        still_open = [asked for asked in fitting if not asked.answered]
        if len(still_open) == 1:
            return still_open[0]
        if still_open:
            return _refused(f"say which step: {', '.join(sorted(a.request.path for a in still_open))}")
        settled = _settled(state, "", kinds, wanted)
        return settled or _refused(f"there is no open {_either(kinds)} request")
    for asked in fitting:
        if step_or_request in (asked.request.id, asked.request.path):
            path = asked.request.path
            return _decided(path, asked.remedy, asked.by, wanted, asked.data) if asked.answered else asked
    step = state.steps.get(step_or_request)
    if step is None:
        still_open = sorted(a.request.path for a in fitting if not a.answered)
        meant = did_you_mean(step_or_request, still_open) or did_you_mean(step_or_request, state.steps)
        hint = meant or (f"; open: {', '.join(still_open)}" if still_open else "")
        return _refused(f"there is no {_either(kinds)} request for {step_or_request}{hint}")
    settled = _settled(state, step.path, kinds, wanted)
    return settled or _refused(f"step {step.path} is {step.status}; it has no open {_either(kinds)} request")


def _settled(state: Execution, path: str, kinds: tuple[str, ...], wanted: RequestReply) -> Ruling | None:
    """What was said before about this step, or without one about the only step that ever asked."""
    steps = [state.steps[path]] if path in state.steps else [] if path else list(state.steps.values())
    asked = [step for step in steps if step.decided[0] in kinds]
    if len(asked) != 1:
        names = ", ".join(sorted(step.path for step in asked))
        return _refused(f"there is no open {_either(kinds)} request; settled already: {names}") if asked else None
    _, said, by = asked[0].decided
    request = state.requests.get(asked[0].request_id)
    return _decided(asked[0].path, said, by, wanted, request.data if request else UNSET)


# ---- money -----------------------------------------------------------------------------------------------------


def _budget(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    if state.is_ended:
        return _ended(state)
    change = BudgetChange(arguments.limit_micros, arguments.add_micros, "", by)
    if arguments.step:
        more = (arguments.limit_micros or 0) - state.spend.reserved.get(arguments.step, USD_MAX * MICROS)
        if more <= 0:
            return _unchanged(f"{arguments.step} needs no larger share")  # or has none, and so no part in the limit
        change = BudgetChange(None, more, arguments.step, by)
    if reason := validation_error(state, change):
        return _refused(reason)
    limit = new_limit(state, change)
    if limit == state.spend.limit_micros:
        return _unchanged(f"the limit is {say_usd(limit)} already")
    return _applied(f"the limit is {say_usd(limit)} now", *raised(state, change, at))


# ---- outside and family ----------------------------------------------------------------------------------------


def _send(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    if state.is_ended:
        return _ended(state)
    if sum(len(waiting) for waiting in state.mailbox.values()) >= MAILBOX_EVENTS_MAX:
        return _refused(f"{MAILBOX_EVENTS_MAX:,} events wait to be taken already; no step has asked for them")
    event = ev.EventReceived(at=at, name=arguments.name, data=arguments.data or Raw(b"null"), by=by)
    return _applied(f"received {arguments.name}{_not_waited_for(state, arguments.name)}", event)


def _not_waited_for(state: Execution, name: str) -> str:
    """A warning, if steps wait for events now and none of them for this one: the name may be mistyped."""
    waiting = [step for step in map(state.steps.__getitem__, state.open_steps) if step.reason == "event"]
    awaited = {step.name: step.path for step in waiting if step.status == "waiting"}
    if not awaited or name in awaited:
        return ""
    listed = ", ".join(f"{quoted(other)} (step {awaited[other]})" for other in sorted(awaited)[:AWAITED_SHOWN])
    more = f" and {len(awaited) - AWAITED_SHOWN} more" if len(awaited) > AWAITED_SHOWN else ""
    meant = did_you_mean(name, awaited)
    return f"; warning: no step waits for {quoted(name)} now, it is kept; waited for: {listed}{more}{meant}"


def _extend(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    if state.is_ended:
        return _refused(f"the execution is {state.status}; a plan can only be extended before its end")
    event = ev.PlanExtended(at=at, steps=arguments.data or Raw(b"[]"), count=arguments.count, by=by)
    return _applied(f"extended by {arguments.count} steps", event)


def _child_ended(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    child = next((c for c in state.children.values() if c.id == arguments.child_id), None)
    if child is None or state.is_ended:
        return _unchanged("nobody waits for this child any more")
    if child.status in ("completed", "failed", "stopped"):
        return _unchanged("the child's end is already known")
    event = ev.ChildEnded(
        at=at,
        path=child.path,
        child_id=child.id,
        status=arguments.status,
        output=arguments.data or Raw(b"null"),
        failure=arguments.failure,
        spent_micros=arguments.spent_micros,
        unknown=arguments.unknown,
    )
    return _applied(f"child {child.id} {arguments.status}", event)


# ---- files -----------------------------------------------------------------------------------------------------


def _checkpoint(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    """Whoever asks has written the file already: so no event ever speaks of one that is not there."""
    try:
        saved = msgspec.json.decode(arguments.data or b"null", type=ev.CheckpointSaved)
    except msgspec.MsgspecError as error:
        return _refused(f"checkpoint: what was saved cannot be read: {error}")
    if state.is_ended:
        return _unchanged(f"saved; the execution is {state.status}, and its journal ends with that")
    return _applied(f"saved up to event {saved.through}", msgspec.structs.replace(saved, at=at))


def _undone(state: Execution, arguments: Arguments, by: str, at: int) -> Ruling:
    """Also of what has ended: a retry must know that this does not stand any more."""
    step = state.steps.get(arguments.step)
    if step is None:
        return _refused(f'there is no step "{arguments.step}" in this execution')
    if step.undone:
        return _unchanged(f"{step.path} is known to be undone")
    return _applied(f"{step.path} is undone; a retry runs it again", ev.StepUndone(at=at, path=step.path, by=by))


# ---- words -----------------------------------------------------------------------------------------------------


def _either(kinds: tuple[str, ...]) -> str:
    *others, last = kinds
    return f"{', '.join(others)} or {last}" if others else last


def _by(who: str) -> str:
    return f" by {who}" if who else ""


REASON_WORDS = {
    "approval": "an approval",
    "answer": "an answer",
    "correction": "a correction",
    "doubt": "a doubt to be settled",
    "budget": "a larger budget",
    "quota": "room in its budget",
    "limit": "its turn with a tool",
    "breaker": "its tool to recover",
    "timer": "time to pass",
    "event": "an event",
    "child": "a child execution",
    "driver": "a driver",
    "pressure": "the machine to have room",
}


def describe_reasons(state: Execution) -> str:
    """`an approval (publish) and an event (go)`, for sentences."""
    words = REASON_WORDS
    parts = [f"{words[r.kind]} ({r.name or r.path})" if r.path else words[r.kind] for r in state.reasons]
    more = sum(reason.more for reason in state.reasons)
    return " and ".join([*parts, *([f"{more} more"] if more else [])]) or "nothing"


_RULES: dict[Verb, Callable[[Execution, Arguments, str, int], Ruling]] = {
    "pause": _pause,
    "resume": _resume,
    "interrupt": _interrupt,
    "stop": _stop,
    "approve": _approve,
    "deny": _deny,
    "answer": _answer,
    "resolve": _resolve,
    "send": _send,
    "extend": _extend,
    "budget": _budget,
    "child_ended": _child_ended,
    "checkpoint": _checkpoint,
    "undone": _undone,
}


def encode_arguments(**values: Any) -> Raw:
    """The arguments of a command as they travel. What a driver could not read is refused here, to whoever gives it."""
    try:
        encoded = msgspec.json.encode(Arguments(**values))
        msgspec.json.decode(encoded, type=Arguments)
    except UnicodeEncodeError:
        raise InputInvalid("a command holds half of a surrogate pair, which cannot be stored") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise InputInvalid(f"the arguments of a command do not fit: {error}") from None
    return Raw(encoded)
