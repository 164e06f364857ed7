"""What a call in a thread or in a process, or one that waits in a line, raises when it is cut off: how far it came is
what counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import ToolError

if TYPE_CHECKING:
    from holdfast.core.failure import Category


class NeverBegan(asyncio.CancelledError):
    """Cancelled while it waited for its turn: nothing has happened."""


class NeverCalled(ToolError):
    """It never came to its function: nothing has happened, and that says nothing about the tool."""

    without_effect = True

    def __init__(self, message: str, category: Category = "transient") -> None:
        super().__init__(message)
        self.category = category


class StillRunning(asyncio.CancelledError):
    """Cancelled, but a thread cannot be stopped: `future` tells how it ends."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        super().__init__()
        self.future = future
        future.add_done_callback(_look_at)


def _look_at(future: asyncio.Future[Any]) -> None:
    """So that an error that nobody waits for is not complained about."""
    if not future.cancelled():
        future.exception()
