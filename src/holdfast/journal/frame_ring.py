"""Live frames between processes: a bounded ring in a file of its own that is never synced.

Frames are worth nothing after a crash, so nothing waits for the disk. A process writes only while somebody in another
process watches, and watchers say so again every few seconds.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import msgspec

from holdfast.core.events import AnyFrame, Frame
from holdfast.journal.sql import migrations, queries
from holdfast.journal.sqlite.connection import ensure_private

RING_FILE = "live.db"  # in the data folder
RING_FRAMES = 2000
WATCHING_S = 3.0
REFRESH_S = 0.2
WRITES_PENDING_MAX = 200

_decoder: msgspec.json.Decoder[AnyFrame] = msgspec.json.Decoder(AnyFrame)


class LiveRing:
    """Every method is best effort: a frame that cannot be passed on is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sql = queries("live")
        self._connection: Any = None
        self.watched: frozenset[str] = frozenset()  # executions that other processes want to see frames of
        self._looked = float("-inf")
        self._announced: dict[str, float] = {}
        self._pending: list[tuple[str, bytes, int]] = []

    def _open(self) -> Any:
        if self._connection is None:
            with suppress(apsw.Error, OSError):
                ensure_private(self._path)
                connection: Any = apsw.Connection(str(self._path))
                connection.set_busy_timeout(5)
                connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF")
                for step in migrations("live"):
                    connection.execute(step)
                self._connection = connection
        return self._connection

    # ---- for those who drive ------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Called often: pass on what was said, and now and then look who watches."""
        if self._pending:
            self._write()
        now = time.time()
        if now - self._looked < REFRESH_S:
            return
        self._looked = now
        if self._connection is None and not self._path.exists():
            return  # nobody has ever watched from another process
        connection = self._open()
        if connection is not None:
            with suppress(apsw.Error):
                rows = connection.execute(self._sql["watched"], (now, os.getpid()))
                self.watched = frozenset(row[0] for row in rows)

    def show(self, execution_id: str, frame: Frame) -> None:
        if len(self._pending) < WRITES_PENDING_MAX:
            with suppress(UnicodeEncodeError):  # text from outside may hold what JSON cannot
                self._pending.append((execution_id, msgspec.json.encode(frame), os.getpid()))

    def _write(self) -> None:
        pending, self._pending = self._pending, []
        connection = self._open()
        if connection is None:
            return
        with suppress(apsw.Error), connection:
            connection.executemany(self._sql["insert_frame"], pending)
            connection.execute(self._sql["trim_frames"], (RING_FRAMES,))

    # ---- for those who watch ------------------------------------------------------------------------------------

    def announce(self, execution_id: str) -> None:
        """Say that this process watches; good for a few seconds."""
        now = time.time()
        if self._announced.get(execution_id, 0.0) > now + WATCHING_S / 2:
            return
        connection = self._open()
        if connection is not None:
            with suppress(apsw.Error), connection:
                connection.execute(self._sql["forget_watchers"], (now,))
                connection.execute(self._sql["announce"], (execution_id, now + WATCHING_S, os.getpid()))
                self._announced[execution_id] = now + WATCHING_S

    def read(self, execution_id: str, after: int) -> list[tuple[int, AnyFrame]]:
        """Numbered frames from other processes; what this one shows, its watchers have seen already."""
        connection = self._open()
        if connection is None:
            return []
        with suppress(apsw.Error, msgspec.MsgspecError):
            wanted = (execution_id, after, os.getpid(), RING_FRAMES)
            rows = connection.execute(self._sql["read_frames"], wanted).fetchall()
            return [(num, _decoder.decode(body)) for num, body in rows]
        return []

    def close(self) -> None:
        if self._pending:
            self._write()
        if self._connection is not None:
            with suppress(apsw.Error):
                self._connection.close()
            self._connection = None
