"""What can be journaled is written exactly; what JSON would silently change is refused with its place."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import ToolError
from holdfast.core.failure import describe
from holdfast.tools import json_values as tools_json_values
from holdfast.tools.json_values import NotJson, digest, encode


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    where: Path


class Tagged(msgspec.Struct, tag="tagged"):
    point: Point


class Model(pydantic.BaseModel):
    at: datetime


class Pair(NamedTuple):
    left: int
    right: int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, b"null"),
        (True, b"true"),
        ("ø\n", '"ø\\n"'.encode()),
        (1.5, b"1.5"),
        (10**30, b"1" + b"0" * 30),
        ({"b": 1, "a": [1, "x", None]}, b'{"b":1,"a":[1,"x",null]}'),
        ((1, 2), b"[1,2]"),
        (Pair(1, 2), b"[1,2]"),
        ({3, 1, 2}, b"[1,2,3]"),
        ({"x", 1}, b'["x",1]'),
        ({1: "a"}, b'{"1":"a"}'),
        (Colour.RED, b'"red"'),
        (Path("a/b"), b'"a/b"'),
        (date(2026, 1, 2), b'"2026-01-02"'),
        (datetime(2026, 1, 2, tzinfo=UTC), b'"2026-01-02T00:00:00Z"'),
        (uuid.UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.10"), b'"1.10"'),
        (Point(1, Path("p")), b'{"x":1,"where":"p"}'),
        (Tagged(Point(1, Path("p"))), b'{"type":"tagged","point":{"x":1,"where":"p"}}'),
        ([Model(at=datetime(2026, 1, 2, tzinfo=UTC))], b'[{"at":"2026-01-02T00:00:00Z"}]'),
        (msgspec.Raw(b'{"a":1}'), b'{"a":1}'),
    ],
)
def test_typed_values_become_the_json_one_expects(value: Any, expected: bytes) -> None:
    assert encode(value) == expected


class Opaque:
    pass


class WithBytes(msgspec.Struct):
    data: bytes


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"x", "the value: bytes cannot be journaled; decode them to text, or write them to a file"),
        ({"a": [1, {"b": b"x"}]}, "the value.a[1].b: bytes cannot be journaled"),
        (WithBytes(b"x"), "the value.data: bytes cannot be journaled"),
        ([1.0, float("nan")], "the value[1]: nan does not exist in JSON; return None instead"),
        (Point(float("inf"), Path("p")), "the value.x: inf does not exist in JSON"),  # pyright: ignore[reportArgumentType]
        ({"o": Opaque()}, "the value.o: an Opaque cannot be written as JSON; return builtins, a dataclass"),
        ({(1, 2): 3}, "the value: the key (1, 2) is a tuple; JSON keys are strings"),
        (["\ud800"], "the value[0]: the text contains a lone surrogate, which UTF-8 cannot hold"),
        ("\ud800", "the value: the text contains a lone surrogate"),
    ],
)
def test_what_json_would_change_or_cannot_hold_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(NotJson) as caught:
        encode(value)
    assert message in str(caught.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotJson, match="nested too deeply for JSON or contains itself"):
        encode(endless)


def test_a_value_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools_json_values, "VALUE_BYTES_MAX", 1000)
    with pytest.raises(NotJson, match=r"the note is 1,002 bytes of JSON, at most 1,000 are kept; write it to a file"):
        encode("x" * 1000, "the note")


def test_a_refused_output_counts_as_a_known_failure_of_logic() -> None:
    with pytest.raises(ToolError) as caught:
        encode(b"")
    failure = describe(caught.value)
    assert (failure.category, failure.happened) == ("logic", "known")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_every_json_value_survives_the_journey(value: Any) -> None:
    assert msgspec.json.decode(encode(value)) == value


def test_a_digest_ignores_the_order_of_keys_and_nothing_else() -> None:
    assert digest(b'{"a":1,"b":{"c":2,"d":3}}') == digest(b'{"b": {"d":3, "c":2}, "a":1}')
    assert digest(b'{"a":1}') != digest(b'{"a":"1"}')
    assert len(digest(b"null")) == 32
