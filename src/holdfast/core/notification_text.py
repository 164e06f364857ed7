"""When Holdfast itself tells a person something, and in which words. Pure; engine/notifications.py sends.

A notice belongs to one fact of the journal: an open request, or an end. Its key names that fact, so that whoever comes
later can tell whether it was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.core.cards import Card, Choice, card_of_failure, card_of_request
from holdfast.core.events import Request
from holdfast.core.execution import Execution
from holdfast.core.failed_steps import failures_by_name
from holdfast.core.forms import in_words

ENDED = "ended"  # the facts that are no request; of a pause, with the time or the event that they are about
PAUSE_ENDS = "pause-ends"
PAUSE_OVER = "pause-over"
TEXT_CHARS_MAX = 4000  # what a chat takes in one message
_OF_KIND = {"doubt": "in_doubt", "budget": "budget"}  # the other requests are a plain waiting


class Notification(msgspec.Struct, frozen=True):
    key: str
    occasion: str
    title: str
    text: str


def facts_of(state: Execution, durable_seq: int) -> list[str]:
    """What there is to tell of an execution, as far as it is on disk. Of children, only what needs a person."""
    if state.facts().parent is not None:
        return [] if state.is_ended else _asked_in(state, durable_seq)
    over = [f"{PAUSE_OVER}#{state.pause_over}"] if 0 < state.pause_over <= durable_seq else []
    if state.is_ended:
        return over if state.status == "stopped" else [ENDED] if state.seq <= durable_seq else []
    ends = [f"{PAUSE_ENDS}#{state.pause_until}"] if state.status == "paused" and state.pause_announced else []
    return [*_asked_in(state, durable_seq), *ends, *over]


def _asked_in(state: Execution, durable_seq: int) -> list[str]:
    return [asked.request.id for asked in state.open_requests() if _opened_by(asked.request) <= durable_seq]


def _opened_by(request: Request) -> int:
    """The number of the event that opened it stands in its id; a forged one may be called anything."""
    number = request.id.rpartition("#")[2]
    return int(number) if number.isdecimal() and len(number) < 20 else 0


def key_of(execution_id: str, fact: str) -> str:
    return f"notice:{execution_id}:{fact}"


def notice_of(state: Execution, fact: str, url: str = "", called: str = "holdfast") -> Notification:
    """`called` is how a command begins that works wherever the notice is read."""
    if fact in state.requests:
        return _of_request(state, state.requests[fact].request, url, called)
    if fact != ENDED:
        return _of_pause(state, fact, url, called)
    if state.failure is None:
        failed = f", {state.failures}" if state.failures else ""
        lines = list(failures_by_name(state))
        return _notice(state, "done", fact, f"{_name(state)} is done{failed}", lines, url=url, called=called)
    card = card_of_failure(state.id, state.failure, state.failed_path, state.facts().program.kind)
    return _notice(state, "failed", fact, f"{_name(state)} failed", _lines(card, called), url=url, called=called)


def _of_pause(state: Execution, fact: str, url: str, called: str) -> Notification:
    """That the limit of a pause is about to act, or has acted."""
    name, limit = _name(state), "its pause limit was reached"
    if fact.startswith(PAUSE_ENDS) and state.pause_until is not None:
        at = datetime.fromtimestamp(state.pause_until / 1e6, UTC).isoformat(timespec="seconds")
        then = "stopped" if state.on_pause_timeout == "stop" else "resumed"
        paused = f"paused{f' by {state.by}' if state.by else ''}{f': {state.why}' if state.why else ''}"
        lines = [paused, f"it will be {then} at {at}, when its pause limit is reached", ""]
        lines += [f"{called} resume {state.id}  # go on now", f"{called} stop {state.id}  # stop it now", ""]
        title = f"{name}: its pause is about to end"
    elif state.stopping or state.is_ended:
        finishing = "" if state.is_ended else "; its finally steps run first"
        lines = [f"{limit}: it is stopped{finishing}", "", f"{called} retry {state.id}", ""]
        title = f"{name} is stopped"
    else:
        lines, title = [f"{limit}: it goes on", ""], f"{name} goes on"
    return _notice(state, "paused", fact, title, lines, url=url, called=called)


def notice_of_many(number: int, key: str, called: str = "holdfast") -> Notification:
    """Of facts that came too fast for each to be told by itself, or even to be remembered."""
    what = "1 more has something to tell" if number == 1 else f"{number} more have something to tell"
    lines = (
        "too many at once to tell of each; what waits and what has ended is here:",
        f"{called} inbox",
        f"{called} list",
    )
    return Notification(key, "many", what, "\n".join(lines))


def _of_request(state: Execution, request: Request, url: str, called: str) -> Notification:
    words = {
        "approval": "asks for an approval",
        "question": "asks a question",
        "correction": "needs a correction",
        "doubt": "is in doubt",
        "budget": "has run out of budget",
    }
    title = f"{_name(state)} {words.get(request.kind, 'waits for a person')}"
    lines = _lines(card_of_request(state.id, request), called, _wanted(request))
    return _notice(state, _OF_KIND.get(request.kind, "waiting"), request.id, title, lines, url=url, called=called)


def _notice(
    state: Execution, occasion: str, fact: str, title: str, lines: list[str], *, url: str, called: str
) -> Notification:
    link = [f"{url.rstrip('/')}/executions/{state.id}"] if url else []
    text = "\n".join([*lines, *link, f"{called} show {state.id}"])
    if len(text) > TEXT_CHARS_MAX:
        text = f"{text[:TEXT_CHARS_MAX]}…"
    return Notification(key_of(state.id, fact), occasion, " ".join(title.split())[:200], text)


def _name(state: Execution) -> str:
    return state.facts().title or state.facts().program.name


def _wanted(request: Request) -> list[str]:
    """What the answer to a question must be made of, so that whoever reads it elsewhere knows what to type."""
    schema: dict[str, Any] | None = msgspec.json.decode(request.schema) if request.kind == "question" else None
    if not schema:
        return []
    fields: dict[str, Any] | None = schema.get("fields")
    if fields is None:
        return [f"expected: {in_words(schema)}"]
    return [f"{name}: {in_words(field)}" for name, field in fields.items()]


def _lines(card: Card, called: str, wanted: Sequence[str] = ()) -> list[str]:
    lines = [card.what, "", *wanted, *([""] if wanted else [])]
    if card.step:
        lines.append(f"step: {card.step}" + (f" ({card.tool})" if card.tool else ""))
    if card.category_text:
        lines.append(f"what is known: {card.category_text}; {card.happened_text}")
    lines += [f"before it: {line}" for line in card.failed]
    if card.affects:
        lines.append(f"what hangs on it: {', '.join(card.affects)}")
    return [*lines, "", *(_typed(choice, called) for choice in card.choices), ""]


def _typed(choice: Choice, called: str) -> str:
    command = choice.command.replace("holdfast", called, 1)
    return f"{command}  # {choice.meaning}" if choice.meaning else command
