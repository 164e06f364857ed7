"""Limits that the commands of one execution share: what they hold at once, and what they have used up since it began.

Imports nothing of Holdfast's: the keeper runs it in an interpreter of its own. Looks at no process either: it is told
what each command uses, and says whether all of them are beyond a limit, and which of them is to be ended for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

HELD = ("processes", "memory", "open_files")  # given back when a command ends; the rest is used up for good
USED_UP = ("cpu", "disk")
PREFIX = "total."  # before the name of a limit in `over`, if it is one that was shared


class Share(Protocol):
    """One command, as it was at the last look; `over` says that it is being ended."""

    over: str
    members: set[int]
    now: dict[str, float]


class LimitOffender(NamedTuple):
    """The command to be ended, by its process; the limit, and what all of them use of it."""

    pid: int
    over: str
    used: float


class SharedLimitsCheck:
    def __init__(self, limits: Mapping[str, float], slack: Mapping[str, float]) -> None:
        self._limits = limits
        self._slack = slack  # that is let pass
        self._spent: dict[str, float] = {name: 0.0 for name in USED_UP}  # by commands that have ended

    def remember(self, spent: Mapping[str, float]) -> None:
        """What the engine knows to be used up, also from before this process; whoever knows of more is right."""
        for name in USED_UP:
            self._spent[name] = max(self._spent[name], spent.get(name, 0.0))

    def offender(
        self, shares: Mapping[int, Share], shared_once: Callable[[Iterable[int]], int | None]
    ) -> LimitOffender | None:
        """Who is to be ended, if all together are beyond a limit: whoever has the most of it.

        What is being ended already holds nothing that counts: it would make others pay for it.
        """
        living = {pid: share for pid, share in shares.items() if not share.over}
        for name in (*HELD, *USED_UP):
            counted = shares if name in USED_UP else living
            used = sum((share.now.get(name, 0.0) for share in counted.values()), self._spent.get(name, 0.0))
            if self._is_over(name, used) and name == "memory" and len(living) > 1:
                everybody = {member for share in living.values() for member in share.members}
                used = min(used, shared_once(everybody) or used)
            if self._is_over(name, used) and living:
                most = max(living, key=lambda pid: living[pid].now.get(name, 0.0))
                return LimitOffender(most, PREFIX + name, used)
        return None

    def ended(self, cpu_s: float, disk_bytes: float) -> tuple[str, float]:
        """A command is over. The limit that was passed unseen, if one was: what it wrote at last is known only now."""
        self._spent["cpu"] += cpu_s
        self._spent["disk"] += disk_bytes
        if disk_bytes and self._is_over("disk", self._spent["disk"]):
            return f"{PREFIX}disk", self._spent["disk"]
        return "", 0.0

    def _is_over(self, name: str, used: float) -> bool:
        allowed = self._limits.get(name)
        return allowed is not None and used > allowed + self._slack.get(name, 0.0)
