"""JSON at the edge of tools: what they return and what they are called with, as bytes, digests and words.

Owns the one answer to "can this value be journaled?". Refuses what JSON would silently change: bytes, NaN, infinities.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import uuid
from collections.abc import Mapping, Set
from hashlib import blake2b
from pathlib import PurePath
from typing import Any, NoReturn, cast

import msgspec

from holdfast.core.errors import ToolError
from holdfast.core.failure import Category
from holdfast.core.policy import VALUE_BYTES_MAX

_PLAIN = frozenset({str, int, bool, type(None)})
_SHORT_ITEMS = 32
# msgspec knows these and writes each as one JSON string.
_TEXTUAL = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, uuid.UUID, decimal.Decimal)


class NotJson(ToolError):
    """The value cannot be written as JSON."""

    category: Category = "logic"


def encode(value: Any, what: str = "the value") -> bytes:
    """`value` as JSON bytes, keys in the order they have. `what` names it in errors."""
    encoded = _encode_plain(value, what) if _is_plain(value) else _encode_any(value, what)
    if len(encoded) > VALUE_BYTES_MAX:
        raise NotJson(
            f"{what} is {len(encoded):,} bytes of JSON, at most {VALUE_BYTES_MAX:,} are kept; "
            "write it to a file and pass the path"
        )
    return encoded


def digest(value_bytes: bytes) -> str:
    """The same for the same value, whatever the order of its keys."""
    canonical = msgspec.json.encode(msgspec.json.decode(value_bytes), order="deterministic")
    return blake2b(canonical, digest_size=16).hexdigest()


def _is_plain(value: Any) -> bool:
    """Short and flat, which is what most arguments and outputs are: msgspec writes it ten times faster."""
    kind = cast("Any", type(value))
    if kind in _PLAIN:
        return True
    if kind is dict and len(value) <= _SHORT_ITEMS:
        for key, item in value.items():  # noqa: SIM110 -- all() is slower, and this is asked for every value
            if type(key) is not str or type(item) not in _PLAIN:
                return False
        return True
    return kind is list and len(value) <= _SHORT_ITEMS and all(type(item) in _PLAIN for item in value)


def _encode_plain(value: Any, what: str) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate; an integer beyond 64 bits, which JSON allows
        return _encode_any(value, what)


def _encode_any(value: Any, what: str) -> bytes:
    # The standard encoder, unlike msgspec's, refuses bytes and NaN instead of changing them.
    try:
        return _encoder.encode(value).encode()
    except RecursionError:
        raise NotJson(f"{what} is nested too deeply for JSON or contains itself; return a flatter value") from None
    except (TypeError, ValueError) as error:
        place, problem = _find_problem(value, "") or ("", str(error))
        where = f"{what}{place if place.startswith('[') else place and '.' + place}"
        raise NotJson(f"{where}: {problem}") from None


def _simplify(value: Any) -> Any:
    """One step from a typed value towards builtins; the encoder comes back for what is inside."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, _TEXTUAL):
        return msgspec.to_builtins(value)
    if isinstance(value, Set):
        return _sorted_if_possible(cast("Set[Any]", value))
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    if isinstance(value, msgspec.Struct):
        return _struct_as_builtins(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)  # pydantic, without importing it
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    _refuse(value)


def _struct_as_builtins(value: msgspec.Struct) -> Any:
    """With msgspec's own rules (tags, renames, omitted defaults), but bytes left for the encoder to refuse."""
    return msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview), enc_hook=_simplify)


def _sorted_if_possible(items: Set[Any]) -> list[Any]:
    try:
        return sorted(items)
    except TypeError:  # mixed or unordered items: by their JSON, so that the order is still always the same
        return sorted(items, key=_encoder.encode)


def _refuse(value: Any) -> NoReturn:
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes cannot be journaled; decode them to text, or write them to a file and return its path")
    raise TypeError(
        f"{_a(type(value).__qualname__)} cannot be written as JSON; "
        "return builtins, a dataclass, a TypedDict, or a msgspec or pydantic type"
    )


_encoder = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_simplify
)


def _find_problem(value: Any, place: str) -> tuple[str, str] | None:
    """Only after a refusal: walk the value to say where it was."""
    match value:
        case None | bool() | int():
            return None
        case float():
            return None if math.isfinite(value) else (place, f"{value} does not exist in JSON; return None instead")
        case str():
            return (place, "the text contains a lone surrogate, which UTF-8 cannot hold") if _is_broken(value) else None
        case list() | tuple():
            items = cast("list[Any]", value)
            found = (_find_problem(item, f"{place}[{index}]") for index, item in enumerate(items))
        case dict():
            pairs = cast("dict[Any, Any]", value).items()
            found = (_find_in_pair(key, item, place) for key, item in pairs)
        case _:
            try:
                return _find_problem(_simplify(value), place)
            except (TypeError, ValueError) as error:
                return place, str(error)
    return next(filter(None, found), None)


def _find_in_pair(key: Any, item: Any, place: str) -> tuple[str, str] | None:
    if not isinstance(key, str | int | float | bool | None):
        return place, f"the key {key!r} is a {type(key).__qualname__}; JSON keys are strings"
    return _find_problem(key, place) or _find_problem(item, f"{place}.{key}" if place else str(key))


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _a(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"
