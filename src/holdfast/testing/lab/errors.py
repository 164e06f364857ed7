"""What can go wrong in the lab. Both say what to do; neither is ever raised by the engine."""

from __future__ import annotations

from holdfast.core.errors import UsageError


class LabError(UsageError):
    """The test asked the lab for something that makes no sense, or that never came."""


class NotCrashSafe(AssertionError):
    """A program that was killed ended otherwise than the same program left alone."""
