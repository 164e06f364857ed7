"""What a check may look at, and what a check is: a generator of sentences that say what is wrong.

The name of a check says what it proves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, cast

import msgspec

from holdfast.testing.virtual_time import START_US
from proof.simulator.history import ClockSet
from proof.simulator.model import Wish
from proof.simulator.play import Played
from proof.simulator.witness import Testimony


class Case:
    def __init__(self, played: Played, told: Testimony) -> None:
        self.played = played
        self.told = told

    @cached_property
    def wishes(self) -> dict[str, Wish]:
        """What each execution's program asks for."""
        return {story.id: Wish(story) for story in self.told.stories.values()}

    @cached_property
    def _clocks(self) -> dict[str, list[ClockSet]]:
        clocks: dict[str, list[ClockSet]] = {}
        for line in self.played.history.of(ClockSet):
            clocks.setdefault(line.process, []).append(line)
        return clocks

    def latest_us(self, process: str, at_us: int) -> int:
        """The latest time that the clock of this process's machine can have shown until then."""
        offsets = [line.offset_us for line in self._clocks.get(process.partition(".")[0], []) if line.at_us <= at_us]
        return START_US + at_us + max(0, *offsets) if offsets else START_US + at_us

    def earliest_us(self, at_us: int) -> int:
        """A time that the clocks of all machines had passed by then."""
        offsets = [lines[-1].offset_us for lines in self._clocks.values()]
        return START_US + at_us + min([0, *offsets])

    def value(self, raw: msgspec.Raw) -> Any:
        """A recorded value, also if it was too large for its event."""
        value = self.plain(raw)
        if isinstance(value, dict) and "holdfast" in value:
            return msgspec.json.decode(self.told.blobs[cast("dict[str, str]", value)["digest"]])
        return cast("Any", value)

    @staticmethod
    def plain(raw: msgspec.Raw) -> Any:
        """A recorded value that is never large."""
        return msgspec.json.decode(raw)


Check = Callable[[Case], Iterator[str]]
