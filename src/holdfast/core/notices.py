"""When Holdfast itself tells a person something, and in which words. Pure; engine/notices.py sends.

A notice belongs to one fact of the journal: an open request, or an end. Its key names that fact, so that whoever comes
later can tell whether it was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.cards import Card, Choice, card_of_failure, card_of_request
from holdfast.core.events import Request
from holdfast.core.execution import Execution
from holdfast.core.forms import in_words

ENDED = "ended"  # the fact that is no request
TEXT_CHARS_MAX = 4000  # what a chat takes in one message
_OF_KIND = {"doubt": "in_doubt", "budget": "budget"}  # the other requests are a plain waiting


class Notice(msgspec.Struct, frozen=True):
    key: str
    occasion: str
    title: str
    text: str


def facts_of(state: Execution, durable_seq: int) -> list[str]:
    """What there is to tell of an execution, as far as it is on disk. Of children, only what needs a person."""
    if state.is_ended:
        told = state.status != "stopped" and state.facts().parent is None and state.seq <= durable_seq
        return [ENDED] if told else []
    return [asked.request.id for asked in state.open_requests() if _opened_by(asked.request) <= durable_seq]


def _opened_by(request: Request) -> int:
    """The number of the event that opened it stands in its id; a forged one may be called anything."""
    number = request.id.rpartition("#")[2]
    return int(number) if number.isdecimal() and len(number) < 20 else 0


def key_of(execution_id: str, fact: str) -> str:
    return f"notice:{execution_id}:{fact}"


def notice_of(state: Execution, fact: str, url: str = "", called: str = "holdfast") -> Notice:
    """`called` is how a command begins that works wherever the notice is read."""
    if fact != ENDED:
        return _of_request(state, state.requests[fact].request, url, called)
    if state.failure is None:
        return _notice(state, "done", fact, f"{_name(state)} is done", [], url=url, called=called)
    card = card_of_failure(state.id, state.failure, state.failed_path, state.facts().program.kind)
    return _notice(state, "failed", fact, f"{_name(state)} failed", _lines(card, called), url=url, called=called)


def notice_of_many(number: int, key: str, called: str = "holdfast") -> Notice:
    """Of facts that came too fast for each to be told by itself, or even to be remembered."""
    what = "1 more has something to tell" if number == 1 else f"{number} more have something to tell"
    lines = (
        "too many at once to tell of each; what waits and what has ended is here:",
        f"{called} inbox",
        f"{called} list",
    )
    return Notice(key, "many", what, "\n".join(lines))


def _of_request(state: Execution, request: Request, url: str, called: str) -> Notice:
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
) -> Notice:
    link = [f"{url.rstrip('/')}/executions/{state.id}"] if url else []
    text = "\n".join([*lines, *link, f"{called} show {state.id}"])
    if len(text) > TEXT_CHARS_MAX:
        text = f"{text[:TEXT_CHARS_MAX]}…"
    return Notice(key_of(state.id, fact), occasion, " ".join(title.split())[:200], text)


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
    if card.affects:
        lines.append(f"what hangs on it: {', '.join(card.affects)}")
    return [*lines, "", *(_typed(choice, called) for choice in card.choices), ""]


def _typed(choice: Choice, called: str) -> str:
    command = choice.command.replace("holdfast", called, 1)
    return f"{command}  # {choice.meaning}" if choice.meaning else command
