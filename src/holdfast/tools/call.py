"""What a tool knows about the call it is answering, and what it may say while it works.

Owns `Call`, `current_call()` and the three verdicts of a tool's own check. Refuses to journal or publish anything
itself: the engine hands in a `CallHost`, one per execution, and every method ends there, on the engine's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.core.budget import read_usd
from holdfast.core.errors import InputInvalid, InvalidCall, UsageError
from holdfast.core.events import TaskCreated
from holdfast.core.execution import origin_of
from holdfast.core.policy import NOTE_BYTES_MAX, Effect
from holdfast.core.resources import DEFAULTS, Usage
from holdfast.tools import json_values
from holdfast.tools.processes.shared_limits import SharedLimits
from holdfast.tools.runtime.attempt_log import Logbook
from holdfast.tools.runtime.cancellation import NeverBegan
from holdfast.tools.runtime.fair_queue import Gate, Turn, Turns


class CallHost(Protocol):
    """Where a call's words go. All but `hear` run on the event loop that runs the step."""

    def note(self, call: Call, data: bytes) -> Coroutine[Any, Any, None]: ...
    def say(self, call: Call, content: str, role: str, streaming: bool) -> None: ...
    def progress(self, call: Call, percent: float, text: str) -> None: ...
    def check_open(self, call: Call, what: str) -> None: ...
    def hear(self, call: Call, stream: str, text: str) -> None: ...


class Silent:
    """For a tool that runs outside an engine: nothing is kept and nobody listens."""

    async def note(self, call: Call, data: bytes) -> None:
        call.notes = msgspec.json.decode(data)

    def say(self, call: Call, content: str, role: str, streaming: bool) -> None: ...

    def progress(self, call: Call, percent: float, text: str) -> None: ...

    def check_open(self, call: Call, what: str) -> None: ...

    def hear(self, call: Call, stream: str, text: str) -> None: ...


SILENT = Silent()


class HeldBack(Exception):
    """The tool was not called: its breaker opened while the call was on its way."""


class Task(msgspec.Struct, frozen=True):
    """What a call may know of its task."""

    origin_id: str
    inputs: msgspec.Raw
    labels: dict[str, str]


def task_of(created: TaskCreated, execution_id: str) -> Task:
    return Task(origin_of(created, execution_id), created.inputs, created.labels)


