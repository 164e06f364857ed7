"""What tools say while they work, and what watchers see of it: live frames, and notes that are journaled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.errors import InvalidCall
from holdfast.core.execution import Execution, percent
from holdfast.core.lifecycle import STEP_ENDS
from holdfast.tools.call import Call

if TYPE_CHECKING:
    from holdfast.engine.driver import Driver


class Voice:
    """The host of one execution's calls."""

    def __init__(self, run: Driver) -> None:
        self._run = run
        self._state = run.state
        self._feed = run.services.feed
        if self.is_heard():
            self.moved(())  # a driver has come: whoever watches sees where it begins

    def is_heard(self) -> bool:
        """Whether anybody watches; frames that nobody sees are not made."""
        return self._state.id in self._feed.watched

    def make_call(self, path: str, attempt: int, notes: ev.MaybeRaw) -> Call:
        data = msgspec.json.decode(notes) if notes else None
        key = f"{self._state.id}:{path}"
        return Call(self._state.id, path, attempt, key, self._run.services.folder, data, self)

    async def note(self, call: Call, data: bytes) -> None:
        run = self._run
        step = self._state.steps[call.path]
        if step.status in STEP_ENDS or step.attempt != call.attempt:
            raise InvalidCall(f"{call.path}: attempt {call.attempt} is over; what it notes now cannot be kept")
        run.append(ev.StepNoted(at=run.now_us(), path=call.path, attempt=call.attempt, data=Raw(data)))
        await run.durable()

    def say(self, call: Call, content: str, role: str, streaming: bool) -> None:
        self._show(
            ev.TaskMessage(
                at=self._run.now_us(), after=self._state.seq, role=role, content=content, streaming=streaming,
                path=call.path, attempt=call.attempt,
            )
        )  # fmt: skip

    def progress(self, call: Call, percent: float, text: str) -> None:
        self._show(self._progress(call.path, "running", step_percent=percent, text=text))

    def call(self, call: Call, tool: str, arguments: bytes) -> None:
        self._show(
            ev.TaskToolCall(
                at=self._run.now_us(), after=self._state.seq, tool=tool, arguments=Raw(arguments), call_id=call.key,
                path=call.path,
            )
        )  # fmt: skip

    def moved(self, events: Sequence[ev.Event]) -> None:
        """Something was journaled: show how far the execution is."""
        path = cast(str, getattr(events[-1], "path", "")) if events else ""
        self._show(self._progress(path, _phase(self._state)))

    def _progress(
        self, path: str, phase: ev.Phase, step_percent: float | None = None, text: str = ""
    ) -> ev.TaskProgress:
        state = self._state
        return ev.TaskProgress(
            at=self._run.now_us(),
            after=state.seq,
            percent=round(percent(state), 1),
            step=path,
            phase=phase,
            waiting_for=tuple(reason.kind for reason in state.reasons),
            step_percent=step_percent,
            text=text,
        )

    def _show(self, frame: ev.AnyFrame) -> None:
        self._feed.show(self._state.id, frame)


def _phase(state: Execution) -> ev.Phase:
    if state.status == "waiting":
        return "waiting"
    if state.is_ended or (state.total and state.ended >= state.total):
        return "finishing"
    return "running" if state.steps else "preparing"
