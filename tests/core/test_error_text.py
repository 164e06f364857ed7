"""The wording that messages share."""

from __future__ import annotations

from holdfast.core.error_text import describe_value, did_you_mean


def test_the_nearest_name_is_suggested():
    assert did_you_mean("serach", ["search", "fetch"]) == '; did you mean "search"?'


def test_the_last_part_of_a_dotted_name_is_enough():
    assert did_you_mean("write", ["files.write_everything", "files.write"]) == '; did you mean "files.write"?'


def test_nothing_near_suggests_nothing():
    assert did_you_mean("zebra", ["search", "fetch"]) == ""
    assert did_you_mean("", []) == ""


def test_values_are_named_as_people_name_them():
    values = ["x", 3, 1.5, True, None, [], [1], {}, {"a": 1}, 10**80, {1}]
    assert [describe_value(value) for value in values] == [
        'the string "x"',
        "the number 3",
        "the number 1.5",
        "true",
        "null",
        "an empty list",
        "a list",
        "an empty map",
        "a map",
        "a very large number",
        "a value of the type set",
    ]


def test_long_texts_are_cut():
    assert describe_value("x" * 1000) == f'the string "{"x" * 60}…"'
