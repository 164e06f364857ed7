"""Where a process is killed: how a test says it, and when it has come to that.

before:charge   after:charge         around a call of a tool (its name, or a step's path)
before:charge#2   after:charge#2     the second call, and the second that returns, since the start or the last crash
before:commit:7   after:commit:7     around the seventh journal write; commit:7 is after it
step:completed charge                when an event is on disk and nobody has been told yet; a step's path, or any
"""

from __future__ import annotations

import re
import typing
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.error_text import did_you_mean
from holdfast.testing.lab.errors import LabError

EVERYWHERE = "everywhere"
EVENT_NAMES = frozenset(str(event.__struct_config__.tag) for event in typing.get_args(ev.AnyEvent))
_COMMIT = re.compile(r"(?:(before|after):)?commit:(\d+)")
_COMMIT_MEANT = re.compile(r"(?:(?:before|after):)?commit:.*")
_TOOL = re.compile(r"(before|after):([^\s#]+?)(?:#(\d+))?")
_EVENT = re.compile(r"([a-z]+:[a-z_]+)(?: ([^\s#]+))?(?:#(\d+))?")
_FORMS = (
    'write "before:TOOL" or "after:TOOL" (a tool or a step, "#2" for its second call), "commit:7", '
    'an event such as "step:completed STEP", or "everywhere"'
)

When = Literal["before", "after"]


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """An event, of any step or of one."""

    event: str
    path: str = ""

    def fits(self, event: str, path: str) -> bool:
        return event == self.event and self.path in ("", path)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    when: When = "after"
    commit: int = 0
    tool: str = ""
    moment: Moment | None = None
    nth: int = 1


def parse_moment(text: str) -> Moment | None:
    """`step:completed charge` as an event and a step; None if it is not of that form."""
    found = _EVENT.fullmatch(text.strip())
    if found is None or found[3]:
        return None
    return Moment(event=_known_event(found[1], text), path=found[2] or "")


def parse_points(given: Any) -> list[Point]:
    """What a test says as `crash_at`: nothing, a point, or some of them."""
    if given is None:
        return []
    points = cast("Sequence[Any]", given if isinstance(given, list | tuple) else [given])
    if not points:
        raise LabError("crash_at is empty, so nothing would crash; leave it out, or name a point")
    for point in points:
        if not isinstance(point, str):
            raise LabError(f"crash_at takes a point or a list of points, not {point!r}; {_FORMS}")
        if point == EVERYWHERE:
            raise LabError(f'crash_at: "{EVERYWHERE}" stands alone, not in a list')
    return [parse_point(point) for point in points]


def parse_point(text: str) -> Point:
    text = text.strip()
    if found := _COMMIT.fullmatch(text):
        if int(found[2]) == 0:
            raise LabError('crash_at="commit:0": journal writes are counted from 1')
        return Point(text=text, when=cast("When", found[1] or "after"), commit=int(found[2]))
    if _COMMIT_MEANT.fullmatch(text):
        raise LabError(f'crash_at="{text}": say the number of the journal write, such as "commit:7"')
    if found := _TOOL.fullmatch(text):
        return Point(text=text, when=cast("When", found[1]), tool=found[2], nth=_nth(found[3], text))
    if found := _EVENT.fullmatch(text):
        moment = Moment(event=_known_event(found[1], text), path=found[2] or "")
        return Point(text=text, moment=moment, nth=_nth(found[3], text))
    raise LabError(f'crash_at="{text}" names no point; {_FORMS}')


def _nth(given: str | None, text: str) -> int:
    if given is not None and int(given) == 0:
        raise LabError(f'crash_at="{text}": calls and events are counted from 1')
    return int(given or 1)


def _known_event(name: str, text: str) -> str:
    if name not in EVENT_NAMES:
        raise LabError(f'"{text}": there is no event {name}{did_you_mean(name, EVENT_NAMES)}; {_FORMS}')
    return name


class Crashes:
    """The points of one run, in order: each waits until the one before it has killed its process."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._waiting = list(points)
        self._count = 0
        self.reached: list[str] = []

    @property
    def left(self) -> list[Point]:
        return self._waiting

    def at_commit(self, when: When, number: int) -> bool:
        point = self._next()
        return point is not None and (point.when, point.commit) == (when, number) and self._fire(point)

    def at_tool(self, when: When, tool: str, path: str) -> bool:
        point = self._next()
        if point is None or point.when != when or point.tool not in (tool, path):
            return False
        return self._counted(point)

    def at_events(self, events: Sequence[tuple[str, str]]) -> bool:
        point = self._next()
        if point is None or point.moment is None:
            return False
        moment = point.moment
        return any(moment.fits(*event) and self._counted(point) for event in events)

    def _next(self) -> Point | None:
        return self._waiting[0] if self._waiting else None

    def _counted(self, point: Point) -> bool:
        self._count += 1
        return self._count == point.nth and self._fire(point)

    def _fire(self, point: Point) -> bool:
        self._waiting.pop(0)
        self._count = 0
        self.reached.append(point.text)
        return True
