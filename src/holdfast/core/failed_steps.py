"""Which steps failed in an execution that went on without them, for every place that tells of it.

A failure that is lived with must stay visible: in the last line of a run, in lists, in notices, and to whoever approves
what follows. All of them count here. A step counts where it stands: among the steps of the plan, of a group, or among
the items of a `for_each`; one inside of a group that failed is told by that.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.core.execution import Execution, Step, parent_of

NAMED_MAX = 5  # of the failed ones, by their paths


class Place(msgspec.Struct, kw_only=True):
    """`path` is the group or the `for_each` that holds these steps, "" the plan itself."""

    path: str
    is_list: bool = False
    total: int = 0
    completed: int = 0
    failed: list[str] = []

    @property
    def name(self) -> str:
        """What its steps are called: `steps`, `pages`, `steps of group`."""
        if self.is_list:
            return self.path
        return f"steps of {self.path}" if self.path else "steps"


def places_with_failures(state: Execution) -> list[Place]:
    """The plan first, then groups and lists in the order in which they began."""
    if not any(step.status == "failed" for step in state.steps.values()):
        return []
    places = {"": Place(path="", total=state.total)}
    found: dict[str, int] = {}
    for path, step in state.steps.items():
        if step.kind in ("for_each", "plan"):
            places.setdefault(path, Place(path=path, is_list=step.kind == "for_each", total=step.total))
        if step.tool == step.kind == "code":
            continue  # a time or a random number that a function asked for
        place = places[_place_of(path, state.steps)]
        found[place.path] = found.get(place.path, 0) + 1
        if step.status == "completed":
            place.completed += 1
        elif step.status == "failed":
            place.failed.append(path)
    for place in places.values():
        place.total = max(place.total, found.get(place.path, 0))
    return [place for place in places.values() if place.failed and not _has_failed(place.path, state.steps)]


def _place_of(path: str, steps: dict[str, Step]) -> str:
    """The nearest group or list around a step; the branches of a function are none."""
    around = parent_of(path)
    while around and (around not in steps or steps[around].kind not in ("for_each", "plan")):
        around = parent_of(around)
    return around


def _has_failed(path: str, steps: dict[str, Step]) -> bool:
    return bool(path) and steps[path].status == "failed"


def failures_in_words(state: Execution) -> str:
    """In one line: `2 of 4 steps failed, 1 of 200 pages failed`; "" if none did."""
    return ", ".join(
        f"{len(place.failed)} of {place.total} {place.name} failed" for place in places_with_failures(state)
    )


def failures_by_name(state: Execution) -> tuple[str, ...]:
    """A line for each place: `199 of 200 pages, 1 failed: pages[16]`."""
    return tuple(
        f"{place.completed} of {place.total} {place.name}, {len(place.failed)} failed: {_named(place.failed)}"
        for place in places_with_failures(state)
    )


def _named(paths: list[str]) -> str:
    more = len(paths) - NAMED_MAX
    return ", ".join(paths[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def with_failures_inside(failed: Iterable[str]) -> frozenset[str]:
    """Every path that has one of these steps inside of it: none of them came through whole."""
    found: set[str] = set()
    for path in failed:
        around = parent_of(path)
        while around and around not in found:
            found.add(around)
            around = parent_of(around)
    return frozenset(found)
