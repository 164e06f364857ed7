"""CEL behind the core's port: values, errors in plain words, results as JSON."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from holdfast.core.errors import InvalidCall
from holdfast.core.expressions import ExpressionInvalid
from holdfast.programs.cel import FUNCTIONS, METHODS, Cel

NAMES = frozenset({"inputs", "item", "steps.search", "steps.fetch"})
VALUES: dict[str, Any] = {
    "inputs": {"n": 3, "f": 1.5, "s": "ab", "l": [1, 2], "m": {"b": 1, "a": None}, "odd key": 1},
    "item": {"url": "u"},
    "steps.search": {"status": "completed", "output": {"results": [{"url": "x"}]}},
    "steps.fetch": {"status": "failed", "output": None},
}


@pytest.fixture(scope="module")
def cel() -> Cel:
    return Cel()


def evaluate(cel: Cel, text: str) -> Any:
    return cel.compile(text, NAMES).evaluate(VALUES)


KNOWN = ", ".join([*FUNCTIONS, *METHODS])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("inputs.n", 3),
        ("inputs", VALUES["inputs"]),
        ("inputs.n * 2 + 1", 7),
        ("inputs.l.map(x, x * 2)", [2, 4]),
        ("steps.search.output.results[0].url", "x"),
        ("steps.search.output.results.map(r, r.url)", ["x"]),
        ('inputs["odd key"]', 1),
        ("inputs['m'].a", None),
        ('steps.fetch.status == "failed" || inputs.n > 5', True),
        ("has(inputs.missing) ? 1 : 2", 2),
        ("inputs.s.upperAscii()", "AB"),
        ('["a", "b"].join("-")', "a-b"),
        ("true", True),
        ("null", None),
        ("[1u]", [1]),
        ('timestamp("2026-12-01T08:00:00Z")', "2026-12-01T08:00:00Z"),
        ('duration("90s")', 90.0),
        ("{2: 1, true: 3}", {"2": 1, "true": 3}),
    ],
)
def test_expressions_give_json_values(cel: Cel, text: str, value: Any):
    assert evaluate(cel, text) == value


@pytest.mark.parametrize("text", ["inputs.m", '{"z": 1, "a": {"y": 1, "b": 2}}', "[inputs.m][0]"])
def test_maps_come_back_sorted_by_key(cel: Cel, text: str):
    value = evaluate(cel, text)
    assert list(value) == sorted(value)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("steps.serach.output", 'no step called "serach"; did you mean "search"?', 1),
        ("1 + steps.nope.output", 'no step called "nope"', 5),
        ("steps", "a step is named with a dot, such as steps.search.output", 1),
        ('steps["search"]', "a step is named with a dot, such as steps.search.output", 1),
        ("input.topic", 'no variable called "input" here; did you mean "inputs"?', 1),
        ("zzz", 'no variable called "zzz" here; there are: inputs, item, steps.fetch, steps.search', 1),
        ("frob(1)", f'no function called "frob"; there are: {KNOWN}', 1),
        ("inputs.s.frob()", f'no function called "frob"; there are: {KNOWN}', 10),
        ('1 == "a"', "== does not work with int and string", 3),
        ("1 + 1.0", "+ cannot mix whole numbers and decimals; convert with double(…) or int(…)", 3),
        ("[" * 100 + "]" * 100, "the expression is nested too deeply", 0),
        ("'" + "x" * 10_001 + "'", "the expression is longer than 10000 characters", 0),
        ("'\ud800'", "the expression holds characters that are not valid text", 0),
    ],
)
def test_mistakes_are_found_before_anything_runs(cel: Cel, text: str, message: str, column: int):
    with pytest.raises(ExpressionInvalid) as caught:
        cel.compile(text, NAMES)
    assert (str(caught.value), caught.value.column) == (message, column)


def test_a_syntax_error_has_its_column(cel: Cel):
    with pytest.raises(ExpressionInvalid, match="its end is missing") as caught:
        cel.compile("inputs.", NAMES)
    assert caught.value.column == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inputs.missing", 'there is no field "missing"; there are: n, f, s, l, m, odd key'),
        ("inputs.missing + 1", 'there is no field "missing"'),
        ("steps.search.output.result", 'there is no field "result"; did you mean "results"?'),
        ("inputs.l[7]", "there is no item 7 in a list of 2"),
        ("inputs.l[7] + 1", "there is no such item in the list: index=7 size=2"),
        ("inputs.n.x", 'a number has no field or item "x"'),
        ("inputs.n.x + 1", "a field is read from a value that is not a map"),
        ("inputs.n * 2.0", "* cannot mix whole numbers and decimals; convert with double(…) or int(…)"),
        ("inputs.s + 1", "+ does not work with string and int"),
        ("!inputs.s", "! does not work with this type of value"),
        ("inputs.s ? 1 : 2", "the condition before ? is not true or false"),
        ("1 / 0", "divide by zero"),
        ('b"ab"', "the result is bytes, which JSON cannot hold"),
        ("type(1)", "the result is a type, which JSON cannot hold"),
        ('double("nan")', "the result is nan, which JSON cannot hold"),
    ],
)
def test_failures_name_the_expression_and_say_why(cel: Cel, text: str, message: str):
    with pytest.raises(InvalidCall) as caught:
        evaluate(cel, text)
    assert str(caught.value) == f"${{{{ {text} }}}}: {message}"


def test_of_a_large_map_only_some_fields_are_named(cel: Cel):
    many = {f"key{number}" + "x" * 100: number for number in range(20)}
    with pytest.raises(InvalidCall) as caught:
        cel.compile("inputs.zzz", NAMES).evaluate({"inputs": many})
    assert "; there are: key0" in str(caught.value)
    assert str(caught.value).endswith(", …")
    assert "key8" not in str(caught.value)


def test_a_variable_without_a_value_is_named(cel: Cel):
    for text in ("item", "item == 1"):
        with pytest.raises(InvalidCall, match="item has no value yet"):
            cel.compile(text, NAMES).evaluate({})


def test_runaway_expressions_are_stopped(cel: Cel):
    expression = cel.compile("inputs.map(x, inputs.map(y, x))", NAMES)
    with pytest.raises(InvalidCall, match="too many iterations; do this work in a tool"):
        expression.evaluate({"inputs": list(range(3000))})


def test_a_number_too_large_for_the_language_is_refused(cel: Cel):
    with pytest.raises(InvalidCall, match="out of range"):
        cel.compile("inputs + 1", NAMES).evaluate({"inputs": 2**70})


def test_the_same_text_is_compiled_once(cel: Cel):
    assert cel.compile("inputs.n + 1", NAMES) is cel.compile("inputs.n + 1", NAMES)


def test_the_runtime_is_loaded_on_first_use_only():
    code = "import sys, holdfast.programs.cel as c; c.Cel(); sys.exit('cel_expr_python' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
