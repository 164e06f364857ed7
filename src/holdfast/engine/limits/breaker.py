"""The circuit breaker of one tool: after too many failures it is left alone, then tried by a single call.

    closed → too many failures, or a health check that failed → open
    open → its rest is over: one call goes through, the probe → half open
    half open → the probe succeeds → closed; it fails → open again, for twice as long

Only failures of the tool itself count: what could not be reached, or took too long. A rate limit, a refusal, a wrong
argument or a mistake in the program is an answer: the tool is there. Time is the event loop's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Literal

from holdfast.core.failure import Failure
from holdfast.core.policy import BREAKER_REST_S_MAX, BREAKER_SHARE, BREAKER_WINDOW
from holdfast.tools.runtime.fair_queue import Gate

State = Literal["closed", "open", "half_open"]

TRIPS = frozenset({"transient", "timeout"})
NEVER_SEEN = frozenset({"InvalidCall", "NeverCalled"})  # errors of calls that the tool has not seen
_WINDOW = (1 << BREAKER_WINDOW) - 1
_FAILURES_MAX = round(BREAKER_WINDOW * BREAKER_SHARE)
_JITTER = 0.1  # of the rest, so that several processes do not all try at the same moment


class Breaker(Gate):
    """While it is closed, whoever comes goes through and holds nothing."""

    def __init__(self, failures: int, rest_s: float, rng: random.Random, changed: Callable[[], None]) -> None:
        super().__init__()
        self.state: State = "closed"
        self.why = ""  # it is not closed
        self.probe_at = 0.0  # loop time
        self.left_alone_at = 0.0  # loop time when it opened first, however often it was tried since
        self._failures = failures
        self._rest_s = rest_s
        self._dice = rng
        self._changed = changed
        self._in_a_row = 0
        self._recent = 0  # the latest calls, one bit for each, 1 for a failure; 0 as long as all is well
        self._openings = 0  # since it was closed last
        self._probe: object | None = None  # the call that tries
        self._is_ill = False  # says its health check, which alone may say that it is well again
        self._timer: asyncio.TimerHandle | None = None

    # ---- the gate -----------------------------------------------------------------------------------------------

    def take_now(self) -> bool:
        if self.state == "closed":
            return True
        if self.state == "open" and not self._queue and asyncio.get_running_loop().time() >= self.probe_at:
            self._move("half_open")
            return True
        return False

    def join(self, execution_id: str) -> asyncio.Future[None]:
        place = super().join(execution_id)
        self._arm()
        return place

    def give_back(self) -> None:
        """Whoever was let through did not call: if that was the probe, the next one may be it."""
        if self.state == "half_open" and self._probe is None:
            self.state = "open"
            self._arm()

    @property
    def has_news(self) -> bool:
        """Whether it remembers anything but that all was well."""
        return self.state != "closed" or self._recent != 0

    def is_at_rest(self) -> bool:
        """Nobody would notice if it were forgotten: whoever comes next is let through as it is."""
        if self.state == "open":
            return not self._is_ill and not self._queue and asyncio.get_running_loop().time() >= self.probe_at
        return self.state == "closed"

    # ---- calls --------------------------------------------------------------------------------------------------

    def begin(self, call: object) -> None:
        """This call was let through; if it is the probe, it is known by that."""
        if self.state == "half_open" and self._probe is None:
            self._probe = call

    def lets(self, call: object) -> bool:
        """Whether a call that was let through may still reach the tool."""
        return self.state == "closed" or self._probe is call

    def succeeded(self, call: object) -> None:
        if self.state == "closed":
            if self._recent:
                self._recent = self._recent << 1 & _WINDOW
                self._in_a_row = 0
        elif self._probe is call:
            self._close()

    def failed(self, call: object, failure: Failure) -> None:
        if failure.category not in TRIPS or failure.error in NEVER_SEEN:
            if self._probe is call:
                self._verdict_on_answer(call, failure)
        elif self._probe is call:
            self._open(failure.message)
        elif self.state == "closed":
            self._recent = (self._recent << 1 | 1) & _WINDOW
            self._in_a_row += 1
            if self._in_a_row >= self._failures or self._recent.bit_count() >= _FAILURES_MAX:
                self._open(failure.message)

    def nothing_heard(self, call: object) -> None:
        """The call was cut off: if it was the probe, another one has to find out."""
        if self._probe is call:
            self._probe = None
            self.give_back()

    def _verdict_on_answer(self, call: object, failure: Failure) -> None:
        """The tool answered the probe, if with a no. A call that it never saw says nothing about it."""
        if failure.error in NEVER_SEEN:
            self.nothing_heard(call)
        else:
            self._close()

    # ---- health -------------------------------------------------------------------------------------------------

    def ill(self, why: str) -> None:
        """Its own check says that it cannot work: nobody has to find out by failing."""
        self._is_ill = True
        if self.state == "closed":
            self._open(why)

    def well(self) -> None:
        if self._is_ill:
            self._is_ill = False
            if self.state == "open":
                self._close()

    # ---- moves --------------------------------------------------------------------------------------------------

    def _open(self, why: str) -> None:
        rest_s = min(self._rest_s * 2.0 ** min(self._openings, 30), max(BREAKER_REST_S_MAX, self._rest_s))
        self.probe_at = asyncio.get_running_loop().time() + rest_s * (1 + _JITTER * self._dice.random())
        self.why = why
        if not self._openings:
            self.left_alone_at = asyncio.get_running_loop().time()
        self._openings += 1
        self._probe = None
        self._move("open")
        self._arm()

    def _close(self) -> None:
        self.why = ""
        self._in_a_row = self._recent = self._openings = 0
        self._probe = None
        self._disarm()
        self._move("closed")
        while self._admit_next():
            pass

    def _move(self, state: State) -> None:
        self.state = state
        self._changed()

    def _arm(self) -> None:
        """Somebody waits: let the first one through when the rest is over."""
        if self._queue and self.state == "open":
            self._disarm()
            self._timer = asyncio.get_running_loop().call_at(self.probe_at, self._rested)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rested(self) -> None:
        self._timer = None
        if self.state == "open" and self._admit_next():
            self._move("half_open")

    def __repr__(self) -> str:
        return f"<breaker {self.state}{f': {self.why}' if self.why else ''}>"
