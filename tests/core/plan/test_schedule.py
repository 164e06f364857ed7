"""Which steps are ready, which are left out, and why."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.plan.model import PlanStep
from holdfast.core.plan.schedule import Outcome, Schedule


def step(name: str, *needs: str, optional: bool = False, critical: bool = True) -> PlanStep:
    return PlanStep(id=name, kind="tool", needs=needs, optional=optional, critical=critical)


def taken(schedule: Schedule) -> list[str]:
    return [ready.id for ready in schedule.take_ready()]


def skipped(schedule: Schedule) -> list[tuple[str, str]]:
    return [(left_out.id, why.reason) for left_out, why in schedule.skips()]


def test_a_chain_is_handed_out_one_by_one():
    schedule = Schedule([step("a"), step("b", "a")])
    assert taken(schedule) == ["a"]
    assert taken(schedule) == []
    schedule.settle("a", "completed")
    assert taken(schedule) == ["b"]
    assert not schedule.done
    schedule.settle("b", "completed")
    assert schedule.done


def test_a_join_waits_for_all_and_ready_steps_come_in_the_order_of_the_plan():
    schedule = Schedule([step("d", "b", "c"), step("c", "a"), step("b", "a"), step("a")])
    assert taken(schedule) == ["a"]
    schedule.settle("a", "completed")
    assert taken(schedule) == ["c", "b"]
    schedule.settle("b", "completed")
    assert taken(schedule) == []
    schedule.settle("c", "completed")
    assert taken(schedule) == ["d"]


def test_a_failure_is_lived_with_by_steps_that_are_not_optional():
    schedule = Schedule([step("a", critical=False), step("b", "a")])
    taken(schedule)
    schedule.settle("a", "failed")
    assert taken(schedule) == ["b"]
    assert skipped(schedule) == []


def test_optional_steps_are_left_out_one_after_the_other_each_with_its_reason():
    schedule = Schedule([step("a"), step("b", "a", optional=True), step("c", "b", optional=True), step("d", "c")])
    taken(schedule)
    schedule.settle("a", "failed")
    assert skipped(schedule) == [("b", 'needs "a", which failed'), ("c", 'needs "b", which was skipped')]
    assert skipped(schedule) == []
    assert taken(schedule) == ["d"]


def test_an_optional_step_is_left_out_at_once_and_not_when_the_rest_has_ended():
    schedule = Schedule([step("a"), step("slow"), step("b", "a", "slow", optional=True)])
    taken(schedule)
    schedule.settle("a", "failed")
    assert skipped(schedule) == [("b", 'needs "a", which failed')]
    schedule.settle("slow", "failed")
    assert skipped(schedule) == []
    assert schedule.done


def test_a_missing_tool_counts_as_a_loss_but_a_condition_does_not():
    schedule = Schedule([step("a"), step("b"), step("c", "a", optional=True), step("d", "b", optional=True)])
    taken(schedule)
    schedule.settle("a", "unavailable")
    schedule.settle("b", "skipped")
    assert skipped(schedule) == [("c", 'needs "a", whose tool could not be used')]
    assert taken(schedule) == ["d"]


def test_a_critical_failure_abandons_all_that_was_not_handed_out():
    schedule = Schedule([step("a"), step("b"), step("c", "a"), step("d", "c")])
    taken(schedule)
    schedule.settle("a", "failed")
    assert [(one.id, why.reason) for one, why in schedule.abandon("a", lambda _: False)] == [
        ("c", '"a" failed'),
        ("d", '"a" failed'),
    ]
    assert taken(schedule) == []
    assert not schedule.done
    schedule.settle("b", "completed")
    assert schedule.done


def test_a_critical_failure_does_not_abandon_what_had_begun():
    """After a restart, what had begun comes back to its turn, with all that it needed."""
    schedule = Schedule([step("a"), step("b"), step("c", "b"), step("d", "c"), step("e", "d")])
    taken(schedule)
    schedule.settle("a", "failed")
    begun = {"b", "c", "d"}
    assert [one.id for one, _ in schedule.abandon("a", begun.__contains__)] == ["e"]
    schedule.settle("b", "completed")
    assert taken(schedule) == ["c"]


def test_what_had_begun_is_abandoned_if_it_can_never_come_to_its_turn():
    schedule = Schedule([step("a"), step("b", "a"), step("c", "b"), step("d", "c")])
    taken(schedule)
    schedule.settle("a", "failed")
    assert [one.id for one, _ in schedule.abandon("a", {"c", "d"}.__contains__)] == ["b", "c", "d"]


def test_what_a_failure_would_affect_is_known_beforehand():
    steps = [step("a", critical=False), step("b", "a", optional=True), step("c", "b", optional=True), step("d", "a")]
    schedule = Schedule([*steps, step("e", "d")])
    taken(schedule)
    assert schedule.affected_by("a") == ("b", "c")
    schedule.settle("a", "completed")
    taken(schedule)
    assert schedule.affected_by("d") == ("c", "e")
    assert not schedule.done


def test_added_steps_may_need_steps_that_ended_long_ago():
    schedule = Schedule([step("a"), step("b")])
    taken(schedule)
    schedule.settle("a", "completed")
    schedule.settle("b", "failed")
    assert schedule.done
    schedule.add([step("c", "a"), step("e", "d"), step("d", "b", optional=True), step("f", "d", optional=True)])
    assert taken(schedule) == ["c", "e"]
    assert skipped(schedule) == [("d", 'needs "b", which failed'), ("f", 'needs "d", which was skipped')]
    assert (schedule.ended, schedule.total) == (4, 6)


def test_a_step_settled_without_being_handed_out_is_not_handed_out_later():
    schedule = Schedule([step("a"), step("b", "a")])
    schedule.settle("a", "completed")
    assert taken(schedule) == ["b"]


def test_a_step_ends_once():
    schedule = Schedule([step("a")])
    schedule.settle("a", "completed")
    with pytest.raises(ValueError, match=r"step a has ended already \(completed\)"):
        schedule.settle("a", "failed")


@given(st.data())
def test_every_step_is_handed_out_or_left_out_exactly_once_and_after_its_needs(data: st.DataObject):
    count = data.draw(st.integers(1, 12))
    steps = [
        step(
            f"s{n}",
            *data.draw(st.sets(st.sampled_from([f"s{m}" for m in range(n)]))),
            optional=data.draw(st.booleans()),
        )
        if n
        else step("s0")
        for n in range(count)
    ]
    schedule, seen, ended = Schedule(steps), list[str](), set[str]()
    running: list[PlanStep] = []
    while not schedule.done:
        ready = schedule.take_ready()
        assert all(ended.issuperset(one.needs) for one in ready)
        running += ready
        seen += [one.id for one in ready]
        chosen = running.pop(data.draw(st.integers(0, len(running) - 1)))
        outcomes: list[Outcome] = ["completed", "failed", "skipped", "unavailable"]
        schedule.settle(chosen.id, data.draw(st.sampled_from(outcomes)))
        left_out = [one.id for one, _ in schedule.skips()]
        seen += left_out
        ended |= {chosen.id, *left_out}
    assert sorted(seen) == sorted(one.id for one in steps)


def test_a_long_plan_costs_in_proportion():
    def cost(length: int) -> float:
        schedule = Schedule([step(f"s{n}", *([f"s{n - 1}"] if n else [])) for n in range(length)])
        begun = time.process_time()
        while not schedule.done:
            for ready in schedule.take_ready():
                schedule.settle(ready.id, "completed")
        return time.process_time() - begun

    assert cost(8000) < 40 * max(cost(1000), 0.005)
