"""What a process that drives does when it is told to end: the first signal is noted, a second one leaves at once.

A SIGHUP that was ignored when the process started stays ignored: that is what `nohup` and `run --detach` ask for.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from holdfast.tools.runtime.fork_signals import deaf_when_copied

_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """`number` is the signal that came, 0 before; `came` may be cleared by whoever has dealt with it.

    `before_leaving` is called when a second signal ends the process at once.
    """

    def __init__(self) -> None:
        self.number = 0
        self.came = asyncio.Event()
        self.before_leaving: Callable[[], None] = lambda: None

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _HEARD:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)
                deaf_when_copied(number)

    def _on_signal(self, number: int) -> None:
        if self.number:
            # The person insists. What is durable stays so; the next driver finds the rest as after a crash.
            self.before_leaving()
            os._exit(128 + number)
        self.number = number
        self.came.set()
