"""What a person or a program sees while an execution is driven or followed: JSON lines, plain lines, or a live picture.

A view is shown everything a watcher sees, in order, and decides how to put it. The live picture is in live_view.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from holdfast.cli.common.invocation import holdfast
from holdfast.cli.output.event_lines import failure_lines, line_of, request_lines
from holdfast.cli.output.format import (
    aside,
    count,
    duration,
    json_line,
    moment,
    one_line,
    output_line,
    silence,
    status_word,
    strip_control_chars,
)
from holdfast.core import events as ev
from holdfast.core.execution import Execution
from holdfast.engine.feed import Watched
from holdfast.tools.runtime.attempt_log import HEARD

WAITS_SHOWN = 5  # of what an execution waits for, in one line
SHOWN_BYTES = 64 * 1024  # of what one step says, at once; a flood would bury everything else
SHOWN_BYTES_S = 16 * 1024  # and a second after that; `holdfast logs` has more of it


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
    """Every event and frame as one line, and at last one object with the outcome; sentences go to stderr, and so does
    what tools print."""

    def begin(self, state: Execution) -> None: ...

    def show(self, watched: Watched) -> None:
        print(json_line(watched.as_dict()), flush=True)

    def note(self, text: str) -> None:
        aside(text, as_json=True)

    def rest(self) -> None: ...

    def end(self, result: Mapping[str, Any]) -> None:
        print(json_line(result), flush=True)


class PlainView:
    """One line per event; what tools say is indented below. What they print is there already if they run here."""

    def __init__(self, *, follows: bool = False) -> None:
        self._follows = follows
        self._programs: set[str] = set()  # steps that run a program of its own, whose output is nowhere else
        self._rooms: dict[str, _Room] = {}
        self._waits = _Waits()
        self._id = "@last"

    def begin(self, state: Execution) -> None:
        self._id = state.id

    def show(self, watched: Watched) -> None:
        event = watched.event
        if isinstance(event, ev.StepStarted) and event.tool.startswith("shell."):
            self._programs.add(event.path)
        if isinstance(event, ev.TaskMessage):
            if self._follows or event.role not in HEARD or event.path in self._programs:
                room = self._rooms.setdefault(event.path, _Room(event.at))
                for line in event.content.splitlines():
                    shown = f"  {event.path} | {strip_control_chars(line)}"
                    if room.takes(event.at, len(shown)):
                        self._own_up(event.path)
                        print(shown, flush=True)
        elif watched.seq is not None and not isinstance(event, ev.StepLogged):
            self._own_up(getattr(event, "path", ""))
            if line := self._waits.line(watched):
                print(line, flush=True)

    def _own_up(self, path: str) -> None:
        room = self._rooms.get(path)
        if room is not None and room.left_out:
            left_out = count(room.left_out, "line")
            print(f"  {path} | ({left_out} left out here; see: {holdfast()} logs {self._id} {path})", flush=True)
            room.left_out = 0

    def note(self, text: str) -> None:
        print(text, flush=True)

    def rest(self) -> None: ...

    def end(self, result: Mapping[str, Any]) -> None:
        print("\n".join(closing_lines(result)), flush=True)


class _Waits:
    """What is waited for, told once, however often the execution looks whether it may go on."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str, str]] = set()
        self._not_listed: set[str] = set()  # kinds of which more waited than was listed; those are told as a number
        self._said_nothing = False

    def line(self, watched: Watched) -> str:
        """An event in a line; "" if it tells nothing that was not told before."""
        event = watched.event
        if isinstance(event, ev.StepStarted):
            self._told = {told for told in self._told if told[1] != event.path}  # what it waits for next is new
        if isinstance(event, ev.TaskStarted) and event.because == "woken" and self._said_nothing:
            return ""
        return self._waiting(watched, event) if isinstance(event, ev.TaskWaiting) else line_of(watched.as_dict())

    def _waiting(self, watched: Watched, event: ev.TaskWaiting) -> str:
        before, self._told = self._told, {_wait_of(reason) for reason in event.reasons}
        counted, self._not_listed = self._not_listed, {reason.kind for reason in event.reasons if reason.more}
        wired: dict[str, Any] = watched.as_dict()
        fresh = [
            told
            for told, reason in zip(wired["reasons"], event.reasons, strict=True)
            if _wait_of(reason) not in before and reason.kind not in counted
        ]
        self._said_nothing = not fresh and bool(event.reasons)
        if self._said_nothing:
            return ""
        shown = [{**told, "more": 0} for told in fresh[:WAITS_SHOWN]]
        more = len(fresh) - len(shown) + sum(told.get("more") or 0 for told in fresh)
        return line_of({**wired, "reasons": shown}) + (f" and {more} more" if more else "")


def _wait_of(reason: ev.Reason) -> tuple[str, str, str]:
    return reason.kind, reason.path, reason.name


class _Room:
    """How much of what one step says is shown, and how many lines were not."""

    def __init__(self, at: int) -> None:
        self.left_out = 0
        self._bytes = float(SHOWN_BYTES)
        self._at = at

    def takes(self, at: int, size: int) -> bool:
        self._bytes = min(float(SHOWN_BYTES), self._bytes + max(0, at - self._at) / 1e6 * SHOWN_BYTES_S)
        self._at = max(at, self._at)
        if size > self._bytes:
            self.left_out += 1
            return False
        self._bytes -= size
        return True


def closing_lines(result: Mapping[str, Any]) -> list[str]:
    """The outcome for people, and what to type next."""
    result = strip_control_chars(dict(result))
    identity, status = result["id"], result["status"]
    lines = [f"{status_word(status)}{_how_far(result)}: {one_line(result['title'] or result['name'])} ({identity})"]
    match status:
        case "completed":
            if result["output"] is not None:
                lines.append(output_line(result["output"], identity))
            lines.append(f"look at it: {holdfast()} show {identity}")
        case "failed":
            lines += failure_lines(result)
        case "stopped":
            lines.append(f"run it again: {holdfast()} retry {identity}")
        case "paused" | "interrupted":
            lines.append(f"go on with: {holdfast()} resume {identity}")
        case "waiting":
            for request in result["requests"]:
                lines += request_lines(request, request["execution_id"])
            if result["driven"]:
                lines.append("then it goes on in the process that drives it")
            else:
                lines.append(f"then go on with: {holdfast()} resume {identity}")
        case _ if result["driven"]:
            lines.append(f"another process drives it; follow it with: {holdfast()} watch {identity}")
        case _:
            lines.append(f"go on with: {holdfast()} resume {identity}")
    return lines


def _how_far(result: Mapping[str, Any]) -> str:
    started, ended = moment(result["started_at"]), moment(result["ended_at"])
    took = f" in {duration((ended - started).total_seconds())}" if started and ended else ""
    total = result["steps_total"]
    if total and result["status"] in ("failed", "stopped"):  # steps that failed or were skipped have ended, too
        return f"{took}, {result['steps_completed']} of {total} steps completed"
    if result["failures"] and result["status"] == "completed":
        return f"{took}, {result['failures']}"
    return f"{took}, {result['steps_ended']} of {total} steps" if total else took


def view_for(as_json: bool, *, follows: bool = False) -> View:
    from holdfast.cli.output.format import is_terminal, keep_stdout_for_answers

    if as_json:
        keep_stdout_for_answers()
        return JsonView()
    if is_terminal():
        from holdfast.cli.output.live_view import LiveView

        return LiveView()
    return PlainView(follows=follows)
