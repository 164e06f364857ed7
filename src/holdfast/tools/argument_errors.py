"""Wrong arguments, in words: where, what was expected, what was given, and the name that was probably meant."""

# sentences of others: msgspec

from __future__ import annotations

import enum
import json
import re
import types
import typing
from collections.abc import Iterable
from pathlib import PurePath
from typing import Annotated, Any, Literal

import msgspec

from holdfast.core.error_text import describe_value, did_you_mean
from holdfast.core.errors import UsageError
from holdfast.tools.parameter_types import NO_MEMBER, Parameter, convert_custom, readable, type_name, union_members

Mistake = tuple[str, str]  # the argument (and the place inside it), and what is wrong with it

_EXPECTED = re.compile(r"^Expected `(?P<kind>[^`]+)`(?P<rest>.*)$", re.DOTALL)
_AT = re.compile(r"^(?P<text>.*?)(?: - at `(?P<place>[^`]*)`)?$", re.DOTALL)
_KINDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "a map",
}
_NAMES: dict[Any, str] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    types.NoneType: "null",
    list: "array",
    dict: "object",
}


def convert_or_explain(parameter: Parameter, value: Any, mistakes: list[Mistake]) -> Any:
    try:
        return msgspec.convert(value, parameter.readable, dec_hook=convert_custom)
    except (msgspec.ValidationError, TypeError) as error:
        mistakes.append(_mistake(parameter, value, str(error)))
        return None


def _mistake(parameter: Parameter, value: Any, error: str) -> Mistake:
    return explained(parameter.name, parameter.type, value, error)


def explained(name: str, hint: Any, value: Any, error: str) -> Mistake:
    """msgspec's message in the house's words: `Expected `str`, got `int` - at `$.a[0]`` names types, not values."""
    match = _AT.match(error)
    text, place = (match["text"], (match["place"] or "")) if match else (error, "")
    inside, hint, culprit = _followed(hint, value, place.removeprefix("key in ").removeprefix("$"))
    where = name + inside
    if text == NO_MEMBER:
        return where, f"expected {type_in_words(hint)}, got {describe_value(culprit)}"
    if expected := _EXPECTED.match(text):
        rest = "" if expected["rest"].startswith(", got") else expected["rest"]
        return where, f"expected {_kinds_in_words(expected['kind'])}{rest}, got {describe_value(culprit)}"
    if text.startswith("Invalid enum value"):
        near = did_you_mean(culprit, _options(hint)) if isinstance(culprit, str) else ""
        return where, f"expected {type_in_words(hint)}, got {describe_value(culprit)}{near}"
    if missing := re.match(r"Object missing required field `(.+)`", text):
        return f"{where}.{missing[1]}", "is missing"
    if unknown := re.match(r"Object contains unknown field `(.+)`", text):
        kinds = [kind for kind in (hint, *union_members(hint)) if hasattr(kind, "__struct_fields__")]
        names = [field for kind in kinds for field in kind.__struct_fields__]
        near = did_you_mean(unknown[1], names) or (f"; there are: {', '.join(sorted(names))}" if names else "")
        return f"{where}.{unknown[1]}", f"no such name{near}"
    return where, f"{text[:1].lower()}{text[1:]}, got {describe_value(culprit)}" if text.startswith("Invalid") else text


def _followed(hint: Any, value: Any, place: str) -> tuple[str, Any, Any]:
    """msgspec's place as one that can be found, with the type and the value that are there.

    `[...]` means "some value of this mapping": the first that does not fit is meant.
    """
    shown = ""
    for named, index in re.findall(r"\.([^.\[\]]+)|\[([^\]]*)\]", place):
        name = named
        inner = _type_inside(hint, name)
        try:
            if index == "...":
                name = next(key for key, item in value.items() if not _fits(item, inner))
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, StopIteration):
            return shown + (f".{name}" if name else f"[{index}]"), inner, value
        hint = inner
        shown += f".{name}" if name else f"[{index}]"
    return shown, hint, value


def _type_inside(hint: Any, name: str) -> Any:
    """Of a field of a struct, or of what a list or a mapping holds; Any if nobody knows."""
    for kind in (hint, *union_members(hint)):
        if name and name in getattr(kind, "__struct_fields__", ()):
            return typing.get_type_hints(kind, include_extras=True)[name]
        held = [one for one in typing.get_args(kind) if one is not ...]
        if held and isinstance(typing.get_origin(kind), type) and not union_members(kind):
            return held[-1]
    return Any


def _fits(value: Any, hint: Any) -> bool:
    try:
        msgspec.convert(value, readable(hint, ""), dec_hook=convert_custom)
    except (msgspec.ValidationError, TypeError, UsageError):
        return False
    return True


def _options(hint: Any) -> list[str]:
    kinds = [kind for kind in (hint, *union_members(hint)) if typing.get_origin(kind) is Literal]
    return [option for kind in kinds for option in typing.get_args(kind) if isinstance(option, str)]


def _kinds_in_words(kinds: str) -> str:
    return " or ".join(_KINDS.get(kind, f"a {kind}") for kind in kinds.split(" | "))


def type_in_words(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return type_in_words(typing.get_args(hint)[0])
    if origin is Literal:
        return _one_of(typing.get_args(hint))
    if members := union_members(hint):
        return " or ".join(type_in_words(member) for member in members)
    kind = origin or hint
    if kind is Any:
        return "a value"
    if not isinstance(kind, type):
        return type_name(hint)
    if issubclass(kind, enum.Enum):
        return _one_of([member.value for member in kind])
    if kind in _NAMES:
        return _KINDS[_NAMES[kind]]
    if issubclass(kind, PurePath):
        return "a path"
    return f"a {type_name(kind)}"


def _one_of(options: Iterable[Any]) -> str:
    return "one of " + ", ".join(json.dumps(option, ensure_ascii=False, default=str) for option in options)


def mistakes_in_words(owner: str, mistakes: list[Mistake]) -> str:
    if len(mistakes) == 1:
        place, message = mistakes[0]
        return f"{owner}: {place}: {message}"
    lines = [f"  {place}: {message}" for place, message in mistakes]
    return "\n".join([f"{owner}: {len(mistakes)} arguments are wrong", *lines])