class Call:
    """One attempt of one step. `key` is the same for every attempt: hand it on as an idempotency key."""

    __slots__ = (
        "_host",
        "_in_line",
        "_loop",
        "attempt",
        "book",
        "door",
        "execution_id",
        "folder",
        "gate",
        "interpreters",
        "isolated",
        "key",
        "kill_grace_s",
        "may_be_cached",
        "notes",
        "path",
        "resources",
        "secrets",
        "signs",
        "spent_micros",
        "started_as",
        "task",
        "together",
        "turn",
        "used",
        "warning",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 — one made per step: each keyword would cost
        self,
        execution_id: str,
        path: str,
        attempt: int,
        key: str,
        folder: Path,
        notes: Any = None,
        host: CallHost = SILENT,
    ) -> None:
        self.execution_id = execution_id
        self.path = path
        self.attempt = attempt
        self.key = key
        self.folder = folder
        self.notes = notes
        self.task: Task | None = None  # of which execution it is a call; None: of none
        self.secrets: tuple[str, ...] = ()  # that its arguments refer to
        self.started_as: Effect | None = None  # that its tool had when the attempt began; None: its step says another
        self.spent_micros: int | None = None  # what it has said so far; None: nothing
        self.book: Logbook | None = None  # made with its first words
        self.isolated = False  # whether the tool is called in a process of its own
        self.resources = DEFAULTS  # what that process, or else the commands that the tool starts, may use
        self.together: SharedLimits | None = None  # what they may use along with all others of the execution
        self.used: Usage | None = None  # what they used so far, as far as it was measured
        self.warning = ""  # what is wrong with the value it returned, which counts all the same
        self.turn: Turn | None = None  # that was taken for it before it began
        self.may_be_cached = True  # a tool says no to an answer that will not stay true as long as its others
        self.signs = 0  # of life it has given: words, progress, notes
        self.kill_grace_s: float | None = None  # set when it is cut: how long its processes may take to tidy up
        self.gate: Callable[[], bool] | None = None  # asked before the tool is called, and after it waited
        self.door: Gate | None = None  # waited at right before the tool is called, whatever it waited for before
        self.interpreters: Gate | None = None  # how many there may be at once, for a call in a process of its own
        self._host = host
        self._in_line: tuple[float, float | None] = (0.0, None)  # how long it stood there, and since when it does now
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def origin_id(self) -> str:
        """The id of the task's first execution: the same in every retry and fork of it. File state under this one."""
        return self.task.origin_id if self.task is not None else self.execution_id

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the task."""
        return msgspec.json.decode(self.task.inputs) if self.task is not None else {}

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the task."""
        return dict(self.task.labels) if self.task is not None else {}

    async def take_turn(self, gate: Gate, has_begun: bool = False) -> None:
        """Wait in a line of the tool's own, before it does anything in the world. A call that is cut there never began,
        and one whose breaker opened meanwhile is held back, unless it `has_begun` by then."""
        try:
            await gate.take(self.execution_id)
        except asyncio.CancelledError:
            if has_begun:
                raise
            raise NeverBegan from None
        if not has_begun and self.gate is not None and not self.gate():
            gate.give_back()
            raise HeldBack

    async def turn_of(self, turns: Turns, has_begun: bool = False) -> Turn:
        """The turn that was taken for this call, if it is one of these; or else one of them, after waiting for it."""
        taken, self.turn = self.turn, None
        if taken is not None and taken.turns is turns:
            return taken
        if taken is not None:
            taken.end()
        await self.take_turn(turns, has_begun)
        return Turn(turns)

    def wait_begins(self, now: float) -> None:
        """It waits for a thread, or for its own process to start: that is no time that the tool took."""
        self._in_line = (self._in_line[0], now)

    def wait_ends(self, now: float) -> None:
        """It begins, maybe in its thread. Replaced whole, because the event loop reads it meanwhile."""
        self._in_line = (self.waited_s(now), None)

    def waited_s(self, now: float) -> float:
        waited, since = self._in_line
        return waited if since is None else waited + now - since

    def note(self, data: Any) -> Awaitable[None]:
        """Make `data` durable, for `notes` of the next attempt. Await it; in a `def` tool it blocks until then."""
        self.signs += 1
        encoded = json_values.encode(data, "the note")
        if len(encoded) > NOTE_BYTES_MAX:
            raise InvalidCall(
                f"a note has {len(encoded)} bytes, at most {NOTE_BYTES_MAX} are kept; write the data to a file"
            )
        pending = self._host.note(self, encoded)
        loop = self._loop_elsewhere()
        if loop is None:
            return pending
        asyncio.run_coroutine_threadsafe(pending, loop).result()
        return _Done()

    def say(self, content: str, role: str = "tool", streaming: bool = False) -> None:
        """Show a message to whoever watches. It is kept in the attempt's log."""
        self.signs += 1
        loop = self._loop_elsewhere()
        if loop is None:
            self._host.say(self, content, role, streaming)
        else:
            loop.call_soon_threadsafe(self._host.say, self, content, role, streaming)

    def progress(self, percent: float, text: str = "") -> None:
        """Show how far this step is, from 0 to 100."""
        self.signs += 1
        percent = min(100.0, max(0.0, float(percent)))
        loop = self._loop_elsewhere()
        if loop is None:
            self._host.progress(self, percent, text)
        else:
            loop.call_soon_threadsafe(self._host.progress, self, percent, text)

    def spend(self, usd: float) -> None:
        """Say what this call costs, in US dollars; said again, it adds up. It counts when the attempt ends."""
        try:
            micros = read_usd(usd, least=0)
        except InputInvalid as error:
            raise InvalidCall(f"{self.path}: spend: {error}") from None
        loop = self._loop_elsewhere()
        if loop is None:
            self._spend(micros)
        else:
            asyncio.run_coroutine_threadsafe(self._spend_there(micros), loop).result()

    async def _spend_there(self, micros: int) -> None:
        self._spend(micros)

    def _spend(self, micros: int) -> None:
        self._host.check_open(self, "what it spends now cannot be counted")
        self.spent_micros = (self.spent_micros or 0) + micros

    def use(self, used: Usage) -> None:
        """Count what was used of the machine for this call. On the event loop only."""
        self.used = used if self.used is None else self.used.plus(used)
        if self.together is not None:
            self.together.count(used)

    def hear(self, stream: str, text: str) -> None:
        """What was printed or logged while this call ran, from whichever thread; `stream` names where it went."""
        self.signs += 1
        self._host.hear(self, stream, text)

    def enter_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        """The tool, or a hook of it, is about to run in a thread; what it says there must travel back to `loop`."""
        self._loop = loop

    def _loop_elsewhere(self) -> asyncio.AbstractEventLoop | None:
        """The engine's loop, if this is another thread than the one it runs in."""
        if self._loop is None:
            return None
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return self._loop
        return None if here is self._loop else self._loop

    def __repr__(self) -> str:
        return f"Call({self.path!r}, attempt={self.attempt}, execution={self.execution_id!r})"


class _Done:
    def __await__(self) -> Any:
        return iter(())


running_call: ContextVar[Call] = ContextVar("holdfast_call")


def current_call() -> Call:
    """The call being answered, from anywhere below the tool."""
    try:
        return running_call.get()
    except LookupError:
        raise UsageError(
            "current_call() works only inside a tool that Holdfast is running; "
            "to call a tool by hand, give it a parameter annotated `Call` and pass one"
        ) from None


class Happened(msgspec.Struct, frozen=True):
    """The effect is there; `output` is what the call would have returned."""

    output: Any = None


class DidNotHappen(msgspec.Struct, frozen=True):
    """The effect is not there; the call may be made again."""


class Unknown(msgspec.Struct, frozen=True):
    """The check could not tell; a person must."""


Verdict = Happened | DidNotHappen | Unknown
