"""What a person is asked, and whether what they say fits: a question, or a form of several fields.

Pure rules, used wherever a form is written (plans, functions) and wherever it is answered (any command line, terminal
or program). The schema in a request is what these functions read; one with `fields` is a form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.core.error_text import describe_value, did_you_mean, quoted
from holdfast.core.errors import Problem
from holdfast.core.inputs import InputSpec, InputType, mismatch

ASK = "human.ask"  # the tool whose call is a wait
FIELDS_MAX = 50  # nobody fills in a longer form at once
CHOICES_MAX = 200
OnExpiry = Literal["fail", "default"]
Schema = dict[str, Any]


class Field(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One thing to be told. Of a list, each item must be one of the choices."""

    type: InputType = "string"
    description: str = ""
    required: bool = True
    default: Any | UnsetType = UNSET
    choices: list[Any] | None = None


Form = Mapping[str, InputType | Field]


def schema_of(field: Field, form: Form | None, on_expiry: OnExpiry) -> Schema:
    """What an answer must look like, as it is journaled with its request."""
    schema: Schema = msgspec.to_builtins(field) if form is None else {}
    schema["type"] = field.type if form is None else "map"
    if form is not None:
        schema["fields"] = {
            name: {"type": (found := as_field(given)).type, **msgspec.to_builtins(found)}
            for name, given in form.items()
        }
    if on_expiry != "fail":
        schema["on_expiry"] = on_expiry
    return schema


class _Written(Field, frozen=True, forbid_unknown_fields=False):
    """What `schema_of` makes."""

    fields: dict[str, Field] | None = None
    on_expiry: OnExpiry = "fail"


def check_schema(schema: bytes) -> None:
    """Of a request that came from a file; raises `msgspec.ValidationError` for what no question can look like."""
    msgspec.json.decode(schema, type=_Written | None)


def as_field(given: InputType | Field) -> Field:
    return given if isinstance(given, Field) else Field(type=given)


def mistakes_in_form(field: Field, form: Form | None, on_expiry: OnExpiry) -> list[Problem]:
    """What is wrong with a question, each with its place among the arguments."""
    if form is None:
        lacking = ["default"] if field.default is UNSET else []
        found = _mistakes_in_field("", field)
    else:
        fields = {name: as_field(given) for name, given in form.items()}
        found = [problem for name, one in fields.items() for problem in _mistakes_in_field(f"form.{name}.", one)]
        if not 1 <= len(fields) <= FIELDS_MAX:
            found.append(Problem("form", f"expected 1 to {FIELDS_MAX} fields, got {len(fields)}"))
        lacking = [f"form.{name}.default" for name, one in fields.items() if one.default is UNSET and one.required]
        if field != Field(type="any"):
            found.append(Problem("form", "the fields have types, choices and defaults of their own; say them there"))
    if on_expiry == "default":
        found += [Problem(place, 'is missing: with on_expiry "default" silence is answered by it') for place in lacking]
    return found


def _mistakes_in_field(place: str, field: Field) -> list[Problem]:
    found: list[Problem] = []
    spec = InputSpec(type=field.type)
    if field.choices is not None:
        if not 1 <= len(field.choices) <= CHOICES_MAX:
            found.append(Problem(f"{place}choices", f"expected 1 to {CHOICES_MAX} choices, got {len(field.choices)}"))
        if field.type in ("boolean", "map"):
            found.append(Problem(f"{place}choices", f"{field.type} has none; leave them out"))
        elif field.type != "list":
            wrong = ((index, mismatch(spec, choice)) for index, choice in enumerate(field.choices))
            found += [Problem(f"{place}choices[{index}]", message) for index, message in wrong if message]
    if (
        field.default is not UNSET
        and field.default is not None
        and (said := _misfit(msgspec.to_builtins(field), field))
    ):
        found.append(Problem(f"{place}default", said))
    return found


def _misfit(described: Mapping[str, Any], field: Field) -> str:
    return misfit({**described, "type": field.type}, field.default)


# ---- answers -----------------------------------------------------------------------------------------------------


def misfit(schema: Mapping[str, Any], value: Any) -> str:
    """What is wrong with the answer to one question, or nothing."""
    wrong = mismatch(InputSpec(type=schema.get("type", "any")), value)
    choices: list[Any] | None = schema.get("choices")
    if wrong or choices is None:
        return wrong
    outside = [
        item for item in (cast("list[Any]", value) if schema.get("type") == "list" else [value]) if item not in choices
    ]
    if not outside:
        return ""
    near = did_you_mean(outside[0], [c for c in choices if isinstance(c, str)]) if isinstance(outside[0], str) else ""
    return f"expected one of {_listed(choices)}, got {describe_value(outside[0])}{near}"


def complete(schema: Mapping[str, Any] | None, value: Any) -> tuple[Any, list[Problem]]:
    """An answer with the defaults of what it leaves out, and everything that is wrong with it."""
    if not schema:
        return value, []
    fields: dict[str, Schema] | None = schema.get("fields")
    if fields is None:
        wrong = misfit(schema, value)
        return value, [Problem("", wrong)] if wrong else []
    if not isinstance(value, dict):
        shape = ", ".join(f"{quoted(name)}: …" for name in fields)
        wrong = f"expected a map of {', '.join(fields)}, got {describe_value(value)}; as JSON: {{{shape}}}"
        return value, [Problem("", wrong)]
    return _complete_form(fields, cast("dict[str, Any]", value))


def _complete_form(fields: Mapping[str, Schema], given: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    others = f"; there are: {', '.join(fields)}"
    problems = [
        Problem(name, f"no such field{did_you_mean(name, fields) or others}") for name in given if name not in fields
    ]
    answer: dict[str, Any] = {}
    for name, field in fields.items():
        is_required = field.get("required", True)
        if name in given and not (given[name] is None and not is_required):
            answer[name] = given[name]
            wrong = misfit(field, given[name])
            if wrong:
                problems.append(Problem(name, wrong))
        elif "default" in field:
            answer[name] = field["default"]
        elif is_required:
            about = f" ({field['description']})" if field.get("description") else ""
            problems.append(Problem(name, f"is missing: expected {expected(field)}{about}"))
        else:
            answer[name] = None
    return answer, problems


def answer_of_silence(schema: Mapping[str, Any] | None) -> tuple[Any] | None:
    """What counts when nobody answers in time: the defaults, if the question says so."""
    if not schema or schema.get("on_expiry") != "default":
        return None
    return (schema["default"],) if "fields" not in schema else (_complete_form(schema["fields"], {})[0],)


_WORDS = {
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "list": "a list",
    "map": "a map",
    "any": "a value",
}


def expected(field: Mapping[str, Any]) -> str:
    """What a field wants, in words."""
    choices = field.get("choices")
    if choices is None:
        return _WORDS[field.get("type", "any")]
    return f"{'some' if field.get('type') == 'list' else 'one'} of {_listed(choices)}"


def in_words(field: Mapping[str, Any]) -> str:
    """All that a field says of itself: `one of "red", "blue" (of the door), "red" if left out`."""
    about = f" ({field['description']})" if field.get("description") else ""
    if "default" in field:
        return f"{expected(field)}{about}, {_listed([field['default']])} if left out"
    return f"{expected(field)}{about}" + ("" if field.get("required", True) else ", may be left out")


def _listed(choices: list[Any]) -> str:
    shown = [quoted(choice) if isinstance(choice, str) else msgspec.json.encode(choice).decode() for choice in choices]
    return ", ".join(shown)
