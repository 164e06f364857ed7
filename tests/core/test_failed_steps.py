"""Which steps failed, counted where they stand."""

from __future__ import annotations

from typing import Any

from holdfast.core.execution import Execution, Step
from holdfast.core.failed_steps import failures_by_name, failures_in_words, with_failures_inside


def state_of(total: int, *steps: tuple[str, str, str]) -> Execution:
    state = Execution(id="x", total=total)
    for path, kind, status in steps:
        given: Any = {"kind": kind, "status": status}
        state.steps[path] = Step(path=path, tool="t", **given)
    return state


def test_nothing_is_said_when_nothing_failed() -> None:
    state = state_of(2, ("a", "tool", "completed"), ("b", "tool", "skipped"))
    assert (failures_in_words(state), failures_by_name(state)) == ("", ())


def test_items_are_counted_in_their_list_and_named() -> None:
    items = [(f"pages[{n}]", "tool", "failed" if n == 16 else "completed") for n in range(200)]
    state = state_of(2, ("pages", "for_each", "completed"), *items)
    assert failures_in_words(state) == "1 of 200 pages failed"
    assert failures_by_name(state) == ("199 of 200 pages, 1 failed: pages[16]",)


def test_only_a_few_are_named() -> None:
    state = state_of(9, *((f"s{n}", "tool", "failed") for n in range(8)))
    assert failures_by_name(state) == ("0 of 9 steps, 8 failed: s0, s1, s2, s3, s4 and 3 more",)


def test_what_failed_inside_of_a_failed_group_is_told_by_the_group() -> None:
    state = state_of(2, ("g", "plan", "failed"), ("g/a", "tool", "failed"), ("g/b", "tool", "failed"))
    assert failures_in_words(state) == "1 of 2 steps failed"


def test_branches_of_a_function_are_no_groups() -> None:
    state = state_of(0, ("gather[0]/a", "tool", "failed"), ("gather[1]/a", "tool", "completed"))
    assert failures_in_words(state) == "1 of 2 steps failed"


def test_everything_around_a_failure_has_it_inside() -> None:
    assert with_failures_inside(["g/pages[3]/a"]) == {"g/pages[3]", "g/pages", "g"}
