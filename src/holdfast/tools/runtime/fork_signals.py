"""What a copy of this process must not inherit: the ear for signals of the event loop.

A fork shares the descriptor by which a loop hears of signals. So a signal to the copy, such as the SIGTERM by which
`multiprocessing` ends its workers, would be heard here as if it had been meant for us.
"""

from __future__ import annotations

import os
import signal

_registered: list[int] = []


def deaf_when_copied(*numbers: int) -> None:
    """From now on a copy hears these as if nobody had ever asked for them."""
    if not _registered:
        os.register_at_fork(after_in_child=_forget)
    _registered.extend(number for number in numbers if number not in _registered)


def _forget() -> None:
    try:
        signal.set_wakeup_fd(-1)
        for number in _registered:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    except ValueError:  # not in the main thread: whoever forks there has no loop that hears signals
        return
