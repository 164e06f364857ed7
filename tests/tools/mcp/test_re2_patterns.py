"""Patterns in the schemas of MCP servers: what is checked here, in which time, and what is left to the server."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidCall
from holdfast.tools.hooks import OutputInvalid
from holdfast.tools.mcp.re2_patterns import PATTERN_CHARS_MAX, read_pattern
from holdfast.tools.mcp.schema import Checker, SchemaSignature, SchemaUnusable, harmless
from servers.mcp_kit import SERVERS, family

SDK: dict[str, Any] = {"command": [sys.executable, str(SERVERS / "patterns_mcp.py")]}
CODE = "^[A-Z]{3}-[0-9]+$"


# ---- one pattern -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("b", "abc", True),
        (CODE, "ABC-1", True),
        (CODE, "ABC-x", False),
        (r"^\/[\w.+-]+@x\-y$", "/a.b@x-y", True),
        (r"^(?<year>\d{4})-\u0041$", "2024-A", True),
        ("^[^/]+$", "café", True),
        ("^[^/]+$", "a/b", False),
        (r"^[\s\S]x$", "\nx", True),
        (r"^[\b]$", "\b", True),
        ("^[+--]$", ",", True),
        ('^"$', '"', True),
        ("", "anything", True),
        ("^(?:a|b*?){2}$", "abb", True),
    ],
)
def test_a_pattern_is_searched_for(pattern: str, text: str, fits: bool) -> None:
    read = read_pattern(pattern)
    assert read is not None
    assert read.fits(text) is fits


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", r"\k<n>", r"\cA", r"\p{L}", r"\B", "[]", "[^]", "[]a]", "[a&&b]",
        "(?i)a", "(?P<n>a)", r"\Aa", r"\u{61}", r"\ud83d", "😀", "[z-a]", r"[\w-z]", "a{,2}", "a{", "(", ")", "[a", "*",
        "\\", "^*", r"\b+", "a|?", "(*a)", "a{1001}", "((a{100}){100}){100}", "a++", "[[a]]",
        "a" * (PATTERN_CHARS_MAX + 1),
    ],
)  # fmt: skip
def test_a_pattern_that_could_mean_something_else_to_the_server_is_not_read(pattern: str) -> None:
    assert read_pattern(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(r"^\w$", "é"), (r"^\s$", "\u00a0"), (r"\bé", "é"), ("^.$", "\r"), ("^a$", "a\n"), ("^.$", "😀"), ("a", "a\0")],
)
def test_a_text_that_is_read_in_several_ways_is_not_judged(pattern: str, text: str) -> None:
    read = read_pattern(pattern)
    assert read is not None
    assert read.fits(text) is None


_PARTS = st.sampled_from(
    [
        "a",
        "b",
        "-",
        "é",
        r"\d",
        r"\W",
        r"\s",
        r"\b",
        ".",
        "^",
        "$",
        "[a-c]",
        r"[^\d-]",
        "[^^]",
        r"\.",
        r"\x41",
        "(?:a|b)",
    ]
)
_TIMES = st.sampled_from(["", "", "*", "+?", "?", "{2}", "{1,}"])
_PATTERNS = st.lists(st.tuples(_PARTS, _TIMES).map("".join), max_size=6).map("".join)


@given(pattern=_PATTERNS, text=st.text("abA1-é.\n\r \v^_", max_size=8))
def test_what_is_judged_is_judged_as_another_engine_does(pattern: str, text: str) -> None:
    read = read_pattern(pattern)
    fits = read.fits(text) if read is not None else None
    if fits is not None:
        assert fits is bool(re.search(pattern, text))


# ---- in a schema -----------------------------------------------------------------------------------------------------


def _mistakes(schema: Any, value: Any) -> list[Any]:
    return Checker(harmless(schema), "t").mistakes(value)


def test_names_that_fit_a_pattern_have_its_schema_and_the_others_that_of_the_others() -> None:
    schema = {"patternProperties": {"^n_": {"type": "integer"}}, "properties": {"a": {}}, "additionalProperties": False}
    assert _mistakes(schema, {"n_x": 1, "a": "b"}) == []
    assert _mistakes(schema, {"n_x": "one"}) == [("n_x", 'expected a whole number, got the string "one"')]
    assert _mistakes(schema, {"m": 1}) == [("the whole", "Additional properties are not allowed ('m' was unexpected)")]
    others = {**schema, "additionalProperties": {"type": "string"}}
    assert _mistakes(others, {"n_x": 1, "m": 1}) == [("m", "expected a string, got the number 1")]
    unevaluated = {"allOf": [{"properties": {"b": {}}}], **schema, "unevaluatedProperties": False}
    del unevaluated["additionalProperties"]
    assert _mistakes(unevaluated, {"n_x": 1, "a": 1, "b": 1}) == []
    assert "'m' was unexpected" in _mistakes(unevaluated, {"m": 1})[0][1]


def test_an_unreadable_pattern_of_names_leaves_the_others_open() -> None:
    schema = {"patternProperties": {"^(?=n)": {"type": "integer"}}, "additionalProperties": False}
    assert _mistakes(schema, {"n": "x", "m": 1}) == []
    assert _mistakes({"patternProperties": {"^(?=n)": {}}, "unevaluatedProperties": False}, {"m": 1}) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"pattern": "(?=a)"}},
        {"oneOf": [{"pattern": "(?=a)"}, {"type": "string"}]},
        {"if": {"pattern": "(?=a)"}, "then": False},
        {"if": {"not": {"pattern": "(?=a)"}}, "then": {}, "else": False},
        {"not": {"$ref": "#/$defs/p"}, "$defs": {"p": {"not": {"not": {"pattern": "(?=a)"}}}}},
        {"anyOf": [{"pattern": "(?=a)"}, {"type": "integer"}]},
    ],
)
def test_nothing_is_refused_because_of_a_pattern_that_nobody_checked(schema: Any) -> None:
    assert _mistakes(schema, "x") == []


def test_a_readable_pattern_counts_inside_other_words_of_the_schema() -> None:
    assert _mistakes({"not": {"pattern": "^a"}}, "abc")
    assert _mistakes({"not": {"pattern": "^a"}}, "bc") == []
    assert _mistakes({"if": {"pattern": "^a"}, "then": {"minLength": 9}}, "abc")
    assert _mistakes({"propertyNames": {"pattern": "^a"}}, {"b": 1}) == [
        ("the whole", 'expected text that matches ^a, got the string "b"')
    ]


def test_arguments_whose_names_fit_a_pattern_are_known_and_the_others_are_told_what_would_be() -> None:
    schema = {"type": "object", "patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": False}
    signature = SchemaSignature(harmless(schema), "t", "_call")
    assert signature.check({"n_x": 1}) == []
    assert signature.check({"m": 1}) == [("m", "no such argument; t takes names that match ^n_")]


def test_a_schema_below_a_pattern_of_names_must_be_one_too() -> None:
    with pytest.raises(SchemaUnusable):
        harmless({"patternProperties": {"a": {"type": 7}}})


def test_a_check_has_a_bound_on_the_work_of_all_its_patterns() -> None:
    heavy = "[ab]*a[ab]{900}c$"  # tens of thousands of parts by the text's length
    checker = Checker(harmless({"items": {"pattern": heavy}}), "t")
    assert checker.unchecked(["ab" * 4000]) == []
    assert checker.unchecked(["ab" * 4000] * 3) == [heavy]


# ---- a server --------------------------------------------------------------------------------------------------------


async def test_arguments_and_results_of_a_server_are_checked_by_their_patterns(tmp_path: Path) -> None:
    said = f"expected text that matches {re.escape(CODE)}, got the string "
    async with family(tmp_path, s=SDK) as h:
        assert (await h.call("s.book", code="ABC-1"))["data"] == {"code": "ABC-1"}
        with pytest.raises(InvalidCall, match=rf's\.book: code: {said}"abc"'):
            await h.call("s.book", code="abc")
        with pytest.raises(InvalidCall, match=rf'codes\[1\]: {said}"abc"|codes: .*not valid under any'):
            await h.call("s.others", codes=["ABC-1", "abc"])
        with pytest.raises(OutputInvalid, match=rf'else than it promises: data\.code: {said}"abc-1"'):
            await h.call("s.book", code="ABC-1", counts={"ABC-2": 1})


async def test_a_pattern_that_would_take_years_elsewhere_is_checked_here(tmp_path: Path) -> None:
    async with family(tmp_path, s=SDK) as h:
        with pytest.raises(InvalidCall, match=r"evil: expected text that matches \^\(a\+\)\+\$, got the string"):
            await h.call("s.others", evil="a" * 100_000 + "!")


async def test_only_patterns_that_nobody_here_can_judge_are_warned_of(tmp_path: Path) -> None:
    said = "whether it fits the pattern {} is not checked here, only by the server"
    async with family(tmp_path, s=SDK) as h:
        assert h.registry.suspect("s.book", {"code": "ABC-1"}) == []
        assert h.registry.suspect("s.others", {"evil": "abc", "ahead": "b", "word": "née"}) == [
            ("ahead", said.format("^(?=a)")),
            ("word", said.format(r"^\w+$")),
        ]
        assert h.registry.suspect("s.others", {"word": "abc"}) == []


@pytest.mark.parametrize(
    "below",
    [
        {"allOf": [{"patternProperties": {"^x-": {}}}]},
        {"anyOf": [{"patternProperties": {"^x-": {}}}]},
        {"$ref": "#/$defs/open", "$defs": {"open": {"patternProperties": {"^x-": {}}}}},
    ],
    ids=["allOf", "anyOf", "$ref"],
)
def test_names_that_fit_a_pattern_further_down_are_not_left_over(below: dict[str, Any]) -> None:
    checker = Checker(harmless({**below, "unevaluatedProperties": False}), "tool")
    assert checker.errors({"x-a": 1}) == []
    assert len(checker.errors({"other": 1})) == 1
