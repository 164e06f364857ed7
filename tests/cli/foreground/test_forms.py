"""Answering a form: with `field=value` from any process, and field by field at the terminal."""

from __future__ import annotations

import json

from cli.foreground.test_terminal import at_terminal
from cli.workshop import Workshop
from holdfast.cli.foreground.answer_parsing import prompt_of, read_field

PLAN = """
name: paint
steps:
  - id: choose
    tool: human.ask
    with:
      question: How shall it look?
      form:
        colour: {choices: [red, blue], description: of the door}
        count: {type: integer, default: 1}
        label: string
        note: {required: false}
      expires: 2d
"""


def paint(shop: Workshop) -> None:
    (shop.folder / "paint.yaml").write_text(PLAN)


def test_a_form_is_shown_with_its_fields_and_answered_with_pairs(shop: Workshop) -> None:
    paint(shop)
    asked = shop.run("run", "paint.yaml", code=3)
    identity = shop.newest()["id"]
    for line in (
        "choose asks for an answer: How shall it look?",
        '  colour, one of "red", "blue" (of the door)',
        "  count, a whole number [1]",
        "  label, a text",
        "  note, a text [nothing]",
        "and silence fails the step",
        f"  holdfast answer {identity} choose colour=… count=… label=… note=…",
    ):
        assert line in asked.out
    wrong = shop.run("answer", "@last", "choose", "colour=green", "count=many", code=2)
    assert 'colour: expected one of "red", "blue", got the string "green"' in wrong.err
    assert 'count: expected a whole number, got the string "many"' in wrong.err
    assert "label: is missing: expected a text" in wrong.err
    shapeless = shop.run("answer", "@last", "choose", "blue", code=2)
    assert 'expected field=value for each field of the form, or one JSON map, got "blue"' in shapeless.err
    assert "answered choose" in shop.run("answer", "@last", "choose", "colour=blue", "label=12").out
    *_, last = shop.run("resume", "@last", "--json").lines
    assert last["output"] == {"colour": "blue", "count": 1, "label": "12", "note": None}


def test_a_form_is_also_answered_with_one_json_map(shop: Workshop) -> None:
    paint(shop)
    shop.run("run", "paint.yaml", code=3)
    shop.run("answer", "@last", "choose", json.dumps({"colour": "red", "label": "a", "count": 3, "note": "soon"}))
    *_, last = shop.run("resume", "@last", "--json").lines
    assert last["output"] == {"colour": "red", "count": 3, "label": "a", "note": "soon"}


def test_a_question_takes_one_answer(shop: Workshop) -> None:
    shop.run("run", "asks", code=3)
    assert "the question wants one answer" in shop.run("answer", "@last", "colour", "dark", "blue", code=2).err


def test_at_the_terminal_each_field_is_asked_for_until_it_fits(shop: Workshop) -> None:
    paint(shop)
    shown = at_terminal(
        shop,
        ["run", "paint.yaml"],
        [
            ('colour, one of "red", "blue" (of the door): ', "green\n"),
            ('colour, one of "red", "blue" (of the door): ', "blue\n"),
            ("count, a whole number [1]: ", "\n"),
            ("label, a text: ", "12\n"),
            ("note, a text [nothing]: ", "\n"),
        ],
    )
    assert 'expected one of "red", "blue", got the string "green"' in shown
    assert "exit 0" in shown
    assert shop.newest()["status"] == "completed"


def test_an_empty_line_where_something_is_needed_leaves_the_form_for_later(shop: Workshop) -> None:
    paint(shop)
    shown = at_terminal(
        shop, ["run", "paint.yaml"], [("(of the door): ", "red\n"), ("[1]: ", "2\n"), ("a text: ", "\n")]
    )
    assert "exit 3" in shown
    assert shop.newest()["status"] == "waiting"


def test_a_form_that_is_answered_already_says_so_whatever_is_said(shop: Workshop) -> None:
    shop.write(
        "ring.yaml",
        "steps:\n"
        "  - {id: choose, tool: human.ask, with: {question: What?, form: {things: {type: list, choices: [bell, horn]},"
        " coats: integer}}}\n"
        "  - {id: agree, approval: Well?}\n",
    )
    shop.run("run", "ring.yaml", code=3)
    shop.run("answer", "@last", "choose", "things=bell, horn", "coats=2")
    again = shop.run("answer", "@last", "choose", "things=bell", "coats=2", code=None)
    assert "choose was already answered" in again.out + again.err
    assert "put it in quotes" not in again.out + again.err
    shop.run("resume", "@last", code=3)
    step = next(one for one in shop.run("show", "@last", "--json").json["steps"] if one["path"] == "choose")
    assert step["output"] == {"things": ["bell", "horn"], "coats": 2}


def test_the_prompt_of_a_list_says_how_to_type_it() -> None:
    field = {"type": "list", "choices": ["bell", "horn"]}
    assert prompt_of("things", field) == 'things, some of "bell", "horn", separated by commas'
    assert read_field(field, "bell, horn\n") == (["bell", "horn"], "")
    assert read_field(field, '["bell"]') == (["bell"], "")
    assert read_field({"type": "list", "choices": [1, 2]}, "1,2") == ([1, 2], "")
