"""Events and live frames to watchers. The feed has no memory of its own: durable events come from the journal by number.

A watcher is told that something changed and then reads the journal, so it can neither miss an event nor see one before
it is on disk. Live frames are extra: bounded, dropped when a watcher is slow, and never shown before the durable event
they belong to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from holdfast.core import events as ev
from holdfast.core.events import AnyEvent, AnyFrame, Frame
from holdfast.engine.wire import wire_event, wire_frame
from holdfast.journal.log import read_events
from holdfast.journal.store import Store

FRAMES_MAX = 1000  # waiting to be shown to one watcher; the oldest go first
PAGE_EVENTS = 500
_ENDS = (ev.TaskCompleted, ev.TaskError, ev.TaskStopped)


class Watched(msgspec.Struct, frozen=True):
    """What a watcher sees: a durable event with its number, or a live frame without one."""

    task_id: str
    seq: int | None
    event: AnyEvent | AnyFrame

    @property
    def type(self) -> str:
        return str(type(self.event).__struct_config__.tag)

    def as_dict(self) -> dict[str, object]:
        """The wire form, as documented in docs/events.md."""
        if self.seq is None:
            return wire_frame(self.task_id, self.event)
        return wire_event(self.task_id, self.seq, self.event)

    def __str__(self) -> str:
        path = getattr(self.event, "path", "")
        return f"{self.seq if self.seq is not None else '·':>4} {self.type} {path}".rstrip()


class Ring(Protocol):
    """Where frames go for watchers in other processes, and come from for ours."""

    def is_watched(self, execution_id: str) -> bool: ...

    def show(self, execution_id: str, frame: Frame) -> None: ...

    def read(self, execution_id: str, after: int) -> list[tuple[int, AnyFrame]]: ...

    def announce(self, execution_id: str) -> None: ...

    def refresh(self) -> None: ...

    def close(self) -> None: ...


class Subscription:
    """One watcher's ear."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.frames: deque[AnyFrame] = deque(maxlen=FRAMES_MAX)


class Feed:
    def __init__(self, ring: Ring | None = None) -> None:
        self._subscriptions: dict[str, set[Subscription]] = {}
        self.ring = ring

    def is_watched(self, execution_id: str) -> bool:
        if execution_id in self._subscriptions:
            return True
        return self.ring is not None and self.ring.is_watched(execution_id)

    def subscribe(self, execution_id: str) -> Subscription:
        subscription = Subscription()
        self._subscriptions.setdefault(execution_id, set()).add(subscription)
        return subscription

    def unsubscribe(self, execution_id: str, subscription: Subscription) -> None:
        subscriptions = self._subscriptions.get(execution_id)
        if subscriptions is not None:
            subscriptions.discard(subscription)
            if not subscriptions:
                del self._subscriptions[execution_id]

    def notify(self, execution_id: str) -> None:
        for subscription in self._subscriptions.get(execution_id, ()):
            subscription.changed.set()

    def notify_all(self) -> None:
        """Another process may have written: let every watcher look."""
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.changed.set()

    def show(self, execution_id: str, frame: AnyFrame) -> None:
        for subscription in self._subscriptions.get(execution_id, ()):
            subscription.frames.append(frame)
            subscription.changed.set()
        if self.ring is not None and self.ring.is_watched(execution_id):
            self.ring.show(execution_id, frame)

    @property
    def watchers(self) -> int:
        return sum(len(subscriptions) for subscriptions in self._subscriptions.values())


async def watch(
    feed: Feed, store: Store, execution_id: str, since: int = 0, *, is_local: bool = True
) -> AsyncIterator[Watched]:
    """Durable events after number `since`, in order and without gaps, and live frames between them, until the end."""
    subscription = feed.subscribe(execution_id)
    cursor, ring_cursor, held = since, 0, deque[AnyFrame]()
    try:
        while True:
            subscription.changed.clear()
            if feed.ring is not None and not is_local:
                feed.ring.announce(execution_id)
                for ring_cursor, frame in feed.ring.read(execution_id, ring_cursor):
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
            if ended:
                return
            await subscription.changed.wait()
    finally:
        feed.unsubscribe(execution_id, subscription)
