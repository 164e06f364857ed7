"""A PostgreSQL server that is away for a moment: restarted, moved, or behind a broken line.

What a tool has done and nobody could record is in doubt once its store gives up. So a server that was there is waited
for, by all calls together; only then do they fail. Refuses to wait for one that was never there, or that is there and
says no: that is a mistake in the address, and is told at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.core.errors import StoreUnavailable
from holdfast.journal.postgres.address import PostgresAddress
from holdfast.journal.postgres.connection import is_away

# Long enough for a restart or a failover, and as long as SQLite waits for a lock. One connection that is never answered
# may take libpq's time-out on top.
AWAY_S = 30.0
PAUSE_S, PAUSE_S_MAX = 0.02, 0.5  # between two tries, growing

T = TypeVar("T")
log = logging.getLogger("holdfast")


class Absence:
    """What all calls of one store know together: whether the server was ever there, and since when it is away."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self.was_there = False
        self._since: float | None = None
        self._is_told = False

    async def outlast(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until the server is back. The attempt must have done nothing if it says that the server is away."""
        pause_s, is_second = PAUSE_S, False
        while True:
            try:
                result = await attempt()
            except StoreUnavailable as error:
                if not is_away(error) or not self._is_bearable():
                    raise
                if is_second:  # the first only shows that an old connection is dead
                    self._tell(error)
            else:
                self._end()
                return result
            await asyncio.sleep(random.uniform(pause_s / 2, pause_s))
            pause_s, is_second = min(2 * pause_s, PAUSE_S_MAX), True

    def _is_bearable(self) -> bool:
        now = time.monotonic()
        if self._since is None:
            self._since = now
        return self.was_there and now - self._since < AWAY_S

    def _tell(self, error: StoreUnavailable) -> None:
        if not self._is_told:
            self._is_told = True
            log.warning("waiting up to %.0f s for the server: %s", AWAY_S, error)

    def _end(self) -> None:
        if self._is_told and self._since is not None:
            away_s = time.monotonic() - self._since
            log.warning("%s is back after %.1f s; going on", self._address.shown, away_s)
        self._since, self._is_told = None, False
