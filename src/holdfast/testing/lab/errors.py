"""What can go wrong in the lab. Both say what to do; neither is ever raised by the engine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from holdfast.core.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")


class LabError(UsageError):
    """The test asked the lab for something that makes no sense, or that never came."""


class NotCrashSafe(AssertionError):
    """A program that was killed ended otherwise than the same program left alone."""


def blames_the_test(function: Callable[P, T]) -> Callable[P, T]:
    """What the test said or tests is wrong, so pytest shows the line of the test, not how the lab came to know."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except (UsageError, NotCrashSafe) as error:
            raise error.with_traceback(None)  # noqa: B904 -- it is the same error, and keeps its cause

    return called
