"""The `files.*` tools that change something, and how each knows afterwards whether it did.

One story for all of them: look at what is there and keep its image, write down what is about to change, change it, and
strike it out again if it was not made after all. `write` may simply run again; `edit`, `move` and `delete` may not, and
tell from what was written down whether they happened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta

from holdfast.core.errors import InvalidCall, Misconfigured
from holdfast.tools.allowed_roots import AllowedRoots, checked_path
from holdfast.tools.call import Call, DidNotHappen, Happened, Unknown, Verdict
from holdfast.tools.files import atomic_ops
from holdfast.tools.files.os_errors import FULL, NotSynced, explained
from holdfast.tools.files.pyproject_guard import check_replacing, check_taking
from holdfast.tools.files.safe_path import SafePath
from holdfast.tools.files.text import encoded, named, read_bytes, read_text
from holdfast.tools.files.undo_store import (
    ABSENT,
    ANY_FOLDER,
    DiskFull,
    FileChange,
    State,
    UndoStore,
    digest_of,
    new_change,
)

Count = Annotated[int, Meta(ge=1)]


class Written(TypedDict):
    path: str
    bytes: int
    digest: str


class Edited(TypedDict):
    path: str
    bytes: int
    digest: str
    replaced: int


class Moved(TypedDict):
    path: str
    to: str


class Deleted(TypedDict):
    path: str


class Changer:
    """`grounds` says where a call may work."""

    def __init__(self, grounds: Callable[[Call], AllowedRoots], before: UndoStore, bytes_max: int) -> None:
        self._grounds = grounds
        self._before = before
        self._bytes_max = bytes_max

    def write(self, path: str, text: str, call: Call) -> Written:
        """Write a text file, creating its folders."""
        data = encoded(text, "text", self._bytes_max)
        with explained(named(call, path)), self._spot(call, path) as spot:
            output: Written = {"path": spot.path, "bytes": len(data), "digest": sha256(data).hexdigest()}
            self._replace(call, spot, data, "files.write", output)
        return output

    def edit(
        self, path: str, old: str, new: str, call: Call, count: Count | Literal["all"] = 1, expect: str = ""
    ) -> Edited:
        """Replace an exact text in a file: once, so many times as there must be, or "all"."""
        if not old or old == new:
            raise InvalidCall(f"old: expected a text to replace, got {'nothing' if not old else 'the same as new'}")
        with explained(named(call, path)), self._spot(call, path) as spot:
            content = read_bytes(spot, self._bytes_max)
            if expect and sha256(content).hexdigest() != expect:
                raise InvalidCall(
                    f"{spot.path} is not what was expected: its SHA-256 is {sha256(content).hexdigest()}; "
                    "somebody changed it, so read it again"
                )
            text = read_text(content, spot.path)
            found = text.count(old)
            _check_count(spot.path, found, count)
            data = encoded(text.replace(old, new), "new", self._bytes_max)
            digest = sha256(data).hexdigest()
            output: Edited = {"path": spot.path, "bytes": len(data), "digest": digest, "replaced": found}
            self._replace(call, spot, data, "files.edit", output, expected=sha256(content).hexdigest())
        return output

    def _replace(self, call: Call, spot: SafePath, data: bytes, name: str, output: Any, expected: str = "") -> None:
        after = State(f"file:{sha256(data).hexdigest()}")
        before, found = atomic_ops.look(spot, self._keeping(call, spot, unless=after.digest))
        if found is not None:
            spot.check_regular(found)
        if expected and before.digest != expected:
            spot.raise_changed()
        if before.mark == after.mark:
            _sync_file(spot)
            return
        check_replacing(spot, found, data, self._bytes_max)
        atomic_ops.check_may_change(spot, found, len(data), self._before.free_bytes_min)
        change = new_change(call, name, spot.path, before, after, made=_made(spot), output=output)

        def act() -> None:
            with spot.folders_made():
                atomic_ops.replace(spot, data, found, call.key, before)

        self._change(call, change, act)

    def move(self, path: str, to: str, call: Call) -> Moved:
        """Move or rename a file, link or folder; never over something that is there."""
        with explained(named(call, path)), self._spot(call, path, follow=False) as source:
            before, found = self._found(source)
            if stat.S_ISDIR(found.st_mode):
                source.grounds.check_movable(found, source.path)
            atomic_ops.check_may_change(source, None, 0, self._before.free_bytes_min)
            with explained(named(call, to)), self._spot(call, to, follow=False, argument="to") as target:
                check_taking(source, found, self._bytes_max, target.path)
                return self._move(call, source, target, before)

    def _move(self, call: Call, source: SafePath, target: SafePath, before: State) -> Moved:
        if target.stat() is not None:
            raise InvalidCall(f"to: {target.path} is there already; delete it first, or choose another name")
        atomic_ops.check_may_change(target, None, 0, self._before.free_bytes_min)
        output: Moved = {"path": source.path, "to": target.path}
        change = new_change(
            call, "files.move", source.path, before, State(), to=target.path, made=_made(target), output=output
        )

        def act() -> None:
            with target.folders_made():
                atomic_ops.move(source, target)

        self._change(call, change, act)
        return output

    def _found(self, spot: SafePath, keep: atomic_ops.Keep = digest_of) -> tuple[State, os.stat_result]:
        if spot.name == "." or spot.grounds.names(spot.path):
            raise InvalidCall(f"path: {spot.path} is an allowed folder itself, or ends in ..; name what is in it")
        before, found = atomic_ops.look(spot, keep)
        if found is None:
            raise Misconfigured(f"no file at {spot.path}; correct the path")
        return before, found

    def delete(self, path: str, call: Call) -> Deleted:
        """Delete a file, a link or an empty folder."""
        with explained(named(call, path)), self._spot(call, path, follow=False) as spot:
            before, found, image = self._kept_or_movable(call, spot)
            check_taking(spot, found, self._bytes_max)
            if stat.S_ISDIR(found.st_mode):
                before = State(ANY_FOLDER, before.mode)
            atomic_ops.check_may_change(spot, None, 0, 0)  # it makes room, and is what a full disk needs
            output: Deleted = {"path": spot.path}
            change = new_change(call, "files.delete", spot.path, before, State(), output=output)
            if self._is_recorded(call, change):
                remove = partial(atomic_ops.remove_into, image=image) if image is not None else atomic_ops.remove
                self._act(call, change, lambda: remove(spot, found))
            else:
                atomic_ops.remove(spot, found)
        return output

    def _kept_or_movable(self, call: Call, spot: SafePath) -> tuple[State, os.stat_result, Path | None]:
        """With its image kept or, on a full disk, with the place where the file goes as its own image."""
        try:
            return *self._found(spot, self._keeping(call, spot)), None
        except (DiskFull, OSError) as error:
            if isinstance(error, OSError) and error.errno not in FULL:
                raise
            before, found = self._found(spot)
            try:
                image = self._before.image_of_deleted(call.execution_id, found, before.digest)
            except OSError:
                return before, found, None  # not even for a folder is there room, nor for a record
            if image is None:
                raise
            return before, found, image

    def _is_recorded(self, call: Call, change: FileChange) -> bool:
        """Whether there is room for the record of a deletion; without one it is made for good."""
        try:
            self._before.record(call.execution_id, change)
        except OSError as error:
            if error.errno not in FULL:
                raise
            call.hear("warning", f"{change.path} is deleted for good: the disk has no room to keep what undoes it\n")
            return False
        return True

    def _change(self, call: Call, change: FileChange, act: Callable[[], None]) -> None:
        """The change is on record before it is made, and struck out if it was not made after all."""
        self._before.record(call.execution_id, change)
        self._act(call, change, act)

    def _act(self, call: Call, change: FileChange, act: Callable[[], None]) -> None:
        try:
            act()
        except NotSynced:
            raise
        except BaseException:
            with suppress(OSError):  # then it stays on record, and what is there now tells that it was not made
                self._before.settle(call.execution_id, change, "dropped")
            raise

    def _spot(self, call: Call, path: str, *, follow: bool = True, argument: str = "path") -> SafePath:
        return SafePath(self._grounds(call), checked_path(path, argument), follow=follow, changing=True)

    def _keeping(self, call: Call, spot: SafePath, unless: str = "") -> atomic_ops.Keep:
        """Keeps an image of what is about to change; what is as it should be will not."""

        def keep(opened: int) -> str:
            if unless and digest_of(opened) == unless:
                return unless
            return self._before.keep(call.execution_id, opened, spot.path)

        return keep

    # ---- hooks

    def happened(self, call: Call, arguments: dict[str, Any]) -> Verdict:
        """Whether a change happened, by what was written down before it and what is there now."""
        if not self._before.keeps:
            return Unknown()
        recorded = self._before.changes(call.execution_id, call.key)
        if not recorded:
            return DidNotHappen()  # whatever happens is on record first
        change = recorded[-1]
        with explained(change.path):
            here = self._mark(call, change.path)
            there = self._mark(call, change.to) if change.to else ""
        if change.before.is_at(here):
            return DidNotHappen()
        happened = change.after.is_at(here) and (not change.to or change.before.is_at(there))
        return Happened(change.output) if happened else Unknown()

    def deleted(self, call: Call, arguments: dict[str, Any]) -> Verdict:
        """The same of a deletion, which goes without a record when the disk is full."""
        verdict = self.happened(call, arguments)
        if not isinstance(verdict, DidNotHappen) or self._before.changes(call.execution_id, call.key):
            return verdict
        with explained(named(call, arguments["path"])):
            return verdict if self._mark(call, arguments["path"]) != ABSENT else Unknown()

    def _mark(self, call: Call, path: str) -> str:
        with self._spot(call, path, follow=False) as spot:
            return atomic_ops.look(spot)[0].mark


def _check_count(path: str, found: int, count: int | Literal["all"]) -> None:
    if not found:
        raise InvalidCall(f"old: {path} does not hold this text; read the file and give the text exactly as it stands")
    if count not in ("all", found):
        raise InvalidCall(
            f"old: {path} holds this text {found} times, expected {count}; give more of the text around it, "
            f'or count: {found}, or count: "all"'
        )


def _made(spot: SafePath) -> tuple[str, ...]:
    """The folders that will be made on the way, outermost first."""
    folder = os.path.dirname(spot.path)
    made: list[str] = []
    for _ in spot.missing:
        made.insert(0, folder)
        folder = os.path.dirname(folder)
    return tuple(made)


def _sync_file(spot: SafePath) -> None:
    """Nothing to change, but an earlier attempt may have been cut off before the disk had it."""
    opened = spot.open_file()
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
    atomic_ops.sync(spot)
