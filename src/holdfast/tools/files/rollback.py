"""Undoing changes, newest first: all of them or, if one cannot be, none.

First everything is tried on paper: what each path would be by the time its turn comes must be what the change left
there. Then each is undone for real, and noted as undone after it is; so a rollback that was killed can be repeated.
What somebody changes while it runs is not lost: each is looked at again when its turn comes.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from typing import Literal, NamedTuple

from holdfast.core.errors import Refused
from holdfast.tools.allowed_roots import AllowedRoots
from holdfast.tools.files.atomic_ops import look, move, put_back
from holdfast.tools.files.os_errors import explained
from holdfast.tools.files.safe_path import SafePath
from holdfast.tools.files.undo_store import ABSENT, FileChange, UndoStore

VACATED = "\0"  # before a path from which something would have been moved away by then

Action = Literal["restore", "remove", "move_back", "nothing"]


class Undoing(NamedTuple):
    """One change and how it is undone; `problem` says why it cannot be. If `forced`, what others changed is lost."""

    change: FileChange
    action: Action
    problem: str = ""
    forcible: bool = True
    forced: bool = False


class Rollback:
    """The changes of one execution, or of those of its steps that have one of the keys."""

    def __init__(
        self, before: UndoStore, grounds: AllowedRoots, execution_id: str, keys: Collection[str] | None = None
    ) -> None:
        self._before = before
        self._grounds = grounds
        self._execution_id = execution_id
        self._all = before.changes(execution_id)
        self._wanted = [change for change in self._all if keys is None or change.key in keys]
        undone = before.undone(execution_id)
        self.was_undone = bool(undone if keys is None else undone & set(keys))  # some of it, before
        self._undone: set[str] = set()  # by this rollback

    def undone_keys(self) -> frozenset[str]:
        """The keys of the calls of which something is undone by now, by whichever rollback."""
        return self._before.undone(self._execution_id)

    def plan(self) -> list[Undoing]:
        """What is to be done, newest first; nothing is changed."""
        paper = _Paper(self._grounds)
        return [self._planned(change, paper) for change in reversed(self._wanted)]

    def checked(self, *, force: bool = False) -> list[Undoing]:
        """The plan, or `Refused` with every reason not to. With `force`, what others changed since will be lost."""
        planned = self.plan()
        problems = [undoing.problem for undoing in planned if undoing.problem]
        if problems and not force:
            raise Refused("\n".join(["nothing was undone:", *(f"  {problem}" for problem in problems)]))
        return [undoing._replace(forced=force) for undoing in planned]

    def undo(self, undoing: Undoing) -> None:
        """Make one path what it was. In the order of the plan."""
        if undoing.problem and not undoing.forcible:
            return
        with explained(undoing.change.path):
            self._undo(undoing)
        self._before.settle(self._execution_id, undoing.change, "undone")
        self._undone.add(undoing.change.id)

    def apply(self) -> None:
        for undoing in self.checked():
            self.undo(undoing)

    # ---- on paper

    def _planned(self, change: FileChange, paper: _Paper) -> Undoing:
        if change.to:
            return self._planned_move(change, paper)
        now = paper.mark(change.path)
        action: Action = "remove" if change.before.mark == ABSENT else "restore"
        if change.before.is_at(now):
            return Undoing(change, "nothing")
        problem = "" if change.after.is_at(now) else self._changed_since(change, change.path)
        paper.put(change.path, change.before.mark)
        if change.before.digest and not self._has_image(change):
            return Undoing(change, action, _pruned(change), forcible=False)
        return Undoing(change, action, problem)

    def _planned_move(self, change: FileChange, paper: _Paper) -> Undoing:
        here, there = paper.mark(change.path), paper.mark(change.to)
        if change.before.is_at(here):
            return Undoing(change, "nothing")
        if change.before.is_at(there) and here == ABSENT:
            paper.move(change.to, change.path)
            return Undoing(change, "move_back")
        return Undoing(change, "move_back", self._moved_since(change, here), forcible=False)

    def _moved_since(self, change: FileChange, here: str) -> str:
        return self._changed_since(change, change.to if here == ABSENT else change.path)

    def _changed_since(self, change: FileChange, path: str) -> str:
        later = [other for other in self._all[self._all.index(change) + 1 :] if other.id not in self._undone]
        by = next((other.step for other in reversed(later) if path in (other.path, other.to)), "")
        if by and by != change.step:
            return f"{path} was changed since {change.step} by the step {by}; undo that first"
        return f"{path} was changed since {change.step} by somebody else; put it aside, or use --force to lose that"

    def _has_image(self, change: FileChange) -> bool:
        image = self._before.open_image(self._execution_id, change.before.digest)
        if image is not None:
            os.close(image)
        return image is not None

    # ---- for real

    def _undo(self, undoing: Undoing) -> None:
        change = undoing.change
        if undoing.action == "move_back":
            self._move_back(undoing)
        elif undoing.action != "nothing":
            image = self._before.open_image(self._execution_id, change.before.digest) if change.before.digest else None
            if change.before.digest and image is None:
                raise _stopped(change, _pruned(change))
            try:
                self._put_back(undoing, image)
            finally:
                if image is not None:
                    os.close(image)
        for folder in reversed(change.made):
            with suppress(OSError), self._spot(folder) as spot:
                os.rmdir(spot.name, dir_fd=spot.folder)  # unless somebody uses it by now

    def _move_back(self, undoing: Undoing) -> None:
        change = undoing.change
        with self._spot(change.to) as source, self._spot(change.path) as target:
            here, there = look(target)[0].mark, look(source)[0].mark
            if not undoing.forced and not (here == ABSENT and change.before.is_at(there)):
                raise _stopped(change, self._moved_since(change, here))
            with target.folders_made():
                move(source, target)

    def _put_back(self, undoing: Undoing, image: int | None) -> None:
        change = undoing.change
        with self._spot(change.path) as spot:
            now, found = look(spot)
            if not undoing.forced and not (change.after.is_at(now.mark) or change.before.is_at(now.mark)):
                raise _stopped(change, self._changed_since(change, change.path))
            with spot.folders_made():
                put_back(spot, change.before, image, found, change.key)

    def _spot(self, path: str) -> SafePath:
        return SafePath(self._grounds, path, follow=False, changing=True)


def _pruned(change: FileChange) -> str:
    return f"{change.path}: what it was before {change.step} was pruned to make room; --force undoes the rest"


def _stopped(change: FileChange, problem: str) -> Refused:
    return Refused(
        f"the rollback stopped at {change.step}; what was undone before stays so, and another rollback undoes the "
        f"rest:\n  {problem}"
    )


class _Paper:
    """The disk as it would be after what has been undone on paper."""

    def __init__(self, grounds: AllowedRoots) -> None:
        self._grounds = grounds
        self._marks: dict[str, str] = {}
        self._moved: list[tuple[str, str]] = []  # (where it really is, where it would be)

    def mark(self, path: str) -> str:
        real = self._real(path)
        if real not in self._marks and real.startswith(VACATED):
            return ABSENT
        if real not in self._marks:
            with explained(path), SafePath(self._grounds, real, follow=False, changing=True) as spot:
                self._marks[real] = look(spot)[0].mark
        return self._marks[real]

    def put(self, path: str, mark: str) -> None:
        self._marks[self._real(path)] = mark

    def move(self, source: str, target: str) -> None:
        self._moved.append((self._real(source), target))

    def _real(self, path: str) -> str:
        """Where on the disk to look for what would be at `path`."""
        for really, would_be in reversed(self._moved):
            if _is_within(path, would_be):
                path = really + path[len(would_be) :]
            elif _is_within(path, really):
                return VACATED + path
        return path


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
