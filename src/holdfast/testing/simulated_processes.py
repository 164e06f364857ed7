"""Simulated processes: many of them in one event loop, each of which can be killed or frozen between any two awaits.

Everything a process does runs in its context, so the loop knows whose turn each callback is. A killed process gets no
further turn: no `finally`, no last words, just as after SIGKILL. A frozen one gets its turns later, all at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any

from holdfast.testing.virtual_time import VirtualLoop

_whose: ContextVar[Process | None] = ContextVar("holdfast_simulated_process", default=None)
BURIAL_ROUNDS = 20
BURIAL_TURNS = 20_000  # for last words; whoever turned in circles while it lived may go on with that


class SimulatedLoop(VirtualLoop):
    """Gives every callback to the process in whose context it was scheduled, and counts the turns of all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self._turns_max: int | None = None
        self._when_spent: Callable[[], None] = lambda: None

    def allow(self, turns: int, when_spent: Callable[[], None]) -> None:
        """So many turns and no more: then somebody is told, once."""
        self._turns_max, self._when_spent = turns, when_spent

    def count_turn(self) -> None:
        self.turns += 1
        if self.turns == self._turns_max:
            self._when_spent()

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        process = _whose.get() if context is None else context.get(_whose, None)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        turn = _Turn(process, callback, args)
        turn.handle = super().call_soon(turn.take, context=context)
        return turn.handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        process = _whose.get() if context is None else context.get(_whose, None)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        turn = _Turn(process, callback, args)
        turn.handle = timer = super().call_at(when, turn.take, context=context)
        return timer

    def _make_task(self, *args: Any, context: Context | None = None, **options: Any) -> asyncio.Task[Any]:
        task = super()._make_task(*args, context=context, **options)
        process = _whose.get() if context is None else context.get(_whose, None)
        if process is not None:
            process.tasks.append(task)
        return task


class _Turn:
    __slots__ = ("args", "callback", "handle", "process")
    handle: asyncio.Handle

    def __init__(self, process: Process, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.process = process
        self.callback = callback
        self.args = args

    def take(self) -> None:
        if self.process.may_take_turn(self):
            self.callback(*self.args)

    def take_late(self) -> None:
        """The process was frozen when its turn came; in the meantime it may have been called off."""
        if not self.handle.cancelled():
            self.callback(*self.args)


class Process:
    """One operating system process, as far as the engine can tell."""

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_frozen = False
        self.turns = 0
        self.tasks: list[asyncio.Task[Any]] = []
        self.when_killed: Callable[[], None] = lambda: None
        self._loop = loop
        self._kill_at_turn: int | None = None
        self._missed: list[_Turn] = []
        self._buried = False
        self._last_turns = BURIAL_TURNS

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as part of this process."""
        context = copy_context()
        context.run(_whose.set, self)
        return self._loop.create_task(work, context=context)

    def may_take_turn(self, turn: _Turn) -> bool:
        if self.is_alive and not self.is_frozen:
            self.turns += 1
            self._loop.count_turn()
            if self._kill_at_turn is None or self.turns < self._kill_at_turn:
                return True
            self.kill()
        elif self._buried and self._last_turns:
            self._last_turns -= 1
            return True
        self._missed.append(turn)
        return False

    def kill_in(self, turns: int) -> None:
        """Let it take so many turns more."""
        self._kill_at_turn = self.turns + turns

    def kill(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self.when_killed()

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> int:
        """Let it take the turns that it has missed; returns how many."""
        self.is_frozen = False
        return self._catch_up() if self.is_alive else 0

    def _catch_up(self) -> int:
        missed, self._missed = self._missed, []
        for turn in missed:
            self._loop.call_soon(turn.take_late, context=_context_of(turn.handle))
        return len(missed)

    async def bury(self) -> None:
        """Tidy up after a death once nothing is recorded any more, so that Python has nothing to complain about."""
        self._buried = True
        self._catch_up()
        for _ in range(BURIAL_ROUNDS):
            left = [task for task in self.tasks if not task.done()]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.sleep(10)
        for task in self.tasks:
            if not task.done():
                asyncio._unregister_task(task)  # type: ignore[attr-defined] -- nobody shall wait for it
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()  # type: ignore[union-attr]


def _context_of(handle: asyncio.Handle) -> Context:
    return handle._context  # type: ignore[attr-defined]
