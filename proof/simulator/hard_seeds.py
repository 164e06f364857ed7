"""A judge that is not up to every seed, for processes of its own: one seed never ends, one ends the process."""

from __future__ import annotations

import os
import threading

from proof.simulator.many import Judged

STUCK, DEADLY, WRONG = 3, 5, 7


def some_are_hard(seed: int) -> Judged:
    if seed == STUCK:
        threading.Event().wait()
    if seed == DEADLY:
        os._exit(1)
    return Judged(seed, ["a_check: it is wrong"] if seed == WRONG else [], 1.0)
