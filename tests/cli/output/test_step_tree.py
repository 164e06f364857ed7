"""Steps as a tree, also those of a journal that somebody has forged."""

from __future__ import annotations

from holdfast.cli.output.step_tree import tree


def test_each_step_stands_once_below_the_nearest_step_around_it() -> None:
    assert list(tree(["a", "b", "b[0]", "b[0]/x", "c/d/e"])) == [
        (0, "a"), (0, "b"), (1, "b[0]"), (2, "b[0]/x"), (0, "c/d/e"),
    ]  # fmt: skip


def test_paths_that_no_plan_has_are_shown_once_as_well() -> None:
    assert list(tree(["", "/a", "]", "x]", "x]/y"])) == [(0, ""), (0, "/a"), (0, "]"), (0, "x]"), (1, "x]/y")]
