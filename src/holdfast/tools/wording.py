"""Wrong arguments, in words: where, what was expected, what was given, and the name that was probably meant."""

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

from holdfast.core.suggest import describe_value
from holdfast.tools.annotations import Parameter, convert_custom, type_name, union_members

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
    for member in parameter.alternatives:
        try:
            return msgspec.convert(value, member, dec_hook=convert_custom)
        except (msgspec.ValidationError, TypeError):
            continue
    if parameter.alternatives:
        expected = type_in_words(parameter.type)
        mistakes.append((parameter.name, f"expected {expected}, got {describe_value(value)}"))
        return None
    try:
        return msgspec.convert(value, parameter.type, dec_hook=convert_custom)
    except (msgspec.ValidationError, TypeError) as error:
        mistakes.append(_mistake(parameter, value, str(error)))
        return None


def _mistake(parameter: Parameter, value: Any, error: str) -> Mistake:
    """msgspec's message in the house's words: `Expected `str`, got `int` - at `$.a[0]`` names types, not values."""
    match = _AT.match(error)
    text, place = (match["text"], (match["place"] or "")) if match else (error, "")
    inside = place.removeprefix("key in ").removeprefix("$")
    where = parameter.name + inside
    culprit = _value_at(value, inside)
    if expected := _EXPECTED.match(text):
        rest = "" if expected["rest"].startswith(", got") else expected["rest"]
        return where, f"expected {_kinds_in_words(expected['kind'])}{rest}, got {describe_value(culprit)}"
    if text.startswith("Invalid enum value") and not inside:
        return where, f"expected {type_in_words(parameter.type)}, got {describe_value(culprit)}"
    if missing := re.match(r"Object missing required field `(.+)`", text):
        return f"{where}.{missing[1]}", "is missing"
    return where, f"{text[:1].lower()}{text[1:]}, got {describe_value(culprit)}" if text.startswith("Invalid") else text


def _value_at(value: Any, place: str) -> Any:
    """Follow msgspec's place; `[...]` means "some value of this mapping", where the mapping is the best we can show."""
    for name, index in re.findall(r"\.([^.\[\]]+)|\[([^\]]*)\]", place):
        try:
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError, ValueError):
            break
    return value


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
