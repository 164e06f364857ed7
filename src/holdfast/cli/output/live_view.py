"""The live picture on a terminal: the step list, a bar, and what the running steps say. Needs rich."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.cli.output.event_lines import how_again, line_of
from holdfast.cli.output.format import (
    MARK_OF_FAILURES,
    STATUS_COLOURS,
    STEP_MARKS,
    duration,
    has_colours,
    one_line,
    strip_control_chars,
    value,
)
from holdfast.cli.output.step_tree import label, tree
from holdfast.cli.output.views import closing_lines
from holdfast.core import events as ev
from holdfast.core.execution import Execution, Step, percent
from holdfast.core.failed_steps import with_failures_inside
from holdfast.core.fold import apply
from holdfast.core.lifecycle import STEP_ENDS
from holdfast.engine.feed import Watched
from holdfast.engine.json_view import planned_steps

REFRESHES_PER_S = 8
ROWS_MIN = 5
NAME_SHARE_MAX = 60  # percent of the width that names may take
_TOLD = (
    "task:recovered", "task:resumed", "task:paused", "task:interrupted", "event:received", "plan:extended",
    "budget:warned", "budget:exhausted", "budget:raised", "pressure:felt",
)  # fmt: skip


class LiveView:
    def __init__(self) -> None:
        self._console = Console(highlight=False, color_system="auto" if has_colours() else None)
        self._live: Live | None = None
        self._state = Execution(id="")
        self._planned: list[str] = []
        self._said: dict[str, str] = {}

    def begin(self, state: Execution) -> None:
        self._state = state
        self._planned = [*planned_steps(state)]
        self._wake()

    def show(self, watched: Watched) -> None:
        event = watched.event
        if isinstance(event, ev.TaskMessage):
            lines = event.content.strip().splitlines()
            if lines:
                self._said[event.path] = strip_control_chars(lines[-1])
            return
        if watched.seq is None or isinstance(event, ev.Frame):
            return
        if watched.seq == self._state.seq + 1:
            apply(self._state, event, watched.seq)
        if isinstance(event, ev.TaskCreated | ev.PlanExtended):
            self._planned = [*planned_steps(self._state)]
        self._wake()
        if watched.type in _TOLD:
            self._print(line_of(watched.as_dict()), "yellow")

    def note(self, text: str) -> None:
        self._print(text, "dim")

    def rest(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def end(self, result: Mapping[str, Any]) -> None:
        self.rest()
        self._console.print(Text.from_ansi("\n".join(closing_lines(result))), soft_wrap=True)

    def _wake(self) -> None:
        if self._live is None:
            self._live = Live(
                get_renderable=self._render, console=self._console, refresh_per_second=REFRESHES_PER_S, transient=False
            )
            self._live.start()

    def _print(self, text: str, style: str) -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)

    # ---- the picture --------------------------------------------------------------------------------------------

    def _render(self) -> RenderableType:
        state = self._state
        if state.created is None:
            return Text("starting …", style="dim")
        return Group(self._heading(state), self._steps(state), self._bar(state))

    def _heading(self, state: Execution) -> Text:
        created = state.facts()
        heading = Text.assemble((one_line(strip_control_chars(state.title or created.program.name)), "bold"), "  ")
        heading.append(state.status, STATUS_COLOURS.get(state.status, ""))
        heading.append(f"  {state.id}", "dim")
        return heading

    def _steps(self, state: Execution) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=self._console.width * NAME_SHARE_MAX // 100)
        table.add_column(justify="right", no_wrap=True, style="dim")
        table.add_column()  # the one column that may shrink; its texts are cut, not wrapped
        rows = list(_visible(state, self._planned))
        torn = with_failures_inside(path for path, step in state.steps.items() if step.status == "failed")
        room = max(ROWS_MIN, self._console.height - 5)
        hidden = len(rows) - room
        if hidden > 0:
            rows = _most_telling(rows, state, room)
            table.add_row(Text(f"  … {hidden} more", style="dim"), "", "")
        for depth, path in rows:
            step = state.steps.get(path) or Step(path=path)
            table.add_row(*self._row(step, depth, path in torn))
        return table

    def _row(self, step: Step, depth: int, has_failures: bool) -> tuple[Text, str, Text]:
        has_failures = has_failures and step.status == "completed"
        sign, style = MARK_OF_FAILURES if has_failures else STEP_MARKS[step.status]
        name = Text.assemble("  " * (depth + 1), (sign, style), " ", label(step.path, depth))
        if step.total:
            name.append(f"  {step.ended}/{step.total}", "dim")
        remark = Text("with failures inside", style="yellow") if has_failures else self._remark(step)
        remark.no_wrap, remark.overflow = True, "ellipsis"
        return name, _took(step), remark

    def _remark(self, step: Step) -> Text:
        match step.status:
            case "failed" if step.failure is not None:
                lived = "" if step.critical else "not critical, going on: "
                return Text(lived + value(step.failure.message), style="red" if step.critical else "yellow")
            case "retrying" if step.failure is not None:
                left_s = max(0.0, (step.due_at or 0) / 1e6 - time.time())
                return Text(
                    f"attempt {step.attempt} failed, next in {left_s:.0f} s: {value(step.failure.message)}", "yellow"
                )
            case "skipped" | "in_doubt":
                return Text(step.reason, style="dim")
            case "waiting":
                return Text(f"waits for {step.name or step.reason}", style="yellow")
            case "running":
                return Text(self._said.get(step.path, step.tool if step.kind == "tool" else ""), style="dim")
            case "completed" if step.warning:
                return Text(f"warning: {value(step.warning)}", "yellow")
            case "completed" if step.attempt > 1:
                how = how_again({"reduced": step.reduced, "refreshed": step.refreshed})
                return Text(f"on attempt {step.attempt}{how}", style="dim")
            case _:
                return Text("")

    def _bar(self, state: Execution) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        elapsed_s = ((state.ended_at or time.time() * 1e6) - (state.started_at or state.last_at)) / 1e6
        words = f"{state.ended}/{state.total}" if state.total else f"{state.ended} steps"
        bar = ProgressBar(total=100, completed=percent(state), width=min(40, self._console.width // 2))
        table.add_row("  ", bar, words, Text(duration(max(0.0, elapsed_s)), style="dim"))
        return table


def _took(step: Step) -> str:
    if not step.started_at:
        return ""
    end_us = step.ended_at or (time.time() * 1e6 if step.status == "running" else 0)
    return duration((end_us - step.started_at) / 1e6) if end_us else ""


def _visible(state: Execution, planned: list[str]) -> list[tuple[int, str]]:
    """The tree without what lies inside finished steps, and of open ones only what is not finished."""
    shown: list[tuple[int, str]] = []
    hidden_below = -1
    for depth, path in tree([*dict.fromkeys([*planned, *state.steps])]):
        if hidden_below >= 0 and depth > hidden_below:
            continue
        hidden_below = -1
        step = state.steps.get(path)
        if step is not None and step.status in STEP_ENDS:
            hidden_below = depth
            if depth:
                continue
        shown.append((depth, path))
    return shown


def _most_telling(rows: list[tuple[int, str]], state: Execution, room: int) -> list[tuple[int, str]]:
    """What moves comes first, then what comes next, then what ended last; the order stays."""

    def weight(row: tuple[int, str]) -> int:
        step = state.steps.get(row[1])
        if step is None:
            return 1
        return 2 if step.status in STEP_ENDS else 0

    positions = sorted(range(len(rows)), key=lambda i: (weight(rows[i]), i if weight(rows[i]) < 2 else -i))[:room]
    return [rows[i] for i in sorted(positions)]
