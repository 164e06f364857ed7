"""Keeps the store small by itself: deletes what ended long ago, in small bites, now and then. Off unless asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import JournalError
from holdfast.journal.deletion import prune
from holdfast.journal.store import Query

if TYPE_CHECKING:
    from holdfast.engine.services import Services

BITE_S = 1.0  # between two bites: the engine has better things to do
END_S = 2.0  # how long a process that is about to end may still tidy up
JUST_ENDED_US = 60_000_000  # what ended so lately is left by it: somebody has only just begun to look at it
log = logging.getLogger("holdfast")


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long what has ended is kept. `status` limits it to such ends; `data_folder` is where
    files lie beside the store."""

    older_than_us: int
    status: tuple[str, ...] = ()
    data_folder: Path | None = None


class Tidier:
    def __init__(self, services: Services, retention: Retention, tell: Callable[[Sequence[str]], None]) -> None:
        self._services = services
        self._tell = tell
        self._retention = retention
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._tidy(), name="holdfast-tidier")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _tidy(self) -> None:
        while True:
            try:
                await self._look_through()
            except JournalError as error:
                log.warning("what ended long ago cannot be deleted: %s", error)
            except Exception:
                log.exception("the tidier stumbled")
            await asyncio.sleep(self._services.pace.tidy_s)

    async def bite(self) -> None:
        """Once, and not for long: for a process that drove something and is about to end."""
        try:
            async with asyncio.timeout(END_S):
                await self._look_through(JUST_ENDED_US, once=True)
        except (JournalError, TimeoutError) as error:
            why = str(error) or f"it takes longer than {END_S:g} s"
            log.warning("what ended long ago cannot be deleted: %s", why)

    async def _look_through(self, spared_us: int = 0, *, once: bool = False) -> None:
        before = self._services.clock.now_us() - max(self._retention.older_than_us, spared_us)
        query = Query(status=self._retention.status, ended_before=before)
        async with aclosing(prune(self._services.store, query, self._retention.data_folder)) as bites:
            async for bite in bites:
                if bite.gone:
                    log.info("deleted %d executions that ended long ago", len(bite.gone))
                    self._tell(bite.gone)
                if once:
                    return
                await asyncio.sleep(BITE_S)
