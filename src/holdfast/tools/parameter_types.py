"""The types a tool's parameters may have, where msgspec needs help: paths, pydantic models, unions it cannot read.

Owns the bridge in both directions: JSON to such a type, and such a type to JSON Schema. pydantic is never imported
here; its models are known by their methods.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple, cast

import msgspec

from holdfast.core.error_text import describe_value
from holdfast.core.errors import UsageError
from holdfast.tools.json_values import NotJson, encode


class Lenient:
    """`Annotated[int, Lenient]`: this parameter also takes what can only mean one thing, such as "3" for 3."""


class Parameter(NamedTuple):
    name: str
    type: Any
    default: Any
    readable: Any  # the type in a form that msgspec reads
    is_lenient: bool = False

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


NO_MEMBER = "fits no member of the union"
_CONTAINERS = (list, dict, set, frozenset, tuple, Sequence, Mapping, Iterable, Collection)


class _AnyInstance(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return True  # msgspec checks what `convert_custom` returns; a member of the union is no instance of `OneOf`


class OneOf(metaclass=_AnyInstance):
    """Stands for a union that msgspec cannot read, such as `A | B` of two dataclasses: its members are tried in order.

    Only subclasses are used, one for each union.
    """

    members: tuple[Any, ...] = ()

    @classmethod
    def read(cls, value: Any) -> Any:
        for member in cls.members:
            try:
                return msgspec.convert(value, member, dec_hook=convert_custom)
            except (msgspec.ValidationError, TypeError):
                continue
        raise ValueError(NO_MEMBER)


def readable(hint: Any, place: str) -> Any:
    """The hint as msgspec reads it: as it is, or with `OneOf` for its unions, also inside lists and maps."""
    if decoder_if_readable(hint) is not None:
        return hint
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if members := union_members(hint):
        own = tuple(readable(member, place) for member in members)
        whole: Any = typing.Union[own]  # noqa: UP007 -- made of a tuple
        return whole if decoder_if_readable(whole) is not None else type("OneOf", (OneOf,), {"members": own})
    if origin is typing.Annotated:
        return typing.Annotated[(readable(inside[0], place), *inside[1:])]
    if inside and origin in _CONTAINERS:
        return cast("Any", origin)[tuple(one if one is ... else readable(one, place) for one in inside)]
    raise UsageError(
        f"{place}: {type_name(hint)} cannot be read from JSON; "
        "use builtins, a dataclass, a TypedDict, or a msgspec or pydantic type"
    )


def decoder_if_readable(hint: Any) -> msgspec.json.Decoder[Any] | None:
    try:
        return msgspec.json.Decoder(hint, dec_hook=convert_custom)
    except TypeError:
        return None


def is_lenient(hint: Any) -> bool:
    return any(mark is Lenient or isinstance(mark, Lenient) for mark in getattr(hint, "__metadata__", ()))


def softened(parameter: Parameter, value: Any) -> Any:
    """What was meant, as the declared type has it in JSON; the value as it is if that is not certain.

    Only between a text and what it spells: "3" and 3, "true" and true. Nothing is rounded, cut or made up.
    """
    kind = parameter.type
    try:
        msgspec.convert(value, kind, dec_hook=convert_custom)
    except (msgspec.ValidationError, TypeError):
        pass
    else:
        return value
    meant = _spelled(value) if isinstance(value, int | float) else value.strip() if isinstance(value, str) else value
    try:
        return msgspec.to_builtins(msgspec.convert(meant, kind, strict=False, dec_hook=convert_custom))
    except (msgspec.ValidationError, TypeError):
        return value


def _spelled(value: float) -> str:
    return msgspec.json.encode(value).decode()


def union_members(hint: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else ()


def type_name(kind: Any) -> str:
    return kind.__qualname__.rpartition(".<locals>.")[2] if isinstance(kind, type) else str(kind)


def convert_custom(kind: type[Any], value: Any) -> Any:
    """For msgspec: a class it does not know. `Path` and pydantic models, the latter without importing pydantic."""
    if issubclass(kind, OneOf):
        return kind.read(value)
    if isinstance(value, kind):
        return value
    if issubclass(kind, PurePath):
        if not isinstance(value, str):
            raise ValueError(f"expected a path as a string, got {describe_value(value)}")
        return kind(value)
    validate = getattr(cast("Any", kind), "model_validate", None)
    if validate is None:
        raise ValueError(f"{type_name(kind)} cannot be read from JSON")
    try:
        return validate(value)
    except Exception as error:
        # pydantic's ValidationError is a ValueError that lists its mistakes; anything else is said as it is.
        raise ValueError(_pydantic_in_words(error)) from error


def _pydantic_in_words(error: Exception) -> str:
    listing = getattr(error, "errors", None)
    if not callable(listing):
        return str(error)
    found = cast("list[dict[str, Any]]", listing())
    return "; ".join(": ".join(filter(None, [".".join(map(str, item["loc"])), item["msg"]])) for item in found)


def schema_of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    def custom(kind: type[Any]) -> dict[str, Any]:
        if issubclass(kind, OneOf):
            return {"anyOf": [schema_of(member, definitions) for member in kind.members]}
        if issubclass(kind, PurePath):
            return {"type": "string", "format": "path"}
        describe = getattr(cast("Any", kind), "model_json_schema", None)
        if describe is None:
            return {}
        described = dict(describe())
        definitions.update(described.pop("$defs", {}))
        return described

    (schema,), components = msgspec.json.schema_components([hint], schema_hook=custom)
    definitions.update(components)
    return schema


def default_for_schema(default: Any) -> dict[str, Any]:
    try:
        return {"default": msgspec.json.decode(encode(default))}
    except NotJson:
        return {}  # a sentinel: the schema only says that the argument may be left out


def without_prose(schema: Any) -> Any:
    """What decides whether a recorded call still fits: no titles, descriptions or defaults."""
    if isinstance(schema, list):
        return [without_prose(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key in ("properties", "$defs"):  # here the keys are names, and a property may well be called "title"
            kept[key] = {name: without_prose(inner) for name, inner in value.items()}
        elif key not in ("title", "description", "default"):
            kept[key] = without_prose(value)
    return kept
