"""What a person types as the answer to a question, read as what the question asks for.

Text from outside has no type of its own: the request's schema says what each piece is meant to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.output.format import parse_value, value
from holdfast.core.error_text import quoted
from holdfast.core.errors import InputInvalid
from holdfast.core.forms import expected, misfit
from holdfast.core.inputs import InputSpec, parse_cli_input

if TYPE_CHECKING:
    from holdfast.core.commands import Answer
    from holdfast.engine.run import Run

Schema = Mapping[str, Any]


async def answer_with(run: Run, step: str, texts: Sequence[str]) -> Answer:
    """Answer the open question of a step with what was typed."""
    asked = [asked.request for asked in (await run.state()).open_requests()]
    schemas = [msgspec.json.decode(one.schema) for one in asked if step in (one.id, one.path)]
    if not schemas:  # nothing is open there, and the execution says why
        return await run.answer(step, read_value(None, texts[0]))
    return await run.answer(step, read_answer(schemas[0], texts))


def fields_of(request: Mapping[str, Any]) -> Mapping[str, Schema] | None:
    """The fields of the form that a request asks to fill in; None if it asks for something else."""
    schema: Schema | None = request["schema"] if request["kind"] == "question" else None
    return (schema or {}).get("fields")


def read_answer(schema: Schema | None, texts: Sequence[str]) -> Any:
    """One text or JSON, or for a form `field=value` pairs. What does not fit is for the execution to refuse."""
    fields: Mapping[str, Schema] = (schema or {}).get("fields") or {}
    if fields and not texts[0].lstrip().startswith("{"):
        return {name: read_value(fields.get(name), text) for name, text in map(_pair, texts)}
    if len(texts) > 1:
        raise InputInvalid("the question wants one answer; put it in quotes if it has spaces")
    return read_value(schema, texts[0])


def _pair(text: str) -> tuple[str, str]:
    name, equals, said = text.partition("=")
    if not equals:
        raise InputInvalid(f"expected field=value for each field of the form, or one JSON map, got {quoted(text)}")
    return name, said


def read_value(field: Schema | None, text: str) -> Any:
    """As the field's type says; what cannot be read so is handed on as it is, and refused with its place."""
    kind = (field or {}).get("type", "any")
    if kind == "any":
        return parse_value(text)
    try:
        return parse_cli_input(InputSpec(type=kind), text)
    except InputInvalid:
        if kind == "list" and not text.lstrip().startswith(("[", "{")):
            return _pieces(field or {}, text)
        return parse_value(text)


def _pieces(field: Schema, text: str) -> list[Any]:
    """`bell, horn` as a list; texts, unless the choices are something else."""
    pieces = [piece.strip() for piece in text.split(",")]
    are_texts = all(isinstance(choice, str) for choice in field.get("choices") or ())
    return pieces if are_texts else [parse_value(piece) for piece in pieces]


def prompt_of(name: str, field: Schema) -> str:
    """`colour, one of "red", "blue" (of the door) ["red"]`"""
    about = f" ({field['description']})" if field.get("description") else ""
    if "default" in field:
        otherwise = f" [{value(field['default'])}]"
    else:
        otherwise = "" if field.get("required", True) else " [nothing]"
    how = ", separated by commas" if field.get("type") == "list" else ""
    return f"{name}, {expected(field)}{how}{about}{otherwise}"


def read_field(field: Schema, line: str) -> tuple[Any, str]:
    """What was typed for one field, and what is wrong with it."""
    said = read_value(field, line.strip())
    wrong = misfit(field, said)
    choices: list[Any] = field.get("choices") or []
    if wrong and line.strip().isdecimal() and field.get("type") != "list" and 0 < int(line.strip()) <= len(choices):
        return choices[int(line.strip()) - 1], ""
    return said, wrong
