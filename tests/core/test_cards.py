"""What a person is told: every kind of request and failure, with what it affects and the commands that settle it."""

from __future__ import annotations

from typing import get_args

from msgspec import Raw

from holdfast.core.cards import CATEGORY_WORDS, HAPPENED_WORDS, card_of_failure, card_of_request
from holdfast.core.events import Request, RequestKind
from holdfast.core.failure import Category, Failure, Happened


def test_every_category_and_every_outcome_has_words() -> None:
    assert set(CATEGORY_WORDS) == set(get_args(Category))
    assert set(HAPPENED_WORDS) == set(get_args(Happened))


def test_every_kind_of_request_can_be_settled_by_a_command() -> None:
    for kind in get_args(RequestKind):
        card = card_of_request("x1", Request(id="a#3", kind=kind, path="a", message="what?", remedies=("skip", "fail")))
        assert card.choices, kind
        assert all(choice.command.startswith("holdfast ") and "x1" in choice.command for choice in card.choices)


def test_correction_tells_what_is_known_what_hangs_on_it_and_all_ways_out() -> None:
    failure = Failure(category="configuration", message="no key", happened="nothing", affects=("b", "c"))
    remedies = ("again", "done", "skip", "fallback", "fail")
    request = Request(
        id="a#3", kind="correction", path="a", tool="t", message="t failed: no key", remedies=remedies, failure=failure
    )
    card = card_of_request("x1", request)
    assert (card.category, card.happened, card.affects) == ("configuration", "nothing", ("b", "c"))
    assert card.category_text == "something is missing or set up wrongly"
    assert card.happened_text == "nothing was done"
    assert [choice.name for choice in card.choices] == [*remedies, "stop"]
    assert card.choices[0].command == "holdfast resolve x1 a --again"
    assert card.choices[-1].command == "holdfast stop x1"


def test_fields_of_a_form_can_be_typed_into_a_shell_whatever_they_are_called() -> None:
    schema = Raw(b'{"fields":{"a b":{"type":"string"},"c":{"type":"string"}}}')
    card = card_of_request("x1", Request(id="q#3", kind="question", path="q", message="?", schema=schema))
    assert card.choices[0].command == "holdfast answer x1 q 'a b'=… c=…"


def test_path_with_brackets_can_be_typed_into_a_shell() -> None:
    request = Request(id="p[3]#3", kind="approval", path="p[3]", message="ok?", affects=("later",))
    card = card_of_request("x1", request)
    assert card.choices[0].command == "holdfast approve x1 'p[3]'"
    assert card.affects == ("later",)
    assert card.category is None


def test_failed_plan_can_be_corrected_and_a_failed_function_only_run_again() -> None:
    failure = Failure(category="logic", message="3 is odd", affects=("then",))
    names = [choice.name for choice in card_of_failure("x1", failure, "a", "plan").choices]
    assert names == ["retry", "retry_with_plan"]
    assert [choice.name for choice in card_of_failure("x1", failure, "a", "function").choices] == ["retry"]
