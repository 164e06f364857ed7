"""Templates: values with expressions in them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import InvalidCall, Problem
from holdfast.core.expressions import Condition, Template, as_text, place_of, references
from holdfast.programs.cel import Cel

CEL = Cel()
NAMES = frozenset({"inputs", "item", "steps.search"})
VALUES: dict[str, Any] = {"inputs": {"n": 3, "s": "tides", "l": [1, "ä"], "no": None, "b": True}}


def compiled(value: Any, problems: list[Problem] | None = None) -> Template:
    found: list[Problem] = []
    template = Template.compile(value, CEL, NAMES, "with", found if problems is None else problems)
    assert found == []
    return template


def mistakes(value: Any) -> list[str]:
    problems: list[Problem] = []
    compiled(value, problems)
    return [str(problem) for problem in problems]


def test_one_expression_alone_keeps_the_type():
    assert compiled("${{ inputs.n }}").render(VALUES) == 3
    assert compiled("${{inputs.l}}").render(VALUES) == [1, "ä"]


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("n=${{ inputs.n }}", "n=3"),
        ("${{ inputs.s }} ${{ inputs.b }}", "tides true"),
        ("[${{ inputs.no }}]", "[]"),
        ("l: ${{ inputs.l }}", 'l: [1, "ä"]'),
        (" ${{ inputs.n }}", " 3"),
        ("${{ 1.5 }}!", "1.5!"),
    ],
)
def test_expressions_among_text_become_text(text: str, rendered: str):
    assert compiled(text).render(VALUES) == rendered


def test_braces_and_quotes_inside_an_expression_do_not_end_it():
    assert compiled('${{ {"a": {"b": 1}} }}').render({}) == {"a": {"b": 1}}
    assert compiled("${{ '}}' + \"}}\" }}").render({}) == "}}}}"
    assert compiled(r"""${{ r"\}" + '${{' }}""").render({}) == "\\}${{"


def test_maps_and_lists_render_throughout():
    template = compiled({"url": "${{ inputs.s }}", "fixed": {"a": [1]}, "deep": [{"n": "${{ inputs.n }}"}]})
    assert template.render(VALUES) == {"url": "tides", "fixed": {"a": [1]}, "deep": [{"n": 3}]}
    assert template.dynamic_keys == {"url", "deep"}


def test_without_expressions_the_very_same_value_comes_back():
    value = {"a": [1, {"b": "$ {{ }}"}]}
    template = compiled(value)
    assert not template.dynamic
    assert template.render({}) is value


def test_references_are_found_outside_of_strings():
    template = compiled({"a": "${{ inputs.s + 'steps.nope.output' }}", "b": ["${{ steps . search.output }}"]})
    assert template.references == {"inputs.s", "steps.search"}
    assert template.uses == (("with.a", "inputs.s"), ("with.b[0]", "steps.search"))
    assert references("a.inputs.b + r'\\' + item.x") == {"a", "item"}


def test_mistakes_have_the_place_of_the_string():
    assert mistakes({"a": ["${{ inputs.s", "${{ }}"], "odd key": "${{ steps.serach.output }}"}) == [
        'with.a[0]: an expression begins with "${{" but its closing "}}" is missing',
        "with.a[1]: the expression is empty",
        'with["odd key"]: ${{ steps.serach.output }}: no step called "serach"; did you mean "search"? '
        "(column 1 of the expression)",
    ]
    assert mistakes({"${{ inputs.s }}": 1}) == ["with: expressions belong in values, not in the name '${{ inputs.s }}'"]


def test_a_failing_expression_says_which_one_and_why():
    with pytest.raises(InvalidCall, match=r'\$\{\{ inputs.m \}\}: there is no field "m"'):
        compiled("so: ${{ inputs.m }}").render(VALUES)


def condition(value: Any) -> Condition | str:
    problems: list[Problem] = []
    found = Condition.compile(value, CEL, NAMES, "when", problems)
    return str(problems[0]) if found is None else found


@pytest.mark.parametrize(
    ("value", "holds"),
    [(True, True), (False, False), ("inputs.n > 2", True), ("${{ inputs.n > 3 }}", False), ("false", False)],
)
def test_conditions_may_be_bare_or_in_braces(value: Any, holds: bool):
    found = condition(value)
    assert isinstance(found, Condition)
    assert found.holds(VALUES) is holds


def test_a_condition_must_come_out_as_true_or_false():
    found = condition("${{ inputs.s }}")
    assert isinstance(found, Condition)
    assert found.references == {"inputs.s"}
    with pytest.raises(InvalidCall, match='expected true or false, got the string "tides"'):
        found.holds(VALUES)


def test_mistaken_conditions_are_explained():
    assert condition(3) == "when: expected true, false or an expression, got the number 3"
    assert str(condition("a ${{ inputs.n }}")).startswith("when: expected one expression and nothing around it")
    assert condition("") == "when: the expression is empty"


def test_places_read_like_paths():
    assert place_of("", "a") == "a"
    assert place_of("steps[0]", "with") == "steps[0].with"
    assert place_of("a", "b c") == 'a["b c"]'


def test_values_in_sentences_read_plainly():
    assert [as_text(value) for value in ("a", None, False, 2, 0.5, {"a": [1]})] == [
        "a",
        "",
        "false",
        "2",
        "0.5",
        '{"a": [1]}',
    ]
