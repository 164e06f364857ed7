"""Forms: what may be asked, and what fits as an answer; every mistake with its place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.forms import Field, answer_of_silence, complete, schema_of

DOOR = schema_of(
    Field(type="any"),
    {
        "colour": Field(type="string", choices=["red", "blue"], description="of the door"),
        "count": "integer",
        "tags": Field(type="list", choices=["new", "old"], default=[]),
        "note": Field(required=False),
    },
    "fail",
)


def test_what_is_left_out_takes_its_default_and_the_rest_must_fit() -> None:
    answer, problems = complete(DOOR, {"colour": "blue", "count": 2})
    assert (answer, problems) == ({"colour": "blue", "count": 2, "tags": [], "note": None}, [])
    answer, problems = complete(DOOR, {"colour": "red", "count": 0, "tags": ["new"], "note": None})
    assert not problems
    assert answer["tags"] == ["new"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("blue", [
                'expected a map of colour, count, tags, note, got the string "blue"; '
                'as JSON: {"colour": …, "count": …, "tags": …, "note": …}'
            ]),
        (
            {},
            [
                'colour: is missing: expected one of "red", "blue" (of the door)',
                "count: is missing: expected a whole number",
            ],
        ),
        (
            {"colour": "bleu", "count": 1},
            ['colour: expected one of "red", "blue", got the string "bleu"; did you mean "blue"?'],
        ),
        ({"colour": "red", "count": "2"}, ['count: expected a whole number, got the string "2"']),
        ({"colour": "red", "count": None}, ["count: expected a whole number, got null"]),
        ({"colour": "red", "count": 1, "tags": ["new", 3]}, ['tags: expected one of "new", "old", got the number 3']),
        ({"colour": "red", "count": 1, "cuont": 2}, ['cuont: no such field; did you mean "count"?']),
        ({"colour": "red", "count": 1, "zzz": 2}, ["zzz: no such field; there are: colour, count, tags, note"]),
    ],
)  # fmt: skip
def test_every_mistake_in_an_answer_is_named(given: Any, said: list[str]) -> None:
    assert [str(problem) for problem in complete(DOOR, given)[1]] == said


def test_a_single_question_has_a_type_choices_and_a_default() -> None:
    schema = schema_of(Field(type="integer", choices=[1, 2], default=1), None, "default")
    assert schema == {"type": "integer", "choices": [1, 2], "default": 1, "on_expiry": "default"}
    assert complete(schema, 2) == (2, [])
    assert [str(problem) for problem in complete(schema, 3)[1]] == ["expected one of 1, 2, got the number 3"]
    assert complete(None, "anything") == ("anything", [])


def test_silence_is_answered_by_the_defaults_only_if_the_question_says_so() -> None:
    assert answer_of_silence(DOOR) is None
    assert answer_of_silence(None) is None
    assert answer_of_silence(schema_of(Field(type="any", default=None), None, "default")) == (None,)
    form = {"a": Field(default="x"), "b": Field(required=False)}
    assert answer_of_silence(schema_of(Field(type="any"), form, "default")) == ({"a": "x", "b": None},)


def test_a_schema_survives_the_journal() -> None:
    assert msgspec.json.decode(msgspec.json.encode(DOOR)) == DOOR
