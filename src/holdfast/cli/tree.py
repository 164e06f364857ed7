"""The order in which steps are shown: as a tree, each under the step that contains it, in the order they began."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.core.execution import parent_of


def tree(paths: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Each path with its depth."""
    known = dict.fromkeys(paths)
    children: dict[str, list[str]] = {}
    for path in known:
        children.setdefault(_container(path, known), []).append(path)
    waiting = [(0, path) for path in reversed(children.get("", []))]
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
    return path[path.rindex("[") :] if path.endswith("]") else path.rpartition("/")[2]
