"""Inputs: what is declared, what is given."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import InputInvalid
from holdfast.core.inputs import InputSpec, check_inputs, parse_cli_input, parse_cli_inputs

SPECS = {
    "topic": InputSpec(type="string", description="what to write about"),
    "pages": InputSpec(type="integer", required=False, default=3),
}


def texts(specs: dict[str, InputSpec], given: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in check_inputs(specs, given)[1]]


def test_defaults_fill_in_what_is_not_given():
    assert check_inputs(SPECS, {"topic": "tides"}) == ({"topic": "tides", "pages": 3}, [])


def test_every_mistake_is_reported_at_once():
    assert texts(SPECS, {"topc": "tides", "pages": "many"}) == [
        'inputs.topc: no such input; did you mean "topic"?',
        "inputs.topic: missing; expected a string (what to write about)",
        'inputs.pages: expected a whole number, got the string "many"',
    ]


def test_an_unknown_input_far_from_all_lists_them():
    assert texts(SPECS, {"topic": "x", "zzz": 1}) == ["inputs.zzz: no such input; there are: topic, pages"]
    assert texts({}, {"zzz": 1}) == ["inputs.zzz: no such input; there are none"]


def test_null_is_fine_only_for_an_input_that_is_not_required():
    assert texts(SPECS, {"topic": None, "pages": None}) == ["inputs.topic: expected a string, got null"]


@pytest.mark.parametrize(
    ("kind", "good", "bad", "called"),
    [
        ("string", "x", 1, "a string, got the number 1"),
        ("number", 1.5, "x", 'a number, got the string "x"'),
        ("number", 1, True, "a number, got true"),
        ("integer", 1, 1.5, "a whole number, got the number 1.5"),
        ("boolean", False, 0, "true or false, got the number 0"),
        ("list", [1], {"a": 1}, "a list, got a map"),
        ("map", {"a": 1}, [1], "a map, got a list"),
    ],
)
def test_types_are_strict(kind: Any, good: Any, bad: Any, called: str):
    specs = {"x": InputSpec(type=kind)}
    assert texts(specs, {"x": good}) == []
    assert texts(specs, {"x": bad}) == [f"inputs.x: expected {called}"]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "3", "3"),
        ("integer", "3", 3),
        ("number", "3.5", 3.5),
        ("boolean", "true", True),
        ("list", "[1, 2]", [1, 2]),
        ("map", '{"a": 1}', {"a": 1}),
        ("any", "3", 3),
        ("any", "tides", "tides"),
    ],
)
def test_text_from_the_command_line_becomes_the_declared_type(kind: Any, text: str, value: Any):
    assert parse_cli_input(InputSpec(type=kind), text) == value


def test_text_for_an_undeclared_input_stays_text():
    assert parse_cli_input(None, "3") == "3"


def test_every_mistake_in_texts_is_told_once_and_nothing_is_missing_that_has_a_value_already():
    specs = {"port": InputSpec(type="string"), "naps": InputSpec(type="list")}

    def told(beside: dict[str, Any] | None) -> list[str]:
        return [str(problem) for problem in parse_cli_inputs(specs, {"prt": "x", "naps": "two"}, beside)[1]]

    naps = 'inputs.naps: expected a list, got the string "two"; write it as JSON'
    unknown = 'inputs.prt: no such input; did you mean "port"?'
    assert told({}) == [naps, unknown, "inputs.port: missing; expected a string"]
    assert told({"port": "Wyk"}) == [naps, unknown]
    assert told(None) == [naps, unknown]


def test_text_that_does_not_fit_is_refused():
    with pytest.raises(InputInvalid, match='expected a number, got the string "NaN"'):
        parse_cli_input(InputSpec(type="number"), "NaN")
    with pytest.raises(InputInvalid, match='expected a list, got the string "a,b"; write it as JSON'):
        parse_cli_input(InputSpec(type="list"), "a,b")
