"""The order in which steps are shown: as a tree, each under the step that contains it, in the order they began.

Also says which of very many items are shown one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.core.execution import parent_of

TOGETHER_MAX = 20  # of one kind in one place; more are counted
TELLING_MAX = 10  # of those that are counted, so many are shown nevertheless
TELLING = ("failed", "waiting", "in_doubt")


def tree(paths: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Each path with its depth."""
    known = dict.fromkeys(paths)
    children: dict[str | None, list[str]] = {}
    for path in known:
        children.setdefault(_container(path, known) or None, []).append(path)  # a forged step without a name is no root
    waiting = [(0, path) for path in reversed(children.get(None, []))]
    while waiting:
        depth, path = waiting.pop()
        yield depth, path
        waiting.extend((depth + 1, child) for child in reversed(children.get(path, [])))


def _container(path: str, known: dict[str, None]) -> str:
    """The nearest step around this one; a scope that is no step itself does not count."""
    parent = parent_of(path)
    while parent and parent not in known:
        parent = parent_of(parent)
    return parent


def label(path: str, depth: int) -> str:
    """The path without what its place in the tree already says."""
    if not depth:
        return path
    return path[path.rfind("[") :] if path.endswith("]") else path.rpartition("/")[2]


def fold_items(
    rows: list[tuple[int, str]], steps: Mapping[str, Mapping[str, Any]]
) -> list[tuple[int, str | Counter[str]]]:
    """The rows of a tree, with the statuses of very many items counted; items in which something is amiss stay."""
    items: dict[str, Counter[str]] = {}
    for _, path in rows:
        if _is_item(path, steps):
            items.setdefault(parent_of(path), Counter())[steps[path]["status"]] += 1
    telling = {around for path in steps if steps[path]["status"] in TELLING for around in _around(path)}
    folded: list[tuple[int, str | Counter[str]]] = []
    left: dict[str, int] = {}
    hidden_below = -1
    for depth, path in rows:
        if 0 <= hidden_below < depth:
            continue
        hidden_below = -1
        container = parent_of(path)
        if _is_item(path, steps) and items[container].total() > TOGETHER_MAX:
            if container not in left:
                left[container] = TELLING_MAX
                folded.append((depth, items[container]))
            if path not in telling or not left[container]:
                hidden_below = depth
                continue
            left[container] -= 1
        folded.append((depth, path))
    return folded


def _is_item(path: str, steps: Mapping[str, Mapping[str, Any]]) -> bool:
    return path.endswith("]") and steps.get(parent_of(path), {}).get("kind") == "for_each"


def _around(path: str) -> Iterator[str]:
    """The path itself and everything that contains it."""
    while path:
        yield path
        path = parent_of(path)
