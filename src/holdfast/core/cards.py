"""What a person is told when something needs them: what happened, what it affects, and what can be done now.

One shape, made from what the journal holds, for the command line, a server and a page alike; each choice comes with the
command that makes it. Pure, and journaled nowhere: it is a view.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core.events import Request
from holdfast.core.failure import Category, Failure, Happened

CATEGORY_WORDS: dict[Category, str] = {
    "transient": "a passing trouble, such as a network or a service that did not answer",
    "rate_limit": "the other side asks us to come back later",
    "timeout": "it took too long",
    "resource": "memory, disk or another resource ran short",
    "permission": "it was not allowed",
    "configuration": "something is missing or set up wrongly",
    "logic": "the arguments or the code are wrong; the same again would fail again",
    "tool": "the tool itself reported a failure",
    "unknown": "nobody knows what happened",
}
HAPPENED_WORDS: dict[Happened, str] = {
    "nothing": "nothing was done",
    "known": "it failed as reported",
    "unknown": "it may or may not have happened",
}
REMEDY_WORDS = {
    "done": "it did happen: go on (--output JSON gives its output)",
    "again": "run it again (--with k=v changes an argument)",
    "verify": "ask its check whether it happened; if not, it runs again",
    "skip": "go on without it",
    "fallback": "run its fallback instead",
    "fail": "let it fail",
}
KEPT_WORDS = {
    "done": "keep the outcome it has",
    "again": "do it with the input it has now",
}
NOT_MENDED_BY_REPEATING = ("logic", "configuration")


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be done now. `name` is what a command's answer is called on the wire."""

    name: str
    command: str
    meaning: str = ""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """`affects` are the steps that will be skipped, or were, if the step does not come to a good end."""

    kind: str
    execution_id: str
    step: str = ""
    tool: str = ""
    what: str = ""
    category: Category | None = None
    category_text: str = ""
    happened: Happened | None = None
    happened_text: str = ""
    affects: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()  # before an approval, in words
    choices: tuple[Choice, ...] = ()


def card_of_request(execution_id: str, request: Request) -> Card:
    card = Card(
        kind=request.kind,
        execution_id=execution_id,
        step=request.path,
        tool=request.tool,
        what=request.message,
        affects=request.affects,
        failed=request.failed,
        choices=choices_of(
            request.kind,
            request.path,
            request.remedies,
            execution_id,
            fields=_fields_of(request),
            limit=request.failure.limit if request.failure is not None else "",
            wants_output=request.wants_output,
            words=REMEDY_WORDS | KEPT_WORDS if request.keeps else REMEDY_WORDS,
        ),
    )
    return _with_failure(card, request.failure) if request.failure is not None else card


def card_of_failure(execution_id: str, failure: Failure, path: str, program_kind: str) -> Card:
    """Of an execution that has failed."""
    card = Card(
        kind="failure",
        execution_id=execution_id,
        step=path,
        what=failure.message,
        choices=choices_after(failure.category, program_kind, execution_id, failure.limit),
    )
    return _with_failure(card, failure)


def _with_failure(card: Card, failure: Failure) -> Card:
    return msgspec.structs.replace(
        card,
        category=failure.category,
        category_text=CATEGORY_WORDS[failure.category],
        happened=failure.happened,
        happened_text=HAPPENED_WORDS[failure.happened],
        affects=card.affects or failure.affects,
    )


def _fields_of(request: Request) -> tuple[str, ...]:
    """Of the form that it asks to fill in."""
    schema: dict[str, Any] | None = msgspec.json.decode(request.schema) if request.kind == "question" else None
    return tuple((schema or {}).get("fields") or ())


def choices_of(  # noqa: PLR0913 -- one parameter per fact
    kind: str,
    path: str,
    remedies: tuple[str, ...],
    execution_id: str,
    *,
    fields: tuple[str, ...] = (),
    limit: str = "",
    wants_output: bool = False,
    words: Mapping[str, str] = REMEDY_WORDS,
) -> tuple[Choice, ...]:
    """How a request can be settled. `fields` are those of a form, `limit` is enough for what met a lower one, and
    `wants_output` is about what is done already."""
    step = shlex.quote(path)  # an item's path has brackets, and its key may have anything
    stop = Choice(name="stop", command=f"holdfast stop {execution_id}", meaning="end the whole execution")
    match kind:
        case "approval":
            return (
                Choice(name="approve", command=f"holdfast approve {execution_id} {step}", meaning="yes"),
                Choice(name="deny", command=f'holdfast deny {execution_id} {step} --why "…"', meaning="no"),
            )
        case "question":
            said = " ".join(f"{shlex.quote(name)}=…" for name in fields) or "'TEXT OR JSON'"
            return (Choice(name="answer", command=f"holdfast answer {execution_id} {step} {said}"),)
        case _:
            more = Choice(
                name="raise", command=f"holdfast budget {execution_id} --add USD", meaning="let it spend more"
            )
            of_limit = {
                "again": ", under the same limit",
                "fail": f"; then, with twice as much: {_with_more(execution_id, limit)}",
            }
            settle = tuple(
                Choice(
                    name=remedy,
                    command=f"holdfast resolve {execution_id} {step} --{remedy}"
                    + (" --output JSON" if remedy == "done" and wants_output else ""),
                    meaning=words.get(remedy, "") + (of_limit.get(remedy, "") if limit else ""),
                )
                for remedy in remedies
            )
            return (*((more,) if kind == "budget" else ()), *settle, stop)


def choices_after(category: str, program_kind: str, execution_id: str, limit: str = "") -> tuple[Choice, ...]:
    """What can be done about an execution that has failed; `limit` is what would be enough for one that met it."""
    again = Choice(
        name="retry",
        command=f"holdfast retry {execution_id}",
        meaning="keeps what completed, runs the rest again",
    )
    corrected = Choice(
        name="retry_with_plan", command=f"holdfast retry {execution_id} --plan FILE", meaning="with a corrected plan"
    )
    limited = Choice(
        name="retry_with_resources", command=_with_more(execution_id, limit), meaning="with twice as much as it had"
    )
    is_for_its_plan = program_kind == "plan" and (category == "resource" or category in NOT_MENDED_BY_REPEATING)
    return (*((limited,) if limit else ()), again, *((corrected,) if is_for_its_plan else ()))


def _with_more(execution_id: str, limit: str) -> str:
    return f"holdfast retry {execution_id} --resource {limit}"
