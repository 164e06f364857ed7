"""`human.ask`: a question to a person, whose answer is the step's output.

Its call is a wait, so the engine never calls it: a step with this tool opens a request, holds nothing, survives
restarts, and ends when somebody answers with what fits the form. Here is what may be asked, and the check of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from holdfast.core.durations import parse_duration
from holdfast.core.errors import InputInvalid, InvalidCall, Problem, ToolError
from holdfast.core.forms import ASK, Field, Form, OnExpiry, Schema, mistakes_in_form, schema_of
from holdfast.core.inputs import InputType
from holdfast.tools.argument_errors import Mistake, mistakes_in_words
from holdfast.tools.options import Options
from holdfast.tools.tool import Tool
from holdfast.tools.toolset import Adapter

QUESTION_CHARS_MAX = 10_000


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is put to a person. `expires_s` None: for as long as it takes."""

    message: str
    schema: Schema
    expires_s: float | None = None


async def ask(  # noqa: PLR0917 -- one parameter per thing a question may have
    question: str,
    form: dict[str, InputType | Field] | None = None,
    type: InputType = "any",
    choices: list[Any] | None = None,
    default: Any = UNSET,
    expires: float | str | None = None,
    on_expiry: OnExpiry = "fail",
) -> Any:
    """Ask a person. `form` names the fields of the answer; without one the answer is a single value of `type`.

    With `expires`, silence fails the step after that time, or is answered by the defaults with `on_expiry: default`.
    """
    raise ToolError(f"{ASK} waits for a person, so it only works as a step of an execution; put it into a plan")


class Ask(Tool[..., Any]):
    def __init__(self) -> None:
        description = inspect.cleandoc(ask.__doc__ or "")
        super().__init__(ask, Options(name=ASK, effect="read", description=description))

    def check(self, arguments: Mapping[str, Any], dynamic: frozenset[str] = frozenset()) -> list[Mistake]:
        mistakes = super().check(arguments, dynamic)
        if mistakes:
            return mistakes
        known = {name: value for name, value in arguments.items() if name not in dynamic}
        found = _mistakes(self.signature.validate({"question": "?", **known}))
        return [(one.place, one.message) for one in found if one.place.partition(".")[0] not in dynamic]

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        validated = super().validate(arguments)
        if mistakes := _mistakes(validated):
            raise InvalidCall(mistakes_in_words(self.name, [(one.place, one.message) for one in mistakes]))
        return validated

    def question(self, arguments: Mapping[str, Any]) -> Question:
        """What a step asks, checked."""
        asked = self.validate(arguments)
        expires = asked.get("expires")
        return Question(
            message=asked["question"],
            schema=schema_of(_field(asked), asked.get("form"), asked.get("on_expiry", "fail")),
            expires_s=None if expires is None else parse_duration(expires),
        )


def _field(asked: Mapping[str, Any]) -> Field:
    default = asked.get("default", UNSET)
    return Field(type=asked.get("type", "any"), choices=asked.get("choices"), default=default)


def _mistakes(asked: Mapping[str, Any]) -> list[Problem]:
    form: Form | None = asked.get("form")
    on_expiry: OnExpiry = asked.get("on_expiry", "fail")
    found = mistakes_in_form(_field(asked), form, on_expiry)
    if not asked["question"].strip():
        found.append(Problem("question", "expected a question, got nothing"))
    if len(asked["question"]) > QUESTION_CHARS_MAX:
        found.append(Problem("question", f"expected at most {QUESTION_CHARS_MAX:,} characters"))
    if asked.get("expires") is not None:
        try:
            parse_duration(asked["expires"])
        except InputInvalid as error:
            found.append(Problem("expires", str(error)))
    elif on_expiry != "fail":
        found.append(Problem("on_expiry", "goes with expires; say after how long"))
    return found


asking = Ask()  # the one there is: it has nothing to set


class Human(Adapter):
    """Questions to people."""

    def tools(self) -> Sequence[Tool[..., Any]]:
        return (asking,)
