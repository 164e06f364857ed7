"""Simulated checkpoint files: nothing is written anywhere, but it takes its time, and now and then there is no room.

While a file is written the execution it is of goes on, and may be commanded: those who do so at the worst moment look
here for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path
from random import Random
from typing import Any

from holdfast.core.errors import StoreUnavailable
from holdfast.journal import checkpoint_files
from holdfast.journal.bundle.read import read
from holdfast.testing.simulated_processes import SimulatedLoop
from proof.simulator.history import History, SavedFile

FOLDER = Path("simulated")  # the same everywhere, for its name is journaled
NO_ROOM = 0.1
TAKES_S = (0.0, 0.02, 0.3, 0.3)


class FilesLoop(SimulatedLoop):
    """Work for other threads is done at once, for real threads would take turns whenever they like; what says that it
    took its time is answered so much later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.took_s = 0.0

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        self.took_s = 0.0
        try:
            result, error = func(*args), None
        except Exception as raised:
            result, error = None, raised
        if self.took_s:
            self.call_later(self.took_s, _settle, future, result, error, context=Context())
        else:
            _settle(future, result, error)
        return future


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return  # whoever waited for it is dead
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class Files:
    def __init__(self, loop: FilesLoop, seed: int, history: History) -> None:
        self._loop = loop
        self._seed = seed
        self._history = history
        self.being_written: dict[str, int] = {}  # by execution: how many files

    def save(self, data_folder: Path, execution_id: str, seq: int, pieces: Iterable[bytes]) -> checkpoint_files.Saved:
        rng = Random(f"{self._seed}/file/{execution_id}/{seq}")
        self._loop.took_s = rng.choice(TAKES_S)
        at_us = round(self._loop.time() * 1e6)
        if rng.random() < NO_ROOM:
            self._history.write(SavedFile(at_us=at_us, process="", execution_id=execution_id, error="no room"))
            raise StoreUnavailable("simulated: there is no room for a checkpoint")
        content = b"".join(pieces)
        digests = [row.digest for row in read(content).root.rows]
        line = SavedFile(at_us=at_us, process="", execution_id=execution_id, through=seq, digest=digests[-1])
        self._history.write(line)
        if self._loop.took_s:
            self.being_written[execution_id] = self.being_written.get(execution_id, 0) + 1
            self._loop.call_later(self._loop.took_s, self._written, execution_id, context=Context())
        return checkpoint_files.Saved(data_folder / f"{execution_id}.{seq}.json", len(content))

    def _written(self, execution_id: str) -> None:
        self.being_written[execution_id] -= 1
        if not self.being_written[execution_id]:
            del self.being_written[execution_id]

    @contextmanager
    def in_place_of_the_disk(self) -> Generator[None]:
        real, checkpoint_files.save = checkpoint_files.save, self.save
        try:
            yield
        finally:
            checkpoint_files.save = real
