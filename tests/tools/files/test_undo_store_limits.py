"""What is kept of files stays within its limit, and no copy is taken away while it is made."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import ResourceShort
from holdfast.tools.files import undo_store as before_module
from holdfast.tools.files.undo_store import LEFTOVER_S, UndoStore

PATIENCE_S = 60.0


class Keeper:
    """Keeps files of a size for executions, each in a thread of its own. Copies for `slow` ones wait for their word."""

    def __init__(self, folder: Path, bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.kept = folder / "before"
        self.before = UndoStore(self.kept, bytes_max, free_bytes_min=0)
        self.threads = ThreadPoolExecutor(8)
        self.begun: dict[str, threading.Event] = {}
        self.go_on: dict[str, threading.Event] = {}
        self._own = threading.local()
        copy = before_module._copy

        def copy_slowly(source: int, target: int | None) -> str:
            execution = self._own.execution
            if execution in self.begun:
                self.begun[execution].set()
                assert self.go_on[execution].wait(PATIENCE_S)
            return copy(source, target)

        monkeypatch.setattr(before_module, "_copy", copy_slowly)

    def keep(self, execution: str, size: int, *, slow: bool = False) -> Future[str]:
        """With `slow` it is under way when this returns."""
        if slow:
            self.begun[execution], self.go_on[execution] = threading.Event(), threading.Event()
        future = self.threads.submit(self._keep, execution, size)
        if slow:
            assert self.begun[execution].wait(PATIENCE_S)
        return future

    def _keep(self, execution: str, size: int) -> str:
        self._own.execution = execution
        file = self.folder / f"{execution}-{size}"
        file.write_bytes(execution[:1].encode() * size)
        with file.open("rb") as opened:
            return self.before.keep(execution, opened.fileno(), str(file))

    def finish(self, execution: str, future: Future[str]) -> None:
        self.go_on[execution].set()
        future.result(PATIENCE_S)

    def bytes_of(self, execution: str) -> int:
        images = (file for file in (self.kept / execution).iterdir() if file.name != "index.jsonl")
        return sum(file.stat().st_size for file in images)

    def grow_old(self, *executions: str) -> None:
        for age, execution in enumerate(executions, 1):
            for path in (*(self.kept / execution).iterdir(), self.kept / execution):
                os.utime(path, (age, age))


@pytest.fixture
def keeper_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Keeper]]:
    made: list[Keeper] = []

    def make(bytes_max: int) -> Keeper:
        made.append(Keeper(tmp_path, bytes_max, monkeypatch))
        return made[-1]

    yield make
    for keeper in made:
        for event in keeper.go_on.values():
            event.set()
        keeper.threads.shutdown()


def after_a_prune(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when somebody has looked for images that can go."""
    looked = threading.Event()
    prune = keeper.before._prune

    def prune_and_say(*arguments: Any) -> None:
        prune(*arguments)
        looked.set()

    monkeypatch.setattr(keeper.before, "_prune", prune_and_say)
    return looked


def test_a_copy_under_way_is_waited_for_and_not_taken_away(
    keeper_of: Callable[[int], Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keeper_of(100)
    slow = keeper.keep("slow", 60, slow=True)
    looked = after_a_prune(keeper, monkeypatch)
    next_one = keeper.keep("next", 60)
    assert looked.wait(PATIENCE_S)
    assert not next_one.done()
    keeper.finish("slow", slow)
    next_one.result(PATIENCE_S)
    assert (keeper.bytes_of("slow"), keeper.bytes_of("next")) == (0, 60)


def test_the_room_of_a_copy_that_fails_is_free_again(
    keeper_of: Callable[[int], Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keeper_of(100)
    slow = keeper.keep("slow", 60, slow=True)
    (unfinished,) = (keeper.kept / "slow").iterdir()
    looked = after_a_prune(keeper, monkeypatch)
    next_one = keeper.keep("next", 60)
    assert looked.wait(PATIENCE_S)
    unfinished.unlink()  # so that it cannot be finished
    keeper.go_on["slow"].set()
    with pytest.raises(FileNotFoundError):
        slow.result(PATIENCE_S)
    next_one.result(PATIENCE_S)
    assert (keeper.bytes_of("slow"), keeper.bytes_of("next")) == (0, 60)


def test_the_room_that_a_copy_under_way_will_take_is_not_given_to_others(keeper_of: Callable[[int], Keeper]) -> None:
    keeper = keeper_of(100)
    slow = keeper.keep("slow", 60, slow=True)
    for execution in ("first", "second", "third"):
        keeper.keep(execution, 30).result(PATIENCE_S)
    keeper.finish("slow", slow)
    assert sum(keeper.bytes_of(execution) for execution in ("slow", "first", "second", "third")) == 90
    assert keeper.bytes_of("slow") == 60


def test_an_execution_that_needs_more_than_there_is_says_so_also_beside_its_own_copies(
    keeper_of: Callable[[int], Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keeper_of(100)
    slow = keeper.keep("slow", 60, slow=True)
    looked = after_a_prune(keeper, monkeypatch)
    more = keeper.keep("slow", 61)
    assert looked.wait(PATIENCE_S)
    keeper.finish("slow", slow)
    with pytest.raises(ResourceShort, match=r"slow-61: this execution has changed more than the 100 bytes that are"):
        more.result(PATIENCE_S)


def test_an_execution_that_just_began_is_not_the_oldest(keeper_of: Callable[[int], Keeper]) -> None:
    """It has an image, and no index yet; or the index of what it did long ago."""
    keeper = keeper_of(100)
    for execution in ("old", "again"):
        keeper.keep(execution, 20).result(PATIENCE_S)
        (keeper.kept / execution / "index.jsonl").touch()
    keeper.grow_old("again", "old")
    keeper.keep("new", 30).result(PATIENCE_S)
    keeper.keep("again", 21).result(PATIENCE_S)
    keeper.keep("other", 25).result(PATIENCE_S)
    found = {execution: keeper.bytes_of(execution) for execution in ("old", "again", "new", "other")}
    assert found == {"old": 0, "again": 41, "new": 30, "other": 25}


def test_the_copy_of_another_process_stays_unless_nobody_has_written_to_it_for_long(
    keeper_of: Callable[[int], Keeper],
) -> None:
    keeper = keeper_of(100)
    for age, execution in enumerate(("alive", "dead")):
        (keeper.kept / execution).mkdir(parents=True)
        (keeper.kept / execution / "copy.tmp").write_bytes(b"x" * 40)
        (keeper.kept / execution / "index.jsonl").touch()
        for path in (keeper.kept / execution / "index.jsonl", keeper.kept / execution):
            os.utime(path, (age, age))
    long_ago = (keeper.kept / "alive" / "copy.tmp").stat().st_mtime - LEFTOVER_S - 60
    os.utime(keeper.kept / "dead" / "copy.tmp", (long_ago, long_ago))
    keeper.keep("new", 50).result(PATIENCE_S)
    assert {execution: keeper.bytes_of(execution) for execution in ("dead", "alive", "new")} == {
        "dead": 0, "alive": 40, "new": 50,
    }  # fmt: skip
