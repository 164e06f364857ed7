"""Events and live frames to watchers. The feed has no memory of its own: durable events come from the journal.

A watcher is told that something changed and then reads the journal, so it can neither miss an event nor see one before
it is on disk. Live frames are extra: bounded, dropped when a watcher is slow, and never shown before the durable event
they belong to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import suppress
from typing import Protocol

import msgspec

from holdfast.core import events as ev
from holdfast.core.events import AnyEvent, AnyFrame, Frame
from holdfast.core.lifecycle import ENDS
from holdfast.engine.json_view import resolved, wire_event, wire_frame
from holdfast.journal.log import read_events
from holdfast.journal.store import Head, Store

FRAMES_MAX = 1000  # waiting to be shown to one watcher; the oldest go first
PAGE_EVENTS = 500
SETTLED_LOOK_S = 0.5  # how often it is looked whether it is settled: its children are not listened to
RING_LOOK_S = 0.05  # how often frames from another process are looked for
_ENDS = (ev.TaskCompleted, ev.TaskError, ev.TaskStopped)


class Watched(msgspec.Struct, frozen=True):
    """What a watcher sees: a durable event with its number, or a live frame without one."""

    task_id: str
    seq: int | None
    event: AnyEvent | AnyFrame
    wired: dict[str, object] | None = None

    @property
    def type(self) -> str:
        return str(type(self.event).__struct_config__.tag)

    def as_dict(self) -> dict[str, object]:
        """The wire form, as documented in docs/reference/events.md. A large value is shown as a reference to it."""
        if self.wired is not None:
            return self.wired
        if self.seq is None:
            return wire_frame(self.task_id, self.event)
        return wire_event(self.task_id, self.seq, self.event)

    async def whole(self, store: Store) -> Watched:
        """The same, with large values in `as_dict` in the place of their references."""
        return msgspec.structs.replace(self, wired=await resolved(store, self.as_dict()))

    def __str__(self) -> str:
        path = getattr(self.event, "path", "")
        return f"{self.seq if self.seq is not None else '·':>4} {self.type} {path}".rstrip()


class Ring(Protocol):
    """Where frames go for watchers in other processes, and come from for ours."""

    @property
    def watched(self) -> frozenset[str]: ...

    def show(self, execution_id: str, frame: Frame) -> None: ...

    def read(self, execution_id: str, after: int) -> list[tuple[int, AnyFrame]]: ...

    def announce(self, execution_id: str) -> None: ...

    def refresh(self) -> None: ...

    def close(self) -> None: ...


class Subscription:
    """One watcher's ear, for every event and frame; or, with `status_only`, for moves of the status alone."""

    def __init__(self, status_only: bool = False) -> None:
        self.status_only = status_only
        self.changed = asyncio.Event()
        self.frames: deque[AnyFrame] = deque(maxlen=FRAMES_MAX)


class Feed:
    def __init__(self, ring: Ring | None = None) -> None:
        self._subscriptions: dict[str, dict[Subscription, None]] = {}  # told in the order in which they came
        self._watchers: dict[str, int] = {}  # how many in this process want frames
        self._elsewhere: frozenset[str] = frozenset()  # whose frames other processes want
        self.watched: set[str] = set()  # both: looked at for every event, so it is one set that never moves
        self.ring = ring

    def refresh(self) -> None:
        """Called often: pass frames on, and see who watches from other processes."""
        if self.ring is None:
            return
        self.ring.refresh()
        if self.ring.watched != self._elsewhere:
            self._elsewhere = self.ring.watched
            self.watched.clear()
            self.watched.update(self._watchers, self._elsewhere)

    def subscribe(self, execution_id: str, *, status_only: bool = False) -> Subscription:
        subscription = Subscription(status_only)
        self._subscriptions.setdefault(execution_id, {})[subscription] = None
        if not status_only:
            self._watchers[execution_id] = self._watchers.get(execution_id, 0) + 1
            self.watched.add(execution_id)
        return subscription

    def unsubscribe(self, execution_id: str, subscription: Subscription) -> None:
        subscriptions = self._subscriptions.get(execution_id)
        if subscriptions is not None:
            subscriptions.pop(subscription, None)
            if not subscriptions:
                del self._subscriptions[execution_id]
            if not subscription.status_only:
                left = self._watchers[execution_id] - 1
                if left:
                    self._watchers[execution_id] = left
                else:
                    del self._watchers[execution_id]
                    if execution_id not in self._elsewhere:
                        self.watched.discard(execution_id)

    def notify(self, execution_id: str, *, status: bool = True) -> None:
        """Something became durable; `status` says that the status moved, too."""
        for subscription in self._subscriptions.get(execution_id, ()):
            if status or not subscription.status_only:
                subscription.changed.set()

    def notify_others(self, driven_here: Container[str]) -> None:
        """Another process may have written: let everybody look who watches an execution that is not driven here."""
        for execution_id, subscriptions in self._subscriptions.items():
            if execution_id not in driven_here:
                for subscription in subscriptions:
                    subscription.changed.set()

    def show(self, execution_id: str, frame: AnyFrame) -> None:
        for subscription in self._subscriptions.get(execution_id, ()):
            if not subscription.status_only:
                subscription.frames.append(frame)
                subscription.changed.set()
        if self.ring is not None and execution_id in self._elsewhere:
            self.ring.show(execution_id, frame)

    @property
    def watchers(self) -> int:
        return sum(len(subscriptions) for subscriptions in self._subscriptions.values())


async def watch(
    feed: Feed,
    store: Store,
    execution_id: str,
    since: int,
    is_local: Callable[[], bool],
    is_settled: Callable[[Head], Awaitable[bool]] | None = None,
) -> AsyncIterator[Watched]:
    """Durable events after number `since`, in order and without gaps, and live frames between them, until the end.

    With `is_settled`, until that says yes to an execution of which all has been shown.
    """
    subscription = feed.subscribe(execution_id)
    cursor, ring_cursor, held = since, 0, deque[AnyFrame]()
    try:
        while True:
            subscription.changed.clear()
            foreign = feed.ring is not None and not is_local()  # drivers change, so this is asked every time
            if feed.ring is not None and foreign:
                feed.ring.announce(execution_id)
                for number, frame in feed.ring.read(execution_id, ring_cursor):
                    ring_cursor = number
                    subscription.frames.append(frame)
            ended = False
            while True:
                page = await read_events(store, execution_id, cursor, PAGE_EVENTS)
                for seq, event in page:
                    cursor = seq
                    ended = ended or isinstance(event, _ENDS)
                    yield Watched(execution_id, seq, event)
                if len(page) < PAGE_EVENTS:
                    break
            held.extend(subscription.frames)
            subscription.frames.clear()
            while held and held[0].after <= cursor:
                yield Watched(execution_id, None, held.popleft())
            if ended or (cursor == since and await _is_over(store, execution_id, cursor)):
                return
            wait_s = RING_LOOK_S if foreign else None
            if is_settled is not None:
                head = await store.head(execution_id)
                if head.seq <= cursor and await is_settled(head):
                    return
                wait_s = wait_s or SETTLED_LOOK_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await subscription.changed.wait()
    finally:
        feed.unsubscribe(execution_id, subscription)


async def _is_over(store: Store, execution_id: str, cursor: int) -> bool:
    """Whether it ended before the watcher's first number: then no end will come by."""
    head = await store.head(execution_id)
    return head.status in ENDS and head.seq <= cursor
