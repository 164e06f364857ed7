"""What a tool knows about the call it is answering, and what it may say while it works.

Owns `Call`, `current_call()` and the three verdicts of a tool's own check. Refuses to journal or publish anything
itself: the engine hands in a `CallHost`, one per execution, and every method ends there, on the engine's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.core.errors import InvalidCall, UsageError
from holdfast.core.policy import NOTE_BYTES_MAX
from holdfast.tools import values


class CallHost(Protocol):
    """Where a call's words go. All three run on the event loop that runs the step."""

    def note(self, call: Call, data: bytes) -> Coroutine[Any, Any, None]: ...
    def say(self, call: Call, content: str, role: str, streaming: bool) -> None: ...
    def progress(self, call: Call, percent: float, text: str) -> None: ...


class Silent:
    """For a tool that runs outside an engine: nothing is kept and nobody listens."""

    async def note(self, call: Call, data: bytes) -> None:
        call.notes = msgspec.json.decode(data)

    def say(self, call: Call, content: str, role: str, streaming: bool) -> None: ...

    def progress(self, call: Call, percent: float, text: str) -> None: ...


SILENT = Silent()


class Call:
    """One attempt of one step. `key` is the same for every attempt: hand it on as an idempotency key."""

    __slots__ = ("_host", "_loop", "attempt", "execution_id", "folder", "key", "notes", "path")

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
        self._host = host
        self._loop: asyncio.AbstractEventLoop | None = None

    def note(self, data: Any) -> Awaitable[None]:
        """Make `data` durable, for `notes` of the next attempt. Await it; in a `def` tool it blocks until then."""
        encoded = values.encode(data, "the note")
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
        """Show a message to whoever watches. It is not journaled."""
        loop = self._loop_elsewhere()
        if loop is None:
            self._host.say(self, content, role, streaming)
        else:
            loop.call_soon_threadsafe(self._host.say, self, content, role, streaming)

    def progress(self, percent: float, text: str = "") -> None:
        """Show how far this step is, from 0 to 100."""
        percent = min(100.0, max(0.0, float(percent)))
        loop = self._loop_elsewhere()
        if loop is None:
            self._host.progress(self, percent, text)
        else:
            loop.call_soon_threadsafe(self._host.progress, self, percent, text)

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
