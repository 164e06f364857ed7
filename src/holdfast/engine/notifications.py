"""Tells a person when an execution waits, fails, is in doubt, has run out of budget or is done.

A fact is told after it is on disk, by the engine that drives the execution, and at most once through each channel: the
journal's store gives the mark for it to one of all who ask, before anything is sent. Whoever dies after that has told
it or has not; nobody tells it again. Whoever closes while a channel is known not to have taken it gives it back, and
the next engine tells it. What an import brings counts as told: where it happened, somebody was. What comes too fast is
put off and told later; what is too much even for that is counted, and told as a number. Refuses to hold up an
execution: whatever goes wrong here is logged, and no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from holdfast.core.errors import HoldfastError, NotFound, ToolError
from holdfast.core.execution import Execution
from holdfast.core.notification_text import Notification, facts_of, key_of, notice_of, notice_of_many
from holdfast.engine.services import Services
from holdfast.journal.log import read_state
from holdfast.journal.store import Mark, Query

WAITS_S = (1.0, 5.0, 30.0)  # before another try, while a channel is known not to have taken the message
KEPT_US = 30 * 86400 * 1_000_000  # how long a mark is kept; a request that is open for longer is told again
PENDING_MAX = 100  # notices under way; more are put off
PUT_OFF_MAX = 10_000  # facts to be told later; more are only counted
AT_ONCE = 4
CLOSING_S = 10.0  # that a closing engine gives a message that is being sent
CLOSING_RETRIES_S = 2.0  # and those that wait for another try; after that they are given back
GIVEN_BACK_MAX = 10  # times; a channel that is gone for good is not tried for ever
SEEN_MAX = 10_000  # facts remembered here, to ask the store less often
CATCH_UP_US = 10 * 60 * 1_000_000  # of what nobody told because its process died: later it is no news
CATCH_UP_PAGE = 500  # heads read at once; only of those that are news the events are read
CATCH_UP_ENDED_MAX = 10_000  # heads of ended ones that are looked at, newest first; of those that wait all are

_BACK = ":back"
Tell = Callable[[str, str, str, str], Awaitable[None]]
log = logging.getLogger("holdfast")


async def count_as_told(services: Services, states: Iterable[Execution]) -> None:
    """What these have to tell is no news here, through whichever channel: they come from where it was told."""
    now = services.clock.now_us()
    for state in states:
        for fact in facts_of(state, state.seq):
            await services.writer.write(Mark(key=key_of(state.id, fact), at=now, expires_at=now + KEPT_US))


class _GivenBack(Exception):
    """The engine closes, and the channel has not taken the message: the next engine may tell it."""


class Notifier:
    """`tell` takes a channel, a title, a text and the execution on whose account it is."""

    def __init__(
        self,
        services: Services,
        tell: Tell,
        channels: Sequence[str],
        on: Sequence[str],
        url: str = "",
        called: str = "holdfast",
    ) -> None:
        self._services = services
        self._tell = tell
        self._channels = tuple(dict.fromkeys(channels))
        self._on = frozenset(on)
        self._url = url
        self._called = called
        self._seen: set[str] = set()
        self._under_way: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._closing = asyncio.Event()
        self._given_back = 0
        self._put_off: deque[tuple[str, str]] = deque()  # executions, and which fact of theirs is still to be told
        self._only_counted = 0  # facts that came when there was no room even for that
        self._summaries = 0

    def look(self, state: Execution, durable_seq: int) -> None:
        """Something is on disk: is there anything to tell? Called often, so the common answer is quick."""
        if not (state.requests or state.is_ended or state.pause_announced or state.pause_over):
            return
        for fact in facts_of(state, durable_seq):
            key = key_of(state.id, fact)
            if key not in self._seen:
                self._remember(key)
                notice = notice_of(state, fact, self._url, self._called)
                if notice.occasion in self._on:
                    self._begin(notice, state.id, fact)

    def catch_up(self) -> None:
        """Tell of what ended or began to wait a moment ago, should the process be gone that was to tell it."""
        self._run(self._look_back())

    async def close(self) -> None:
        """Give what is under way a while, and then let go of it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_RETRIES_S):
                while self._under_way:  # as one is done, one that was put off begins
                    await asyncio.wait(self._under_way)
        self._closing.set()
        left = set(self._under_way)
        if left:
            _, left = await asyncio.wait(left, timeout=CLOSING_S - CLOSING_RETRIES_S)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
            log.warning("%s not delivered when the engine was closed; nobody sends %s again", *_counted(len(left)))
        if self._given_back:
            said, them = _counted(self._given_back)
            log.warning("%s not delivered when the engine was closed; the next engine sends %s", said, them)
        if waiting := len(self._put_off) + self._only_counted:
            said, them = _counted(waiting)
            log.warning(
                "%s not begun when the engine was closed; the next engine sends %s if it opens soon", said, them
            )

    # ---- one notice ---------------------------------------------------------------------------------------------

    def _remember(self, key: str) -> None:
        if len(self._seen) >= SEEN_MAX:
            self._seen.clear()  # the store knows them all
        self._seen.add(key)

    def _begin(self, notice: Notification, execution_id: str, fact: str) -> None:
        if len(self._under_way) < PENDING_MAX:
            self._run(self._send(notice, execution_id))
        elif len(self._put_off) < PUT_OFF_MAX:
            self._put_off.append((execution_id, fact))
        else:
            self._only_counted += 1

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """There is room for one more: the one that was put off first, and at the very end how many were not."""
        self._under_way.discard(task)
        if self._closing.is_set() or len(self._under_way) >= PENDING_MAX:
            return
        if self._put_off:
            self._run(self._send_late(*self._put_off.popleft()))
        elif self._only_counted:
            number, self._only_counted = self._only_counted, 0
            self._summaries += 1
            key = key_of(self._services.driver, f"more:{self._services.clock.now_us()}:{self._summaries}")
            log.warning("%s not told one by one: too many came at once", _counted(number)[0])
            self._run(self._send(notice_of_many(number, key, self._called), ""))

    async def _send_late(self, execution_id: str, fact: str) -> None:
        """Unless it is no news any more: a request may have been settled meanwhile, or all of it deleted."""
        try:
            _, state, _ = await read_state(self._services.store, execution_id)
        except NotFound:
            return
        except HoldfastError as error:
            log.warning("nobody was told what became of %s: %s", execution_id, error)
            return
        if fact in facts_of(state, state.seq):
            await self._send(notice_of(state, fact, self._url, self._called), execution_id)

    async def _send(self, notice: Notification, execution_id: str) -> None:
        for channel in self._channels:
            try:
                if await self._is_marked(notice.key):
                    return  # it was told elsewhere
                if mark := await self._mark(f"{notice.key}:{channel}"):
                    async with self._places:
                        try:
                            await self._deliver(channel, notice, execution_id)
                        except _GivenBack:
                            self._given_back += 1
                            await self._is_first(f"{mark}{_BACK}")
            except HoldfastError as error:
                log.warning("nobody was told through %s that %s: %s", channel, notice.title, error)
            except Exception:
                log.exception("nobody was told through %s that %s", channel, notice.title)

    async def _mark(self, key: str) -> str:
        """The mark that gives the right to tell it, if we got one: the first, or the next after one given back."""
        for again in range(GIVEN_BACK_MAX + 1):
            mark = f"{key}:{again}" if again else key
            if await self._is_first(mark):
                return mark
            if not await self._is_marked(f"{mark}{_BACK}"):
                return ""
        return ""

    async def _is_marked(self, key: str) -> bool:
        return await self._services.store.cached(key, self._services.clock.now_us()) is not None

    async def _is_first(self, key: str) -> bool:
        now = self._services.clock.now_us()
        return (await self._services.writer.write(Mark(key=key, at=now, expires_at=now + KEPT_US))).ok

    async def _deliver(self, channel: str, notice: Notification, execution_id: str) -> None:
        for wait_s in (*WAITS_S, None):
            if self._closing.is_set():
                raise _GivenBack
            try:
                await self._tell(channel, notice.title, notice.text, execution_id)
                return
            except ToolError as error:
                if wait_s is None or not error.without_effect or error.category not in ("transient", "rate_limit"):
                    raise  # it may have been taken, or will never be
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._closing.wait()

    # ---- after a crash ------------------------------------------------------------------------------------------

    async def _look_back(self) -> None:
        since = self._services.clock.now_us() - CATCH_UP_US
        try:
            await self._look_at(Query(status=("waiting", "paused"), limit=CATCH_UP_PAGE), since, None)
            await self._look_at(
                Query(status=("completed", "failed", "stopped"), limit=CATCH_UP_PAGE), since, CATCH_UP_ENDED_MAX
            )
        except HoldfastError as error:
            log.warning("it cannot be seen what is still to be told: %s", error)

    async def _look_at(self, query: Query, since: int, most: int | None) -> None:
        """They are listed by when they were made, and one that was made long ago may have news."""
        seen = 0
        while (most is None or seen < most) and (page := await self._services.store.heads(query)):
            query.before = page[-1].id
            seen += len(page)
            for head in page:
                if max(head.ended_at, head.updated_at) >= since:
                    _, state, _ = await read_state(self._services.store, head.id)
                    self.look(state, state.seq)


def _counted(number: int) -> tuple[str, str]:
    return ("1 notice was", "it") if number == 1 else (f"{number} notices were", "them")
