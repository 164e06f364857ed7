"""Whatever stands between `${{` and `}}`, it gives a JSON value or the documented error; and it ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidCall, Problem
from holdfast.core.expressions import Condition, ExpressionInvalid, Template, references, split_template
from holdfast.programs.cel import Cel
from properties.strategies import examples, json_values, outcome

CEL = Cel()
NAMES = frozenset({"inputs", "item", "index", "steps.search", "steps.pages"})
VALUES: dict[str, Any] = {
    "inputs": {"topic": "tides", "count": 3, "list": [1, 2, 3], "deep": {"a": {"b": [None, True, 1.5]}}},
    "item": "x",
    "index": 0,
    "steps.search": {"status": "completed", "output": {"results": [{"url": "a"}]}},
    "steps.pages": {"status": "skipped", "output": None},
}
_WORDS = (
    "inputs", ".topic", ".count", ".list", ".deep", "item", "index", "steps.search", ".output", "steps.pages", "steps",
    ".nowhere", "[0]", "[9]", "['a']", "[-1]", "(", ")", "[", "]", "{", "}", "+", "-", "*", "/", "%", "==", "!=", "<",
    ">=", "&&", "||", "!", "?", ":", ",", ".", "1", "0", "2u", "1.5", "1e400", "9223372036854775807", "'a'", '"b"',
    "r'\\'", "b'x'", "'''t'''", "true", "false", "null", "in", "size(", "has(", "string(", "int(", "double(", "bytes(",
    "timestamp('2026-01-01T00:00:00Z')", "duration('1h')", "type(1)", ".map(x, x)", ".filter(x, x > 1)",
    ".all(x, true)",
    ".exists(x, x == 1)", ".split(',')", ".matches('a+')", ".replace('a', 'b')", "dyn(", "[1, 2]", "{'a': 1}", "{1: 2}",
    "{true: 1}", "{'b': 1, 'a': 2}", " ", "\n", "//x", "@", "`", "\\", "é", "\ud800", "\x00", "matches(", "google.x{}",
)  # fmt: skip
soups = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=9).map("".join)


def value_or_error(text: str, values: dict[str, Any]) -> None:
    expression = outcome(lambda: CEL.compile(text, NAMES), ExpressionInvalid)
    if isinstance(expression, ExpressionInvalid):
        assert str(expression).strip()
        assert 0 <= expression.column <= len(text) + 1, "the column lies outside the expression"
    elif not isinstance(expression, Exception):
        value = outcome(lambda: expression.evaluate(values), InvalidCall)
        if isinstance(value, InvalidCall):
            assert str(value).startswith("${{ ")
        else:
            assert msgspec.json.decode(msgspec.json.encode(value)) == value


@examples(500)
@given(soups)
def test_any_row_of_words_gives_a_value_or_the_documented_error(text: str) -> None:
    value_or_error(text, VALUES)


@examples(100)
@given(st.text(max_size=40))
def test_any_text_gives_a_value_or_the_documented_error(text: str) -> None:
    value_or_error(text, VALUES)


@examples(100)
@given(soups, st.dictionaries(st.sampled_from(sorted(NAMES)), json_values))
def test_any_values_give_a_value_or_the_documented_error(text: str, values: dict[str, Any]) -> None:
    value_or_error(text, values)


@examples(100)
@given(st.lists(soups | st.sampled_from(["${{", "}}", "$", "{{"]), max_size=5).map("".join))
def test_any_template_and_condition_is_compiled_or_has_addressed_mistakes(text: str) -> None:
    problems: list[Problem] = []
    template = Template.compile({"a": [text]}, CEL, NAMES, "with", problems)
    condition = Condition.compile(text, CEL, NAMES, "when", problems)
    assert all(problem.place in ("with.a[0]", "when") for problem in problems)
    if not any(problem.place == "with.a[0]" for problem in problems):
        _rendered(lambda: template.render(VALUES))
    if condition is not None:
        _rendered(lambda: condition.holds(VALUES))


def _rendered(render: Any) -> None:
    rendered = outcome(render, InvalidCall)
    assert not isinstance(rendered, InvalidCall) or str(rendered).startswith("${{ ")


@examples(200)
@given(st.text(alphabet="${}'\"\\ar \n", max_size=30))
def test_splitting_loses_nothing(text: str) -> None:
    pieces = split_template(text)
    if not isinstance(pieces, str):
        assert "".join(f"${{{{{piece}}}}}" if is_expression else piece for is_expression, piece in pieces) == text


@examples(100)
@given(soups)
def test_references_of_any_text_are_found_without_a_stumble(text: str) -> None:
    assert all(references(text))


@pytest.mark.parametrize(
    "text",
    [
        "inputs.many.map(a, inputs.many.map(b, inputs.many.map(c, a + b + c)))",
        "inputs.many.all(a, inputs.many.all(b, inputs.many.all(c, a + b + c >= 0)))",
        "inputs.many.filter(a, inputs.many.exists(b, inputs.many.exists(c, a + b + c < 0)))",
    ],
)
def test_work_without_end_is_refused_after_a_bounded_number_of_iterations(text: str) -> None:
    expression = CEL.compile(text, NAMES)
    with pytest.raises(InvalidCall, match="it takes too many iterations; do this work in a tool"):
        expression.evaluate({"inputs": {"many": list(range(1000))}})


@pytest.mark.parametrize(
    "text", ["(" * 500 + "1" + ")" * 500, "-" * 5000 + "1", "[" * 900, "1" + "+1" * 4900, "a" * 10_001]
)
def test_deep_and_long_expressions_are_values_or_errors(text: str) -> None:
    value_or_error(text, VALUES)
