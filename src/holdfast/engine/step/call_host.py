"""What tools say while they work, and what watchers see of it: live frames, and notes and logs that are journaled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.errors import InvalidCall
from holdfast.core.execution import Execution, call_key, percent
from holdfast.core.lifecycle import STEP_ENDS
from holdfast.tools.call import Call, Task, task_of
from holdfast.tools.runtime.attempt_log import SAID, Logbook, LogLine, encode_lines
from holdfast.tools.runtime.output_capture import cover, let_go
from holdfast.tools.secrets.redaction import masks

if TYPE_CHECKING:
    from holdfast.engine.drive.driver import Driver


class CallHost:
    """The host of one execution's calls."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._state = driver.state
        self._feed = driver.services.feed
        self._task: Task | None = None
        self._unsaid: dict[Call, tuple[str, str]] = {}  # the ends of streaming texts, with their roles
        if self.is_heard():
            self.moved(())  # a driver has come: whoever watches sees where it begins

    def is_heard(self) -> bool:
        """Whether anybody watches; frames that nobody sees are not made."""
        return self._state.id in self._feed.watched

    def make_call(self, path: str, attempt: int, notes: ev.MaybeRaw) -> Call:
        cover()
        data = msgspec.json.decode(notes) if notes else None
        step = self._state.steps.get(path)
        key = (step.call_key if step is not None else "") or call_key(self._state.id, path)
        call = Call(self._state.id, path, attempt, key, self._driver.services.folder, data, self)
        call.task = self._task = self._task or task_of(self._state.facts(), self._state.id)
        if step is not None and step.secrets:
            call.secrets = step.secrets
        return call

    async def note(self, call: Call, data: bytes) -> None:
        run = self._driver
        self.check_open(call, "what it notes now cannot be kept")
        data = masks.json(data)
        run.append(ev.StepNoted(at=run.now_us(), path=call.path, attempt=call.attempt, data=Raw(data)))
        await run.durable()

    def check_open(self, call: Call, what: str) -> None:
        step = self._state.steps[call.path]
        if step.status in STEP_ENDS or step.attempt != call.attempt:
            raise InvalidCall(f"{call.path}: attempt {call.attempt} is over; {what}")

    def say(self, call: Call, content: str, role: str, streaming: bool) -> None:
        at = self._driver.now_us()
        if content:
            self._write_down(call, at, SAID, content, ends=not streaming)
        if self.is_heard():
            if masks.active:
                content = self._told(call, role, content, streaming)
            self._message(call, at, role, content, streaming)

    def _told(self, call: Call, role: str, content: str, streaming: bool) -> str:
        """What watchers may see of it. Of a text that streams, what may be the beginning of a secret comes later."""
        whole = self._unsaid.pop(call, ("", ""))[1] + content
        cut = len(whole) - (masks.held_back(whole) if streaming else 0)
        if cut < len(whole):
            self._unsaid[call] = (role, whole[cut:])
        return masks.text(whole[:cut])

    def hear(self, call: Call, stream: str, text: str) -> None:
        """Printed or logged, in whichever thread; watchers see whole lines."""
        at = self._driver.now_us()
        lines = self._write_down(call, at, stream, text)
        if lines and self.is_heard():
            content = "".join(f"{line.text}\n" for line in lines)
            self._on_loop(self._message, call, at, stream, content, False)

    def _message(self, call: Call, at: int, role: str, content: str, streaming: bool) -> None:
        self._show(
            ev.TaskMessage(
                at=at, after=self._state.seq, role=role, content=content, streaming=streaming, path=call.path,
                attempt=call.attempt,
            )
        )  # fmt: skip

    # ---- the log of an attempt ----------------------------------------------------------------------------------

    def _write_down(self, call: Call, at: int, stream: str, text: str, *, ends: bool = False) -> list[LogLine]:
        book = call.book
        if book is None:
            book = call.book = Logbook(at)
        lines = book.write(at, stream, text, ends=ends)
        if at >= book.keep_at:  # a long attempt: what a crash would lose is kept now and then
            self._on_loop(self._keep, call, book.take_first(at))
        return lines

    def keep_trace(self, call: Call, text: str) -> None:
        """Where an error came from: for the log alone, since whoever watches is told of the failure itself."""
        self._write_down(call, self._driver.now_us(), "error", text, ends=True)

    def close(self, call: Call) -> None:
        """The attempt is over: its log is appended at once, and so written together with its outcome."""
        if masks.active:
            with suppress(OSError, ValueError):  # whoever read what is printed is gone
                let_go(call)
        if call in self._unsaid and self.is_heard():
            role, rest = self._unsaid.pop(call)
            self._message(call, self._driver.now_us(), role, masks.text(rest), True)
        book, call.book = call.book, None
        if book is not None:
            self._keep(call, book.close(self._driver.now_us()))

    def _keep(self, call: Call, lines: list[LogLine]) -> None:
        run = self._driver
        step = self._state.steps.get(call.path)
        if not lines or step is None or run.log.error is not None or run.log.released:
            return  # whoever was cut off for good has nothing more to say
        log = run.log.blobs.put(encode_lines(lines))
        at = run.now_us()
        run.append(ev.StepLogged(at=at, path=call.path, attempt=call.attempt, log=log, lines=len(lines)))

    def _on_loop(self, show: Callable[..., None], *args: Any) -> None:
        try:
            here = asyncio.get_running_loop() is self._driver.loop
        except RuntimeError:
            here = False
        if here:
            show(*args)
        else:
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody is there any more
                self._driver.loop.call_soon_threadsafe(show, *args)

    def progress(self, call: Call, percent: float, text: str) -> None:
        self._show(self._progress(call.path, "running", step_percent=percent, text=masks.text(text)))

    def call(self, call: Call, tool: str, arguments: bytes) -> None:
        self._show(
            ev.TaskToolCall(
                at=self._driver.now_us(), after=self._state.seq, tool=tool, arguments=Raw(arguments), call_id=call.key,
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
            at=self._driver.now_us(),
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
