"""What a check may look at, and what a check is: a generator of sentences that say what is wrong.

The name of a check says what it proves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from holdfast.testing.simulator.play import Played
from holdfast.testing.simulator.witness import Testimony


class Case(msgspec.Struct):
    played: Played
    told: Testimony


Check = Callable[[Case], Iterator[str]]
