"""When the machine is under pressure: five figures, two stages, and how far they must ease before it is over.

Pure rules: whoever reads the figures hands them in, and one that the system cannot tell is left out of account.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.core.resources import say_size

MARGIN = 0.2  # by so much of a threshold a figure must be better again before its stage is left
STAGES = ("none", "tight", "severe")


class Reading(NamedTuple):
    """What the machine told a moment ago; None where it could not."""

    memory_free: float | None = None  # share of the memory that could be had without swapping
    own_memory: float | None = None  # share of the memory that this process holds
    stalled: float | None = None  # share of the last ten seconds in which something waited for memory
    load: float | None = None  # over the last minute, per core
    disk_free_bytes: int | None = None  # where the journal lies


@dataclass(frozen=True, kw_only=True)
class PressureLimits:
    """Where each stage begins. Tight: fewer steps at once. Severe: only critical steps begin."""

    at_once: int = 4  # steps running in this process while it is tight or severe
    memory_tight: float = 0.10
    memory_severe: float = 0.04
    own_memory_tight: float = 0.50
    own_memory_severe: float = 0.75
    stalled_tight: float = 0.20
    stalled_severe: float = 0.50
    load_tight: float = 10.0
    load_severe: float = 30.0
    disk_tight_bytes: int = 10**9
    disk_severe_bytes: int = 2 * 10**8
    calm_s: float = 10.0  # so long all figures must be better before a stage is left


_Say = Callable[[float, float], str]


class Judgement(NamedTuple):
    """`why` is a sentence about the worst figure."""

    stage: int
    why: str = ""


def judge(reading: Reading, limits: PressureLimits, now: int = 0) -> Judgement:
    """The stage these figures call for, given the one we are in: what brought us here must ease by a margin first."""
    found = [
        _low(reading.memory_free, limits.memory_tight, limits.memory_severe, now, _memory),
        _high(reading.own_memory, limits.own_memory_tight, limits.own_memory_severe, now, _own),
        _high(reading.stalled, limits.stalled_tight, limits.stalled_severe, now, _stalled),
        _high(reading.load, limits.load_tight, limits.load_severe, now, _load),
        _low(reading.disk_free_bytes, limits.disk_tight_bytes, limits.disk_severe_bytes, now, _disk),
    ]
    return max(found, key=lambda judgement: judgement.stage)


def _high(figure: float | None, tight: float, severe: float, now: int, say: _Say) -> Judgement:
    if figure is None:
        return Judgement(0)
    for stage, limit in ((2, severe), (1, tight)):
        if figure > limit * (1 - MARGIN if now >= stage else 1):
            return Judgement(stage, say(figure, limit))
    return Judgement(0)


def _low(figure: float | None, tight: float, severe: float, now: int, say: _Say) -> Judgement:
    if figure is None:
        return Judgement(0)
    for stage, limit in ((2, severe), (1, tight)):
        if figure < limit * (1 + MARGIN if now >= stage else 1):
            return Judgement(stage, say(figure, limit))
    return Judgement(0)


def _memory(figure: float, limit: float) -> str:
    return f"{figure:.1%} of the memory is free, and {limit:.1%} is the least"


def _own(figure: float, limit: float) -> str:
    return f"this process holds {figure:.1%} of the memory, and {limit:.1%} is the most"


def _stalled(figure: float, limit: float) -> str:
    return f"{figure:.0%} of the last ten seconds something waited for memory, and {limit:.0%} is the most"


def _load(figure: float, limit: float) -> str:
    return f"the load is {figure:.1f} per core, and {limit:.1f} is the most"


def _disk(figure: float, limit: float) -> str:
    return f"{say_size(int(figure))} are free on the journal's disk, and {say_size(int(limit))} are the least"
