"""The arithmetic of money: amounts, room, what is settled and what is unknown, and who is served when a limit rises."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.histories import LONG, PAID, fold, opened, running, step
from holdfast.core import events as ev
from holdfast.core.budget import Budget, Spend, in_usd, read_budget, read_usd, say_usd
from holdfast.core.commands import Command, Ruling, encode_arguments, rule
from holdfast.core.errors import InputInvalid
from holdfast.core.execution import Execution


def limited(micros: int, *events: ev.Event) -> Execution:
    created = ev.TaskCreated(at=1, program=ev.Program(kind="plan", name="x"), budget=Budget(limit_micros=micros))
    return fold([created, ev.TaskStarted(at=2, because="created"), *events])


def ask(state: Execution, **arguments: Any) -> Ruling:
    encoded = encode_arguments(**arguments)
    return rule(state, Command(id="c", execution_id="e1", verb="budget", at=9, by="ann", arguments=encoded), 9)


# ---- amounts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "micros"),
    [(0.1 + 0.2, 300_000), (1, 1_000_000), ("0.013", 13_000), (Decimal("0.0000015"), 2), (1_000_000, 10**12)],
)
def test_dollars_become_whole_micro_dollars(given: Any, micros: int) -> None:
    assert read_usd(given) == micros


@pytest.mark.parametrize(
    "given",
    [
        0,
        -1,
        1e-7,
        1_000_000.01,
        "1e999999",
        "NaN",
        "inf",
        "",
        "ten",
        None,
        True,
        [1],
        pytest.param(10**5000, id="huge"),
    ],
)
def test_what_is_no_amount_is_refused(given: Any) -> None:
    with pytest.raises(InputInvalid, match="expected an amount in US dollars, more than 0 and at most 1,000,000"):
        read_usd(given)


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"usd": 1, "eur": 2}, 'unknown key "eur"; known are: usd, warn_at'),
        ({}, "expected an amount in US dollars, more than 0 and at most 1,000,000, such as 0.50, got null"),
        ({"usd": 1, "warn_at": 0}, "warn_at: expected a share of the limit, more than 0 and at most 1, such as 0.8"),
    ],
)
def test_what_is_no_budget_is_refused(given: Any, wrong: str) -> None:
    with pytest.raises(InputInvalid, match=wrong):
        read_budget(given)


def test_a_budget_is_read_from_an_amount_or_a_map() -> None:
    assert read_budget("0.5") == Budget(limit_micros=500_000)
    assert read_budget({"usd": 2, "warn_at": 0.5}) == Budget(limit_micros=2_000_000, warn_at=0.5)


@given(st.integers(0, 10**12))
def test_amounts_come_back_as_they_were(micros: int) -> None:
    assert read_usd(in_usd(micros), least=0) == micros
    assert read_usd(say_usd(micros).removeprefix("$").replace(",", ""), least=0) == micros


def test_people_see_at_least_cents() -> None:
    assert [say_usd(n) for n in (0, 500_000, 13_000, 1, 1_234_000_000, -20_000)] == [
        "$0.00", "$0.50", "$0.013", "$0.000001", "$1,234.00", "-$0.02",
    ]  # fmt: skip


# ---- room and settling -----------------------------------------------------------------------------------------


def test_room_is_what_is_neither_settled_nor_reserved() -> None:
    spend = Spend(limit_micros=100)
    spend.reserve("a", 60)
    assert (spend.room(), spend.has_room(40), spend.has_room(41)) == (40, True, False)
    spend.settle("a", 10)
    assert (spend.room(), spend.settled_micros, spend.amounts, spend.unknown) == (90, 10, 1, 0)
    assert Spend().room() is None
    assert Spend().has_room(10**12)


def test_a_reservation_that_nobody_settles_counts_whole_and_as_unknown() -> None:
    spend = Spend()
    spend.reserve("a", 60)
    spend.settle("a", None)
    spend.settle("a", None)
    assert (spend.settled_micros, spend.amounts, spend.unknown, spend.reserved) == (60, 1, 1, {})


def test_whoever_asked_first_is_served_first_and_nobody_is_passed() -> None:
    spend = Spend(limit_micros=10, settled_micros=10, wanted={"a": 5, "b": 50, "c": 1})
    assert spend.affordable(14) == []
    assert spend.affordable(16) == ["a"]
    assert spend.affordable(66) == ["a", "b", "c"]


def test_a_limit_is_worth_one_warning_and_another_limit_another_one() -> None:
    spend = Spend(limit_micros=100, warn_at=0.8, settled_micros=80)
    assert not spend.is_warning_due()
    spend.count(1)
    assert spend.is_warning_due()
    spend.warned = True
    assert not spend.is_warning_due()
    spend.change_limit(101)
    assert not spend.is_warning_due(), "it is still past the share"
    spend.change_limit(1000)
    spend.count(800)
    assert spend.is_warning_due()


# ---- the fold --------------------------------------------------------------------------------------------------


def test_a_history_with_money_folds_to_what_was_spent() -> None:
    spend = fold([*LONG, *PAID]).spend
    # known: ask 0.13, sing 0 and 0.05, kin 0.07 with one estimate in it; unknown: draw in doubt, sing lost
    assert (spend.settled_micros, spend.amounts, spend.unknown) == (650_000, 6, 3)
    assert (spend.limit_micros, spend.reserved, spend.wanted) == (1_000_000, {"last": 200_000}, {})
    assert spend.is_warning_due(), "the limit was raised after the first warning, and its share is passed again"


def test_an_end_settles_what_is_still_out_there() -> None:
    spend = limited(100, step("a", reserved_micros=30), ev.TaskStopped(at=9)).spend
    assert (spend.settled_micros, spend.unknown, spend.reserved) == (30, 1, {})


def test_a_skipped_step_does_not_keep_its_reservation() -> None:
    spend = limited(100, step("a", reserved_micros=30), ev.StepSkipped(at=9, path="a", reason="no")).spend
    assert (spend.settled_micros, spend.unknown, spend.reserved) == (30, 1, {})


def test_a_child_that_told_no_cost_leaves_what_was_spent_unknown() -> None:
    started = ev.ChildStarted(at=5, path="a", child_id="c1", reserved_micros=100)
    ended = ev.ChildEnded(at=6, path="a", child_id="c1", status="completed")
    spend = limited(100, step("a", kind="child"), started, ended).spend
    assert (spend.settled_micros, spend.amounts, spend.reserved, spend.room()) == (0, 0, {}, 100)


# ---- the command -----------------------------------------------------------------------------------------------


def asking(limit: int = 100) -> Execution:
    exhausted = [
        event
        for path, needed in (("a", 30), ("b", 50))
        for event in (
            ev.BudgetExhausted(at=5, path=path, needed_micros=needed, room_micros=0, limit_micros=limit),
            ev.StepWaiting(at=5, path=path, reason="budget"),
            opened("budget", path, f"r-{path}", "skip", "fail"),
        )
    ]
    paid = (step("p", reserved_micros=limit), ev.StepCompleted(at=5, path="p", spent_micros=limit))
    return limited(limit, *paid, *exhausted)


def test_raising_the_limit_answers_those_who_now_have_room() -> None:
    ruling = ask(asking(), add_micros=40)
    assert (ruling.outcome, ruling.text) == ("applied", "the limit is $0.00014 now")
    raised, *answers = ruling.events
    assert raised == ev.BudgetRaised(at=9, limit_micros=140, by="ann")
    assert answers == [ev.RequestAnswered(at=9, request_id="r-a", remedy="raised", by="ann")]
    assert len(ask(asking(), limit_micros=180).events) == 3


def test_a_limit_below_what_is_spent_or_reserved_is_refused() -> None:
    state = limited(1_000_000, step("a", reserved_micros=200_000))
    state.spend.count(300_000)
    text = "the limit cannot be $0.40: $0.30 are spent, and $0.20 are reserved for what runs"
    assert ask(state, limit_micros=400_000) == Ruling(outcome="refused", text=text)
    assert ask(state, limit_micros=500_000).outcome == "applied"
    alone = limited(1_000_000)
    alone.spend.count(300_000)
    assert ask(alone, limit_micros=200_000).text == "the limit cannot be $0.20: $0.30 are spent"


def test_the_same_limit_again_changes_nothing() -> None:
    assert ask(limited(500_000), limit_micros=500_000).text == "the limit is $0.50 already"
    assert ask(limited(500_000), limit_micros=500_000).outcome == "unchanged"


def test_an_execution_without_a_limit_gets_one_and_cannot_be_given_more() -> None:
    assert ask(running(), add_micros=5).text == "it has no limit that could be raised; set one with --limit"
    assert ask(running(), limit_micros=5).outcome == "applied"


def test_what_a_child_needs_more_is_added_to_limit_and_share() -> None:
    state = limited(100, step("a", kind="child"), ev.ChildStarted(at=5, path="a", child_id="c1", reserved_micros=70))
    ruling = ask(state, step="a", limit_micros=90)
    assert ruling.events == (ev.BudgetRaised(at=9, limit_micros=120, by="ann", path="a"),)
    spend = fold(ruling.events, state).spend
    assert (spend.limit_micros, spend.reserved) == (120, {"a": 90})
    assert ask(state, step="a", limit_micros=90).outcome == "unchanged"
    assert ask(state, step="elsewhere", limit_micros=90).outcome == "unchanged"


@pytest.mark.parametrize("remedy", ["skip", "fail"])
def test_a_person_may_do_without_the_step(remedy: str) -> None:
    arguments = encode_arguments(step="b", remedy=remedy)
    ruling = rule(asking(), Command(id="c", execution_id="e1", verb="resolve", at=9, arguments=arguments), 9)
    assert ruling.text == f"resolved b: {remedy}"
