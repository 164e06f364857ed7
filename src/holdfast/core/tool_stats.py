"""How tools have done: calls, failures and durations, counted from the events of executions.

Pure: whoever reads a journal hands its events in, one execution at a time. What nobody has measured is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.core import events as ev


@dataclass
class Figures:
    """Of one tool. A call is one attempt; what was cut off is neither a success nor a failure."""

    calls: int = 0
    failures: int = 0
    cached: int = 0
    durations_us: list[int] = field(default_factory=list[int])

    def quantile_s(self, share: float) -> float | None:
        """The duration that this share of the calls that succeeded did not exceed."""
        if not self.durations_us:
            return None
        ordered = sorted(self.durations_us)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6


def count(events: Iterable[ev.Event], into: dict[str, Figures]) -> None:
    """Add one execution's events, in their order."""
    running: dict[str, str] = {}  # path → the tool that was called for it
    for event in events:
        match event:
            case ev.StepStarted() if event.kind == "tool":
                running[event.path] = event.tool
            case ev.StepCompleted():
                tool = running.pop(event.path, "")
                if tool and event.cached:
                    _of(into, tool).cached += 1
                elif tool and not event.by:
                    figures = _of(into, tool)
                    figures.calls += 1
                    figures.durations_us.append(event.duration_us)
            case ev.StepFailed() | ev.StepRetrying() | ev.StepInDoubt():
                _failed(into, running.pop(event.path, ""))
            case ev.StepWaiting() if event.reason == "correction":
                _failed(into, running.pop(event.path, ""))
            case ev.StepInterrupted() | ev.StepSkipped():
                running.pop(event.path, None)
            case _:
                pass


def _failed(into: dict[str, Figures], tool: str) -> None:
    if tool:
        figures = _of(into, tool)
        figures.calls += 1
        figures.failures += 1


def _of(into: dict[str, Figures], tool: str) -> Figures:
    return into.setdefault(tool, Figures())
