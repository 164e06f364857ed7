"""What a person or a program sees while an execution is driven or followed: JSON lines, plain lines, or a live picture.

A view is shown everything a watcher sees, in order, and decides how to put it. The live picture is in live.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from holdfast.cli.story import failure_lines, line_of, request_lines
from holdfast.cli.text import aside, duration, json_line, moment, output_line, silence, status_word
from holdfast.core import events as ev
from holdfast.core.execution import Execution
from holdfast.engine.feed import Watched


class View(Protocol):
    def begin(self, state: Execution) -> None:
        """The execution as it is before the first event that will be shown."""
        ...

    def show(self, watched: Watched) -> None: ...

    def note(self, text: str) -> None:
        """A sentence about what this process does."""
        ...

    def rest(self) -> None:
        """Leave the terminal to a question; the next event takes it back."""
        ...

    def end(self, result: Mapping[str, Any]) -> None:
        """How it stands when this process lets go."""
        ...


class Audience:
    """A view for as long as somebody looks.

    Whoever drives goes on when the reader leaves, as in `holdfast run PLAN | head`, and says no more.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self.has_left = False

    def begin(self, state: Execution) -> None:
        self._say(lambda: self._view.begin(state))

    def show(self, watched: Watched) -> None:
        self._say(lambda: self._view.show(watched))

    def note(self, text: str) -> None:
        self._say(lambda: self._view.note(text))

    def rest(self) -> None:
        self._say(self._view.rest)

    def end(self, result: Mapping[str, Any]) -> None:
        self._say(lambda: self._view.end(result))

    def _say(self, something: Callable[[], None]) -> None:
        if self.has_left:
            return
        try:
            something()
        except BrokenPipeError:
            self.has_left = True
            silence()


class JsonView:
    """Every event and frame as one line, and at last one object with the outcome; sentences go to stderr."""

    def begin(self, state: Execution) -> None: ...

    def show(self, watched: Watched) -> None:
        print(json_line(watched.as_dict()), flush=True)

    def note(self, text: str) -> None:
        aside(text, as_json=True)

    def rest(self) -> None: ...

    def end(self, result: Mapping[str, Any]) -> None:
        print(json_line(result), flush=True)


class PlainView:
    """One line per event; what tools say is indented below."""

    def begin(self, state: Execution) -> None: ...

    def show(self, watched: Watched) -> None:
        event = watched.event
        if isinstance(event, ev.TaskMessage):
            for line in event.content.splitlines():
                print(f"  {event.path} | {line}", flush=True)
        elif watched.seq is not None:
            print(line_of(watched.as_dict()), flush=True)

    def note(self, text: str) -> None:
        print(text, flush=True)

    def rest(self) -> None: ...

    def end(self, result: Mapping[str, Any]) -> None:
        print("\n".join(closing_lines(result)), flush=True)


def closing_lines(result: Mapping[str, Any]) -> list[str]:
    """The outcome for people, and what to type next."""
    identity, status = result["id"], result["status"]
    lines = [f"{status_word(status)}{_how_far(result)}: {result['title'] or result['name']} ({identity})"]
    match status:
        case "completed":
            if result["output"] is not None:
                lines.append(output_line(result["output"], identity))
            lines.append(f"look at it: holdfast show {identity}")
        case "failed":
            lines += failure_lines(result)
        case "stopped":
            lines.append(f"run it again: holdfast retry {identity}")
        case "paused" | "interrupted":
            lines.append(f"go on with: holdfast resume {identity}")
        case "waiting":
            for request in result["requests"]:
                lines += request_lines(request, request["execution_id"])
            lines.append(f"then go on with: holdfast resume {identity}")
        case _:
            lines.append(f"go on with: holdfast resume {identity}")
    return lines


def _how_far(result: Mapping[str, Any]) -> str:
    started, ended = moment(result["started_at"]), moment(result["ended_at"])
    took = f" in {duration((ended - started).total_seconds())}" if started and ended else ""
    total = result["steps_total"]
    return f"{took}, {result['steps_ended']} of {total} steps" if total else took


def view_for(as_json: bool) -> View:
    from holdfast.cli.text import is_terminal

    if as_json:
        return JsonView()
    if is_terminal():
        from holdfast.cli.live import LiveView

        return LiveView()
    return PlainView()
