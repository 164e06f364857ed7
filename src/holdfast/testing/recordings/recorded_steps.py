"""What was recorded of each step, and what the new code asks for beside it.

Owns what "in the same way" means for a step: the same tool with the same input and effect, the same wait, the same
question, the same need for a person's yes. Knows nothing of how the new code is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.errors import Divergence
from holdfast.core.execution import parent_of
from holdfast.core.policy import Approval
from holdfast.engine.program import StepCall
from holdfast.engine.step.perform import input_digest
from holdfast.testing.recordings.recording import Difference, NewStep
from holdfast.tools.json_values import encode

TIMEOUT_SLACK_US = 1_000_000  # a wait is journaled a moment after its limit was worked out


class Past(msgspec.Struct, kw_only=True):
    """The first that was recorded of a step: later attempts may be others, of a fallback or with less."""

    started: ev.StepStarted | None = None
    waiting: ev.StepWaiting | None = None
    request: ev.Request | None = None
    requested_at: int = 0
    was_approved: bool = False  # for the rest of the execution, when it began
    was_held: bool = False  # just before it began to wait

    @property
    def tool(self) -> str:
        first = self.started or self.waiting
        return first.tool if first is not None else ""

    @property
    def digest(self) -> str:
        first = self.started or self.waiting
        return first.digest if first is not None else ""


class Notes:
    """`knows` says whether a tool is really there; of the others nothing but the name is known."""

    def __init__(self, events: Sequence[ev.Event], knows: Callable[[str], bool]) -> None:
        self.divergences: list[Difference] = []
        self.new_steps: list[NewStep] = []
        self.open_steps: list[NewStep] = []
        self.has_stopped = False  # a function that diverges gets no further
        self._knows = knows
        self._asked: set[str] = set()
        self._past = _pasts(events)
        created = events[0]
        self._is_fork = isinstance(created, ev.TaskCreated) and created.forked_from is not None

    @property
    def paths(self) -> list[str]:
        """All steps of which anything was recorded."""
        return list(self._past)

    def asked(self, path: str) -> None:
        self._asked.add(path)

    def new(self, path: str, tool: str, arguments: Any = None) -> None:
        self.new_steps.append(NewStep(path, tool, arguments))

    def still_open(self, path: str, tool: str, arguments: Any = None) -> None:
        self.open_steps.append(NewStep(path, tool, arguments))

    def differs(self, path: str, recorded: str, attempted: str) -> None:
        """Once for each step: what is noticed first says most."""
        if all(path != known.path for known in self.divergences):
            self.divergences.append(Difference(path, recorded, attempted))

    def diverged_with(self, error: Divergence) -> None:
        """What the engine itself noticed, such as another kind of wait."""
        self.has_stopped = True
        self.differs(error.path, error.recorded, error.attempted)

    # ---- comparing ----------------------------------------------------------------------------------------------

    def compare_call(self, call: StepCall) -> None:
        past = self._past.get(call.path)
        if past is None or not past.tool:
            return
        asked = encode(call.arguments, call.path)
        digest = input_digest(call.tool.name, asked)
        if past.digest != digest if past.digest else past.tool != call.tool.name:
            self.has_stopped = self.has_stopped or call.strict
            self.differs(call.path, _told(past), f"{call.tool.name} {asked.decode()}")
            return
        if self._knows(call.tool.name) or call.strict:
            self._compare_effect(call, past)
            wanted = call.policy.approval or call.tool.approval
            self._compare_approval(call.path, past, wanted, f"run {call.tool.name}?")
        elif call.policy.effect is not None:  # the plan says it, whatever the tool is
            self._compare_effect(call, past)

    def _compare_effect(self, call: StepCall, past: Past) -> None:
        effect = call.policy.effect or call.tool.effect
        if past.started is not None and past.started.effect != effect:
            name = call.tool.name
            self.differs(call.path, f"{name}, effect {past.started.effect}", f"{name}, effect {effect}")

    def _compare_approval(self, path: str, past: Past, wanted: Approval | None, default: str) -> None:
        asked = past.request
        if asked is not None and asked.kind != "approval":
            asked = None  # it asked a person something else, or for money
        if asked is None and (wanted is None or past.was_approved or self._is_fork):
            return  # a fork keeps what was done, not what was said about it
        was = _approval(asked.message, (asked.expires_at or 0) - past.requested_at) if asked else "no approval"
        now = _approval(wanted.message or default, int(wanted.expires_s * 1e6)) if wanted else "no approval"
        if was != now:
            self.differs(path, was, now)

    def compare_sleep(self, path: str, due_at: int, name: str) -> None:
        """One that names its length was compared by the engine; one until a moment has only that."""
        past = self._past.get(path)
        if past is None or past.waiting is None or name or past.waiting.due_at in (None, due_at):
            return
        self.differs(path, f"wait.timer until {_moment(past.waiting.due_at)}", f"wait.timer until {_moment(due_at)}")

    def compare_timeout(self, path: str, limit_us: int | None) -> None:
        past = self._past.get(path)
        if past is None or past.waiting is None:
            return
        waiting = past.waiting
        was_us = None if waiting.due_at is None else waiting.due_at - waiting.at
        if limit_us is None or was_us is None:
            is_same = limit_us == was_us
        else:  # while it was held, its time ran already
            is_same = abs(limit_us - was_us) < TIMEOUT_SLACK_US or (past.was_held and limit_us > was_us)
        if not is_same:
            self.differs(path, f"wait.event, {_limit(was_us)}", f"wait.event, {_limit(limit_us)}")

    def compare_question(self, path: str, schema: Raw) -> None:
        past = self._past.get(path)
        if past is not None and past.request is not None and bytes(past.request.schema) != bytes(schema):
            self.differs(
                path, f"human.ask {bytes(past.request.schema).decode()}", f"human.ask {bytes(schema).decode()}"
            )

    # ---- what is missing ----------------------------------------------------------------------------------------

    def left_out(self) -> list[str]:
        """Recorded steps that nobody asked for. What is inside a step goes with it."""
        return [] if self.has_stopped else [path for path in self._past if not self._is_asked(path)]

    def _is_asked(self, path: str) -> bool:
        while path:
            if path in self._asked and path in self._past:
                return True
            path = parent_of(path)
        return False


def _pasts(events: Sequence[ev.Event]) -> dict[str, Past]:
    pasts: dict[str, Past] = {}
    sticky: set[str] = set()
    tools: dict[str, str] = {}  # by request
    before: ev.Event | None = None
    for event in events:
        match event:
            case ev.StepStarted(path=path):
                past = pasts.setdefault(path, Past())
                if past.started is None:
                    past.started, past.was_approved = event, event.tool in sticky
            case ev.StepWaiting(path=path):
                past = pasts.setdefault(path, Past())
                if past.waiting is None:
                    past.waiting = event
                    past.was_held = isinstance(before, ev.TaskStarted | ev.TaskRecovered)
            case ev.StepSkipped(path=path):
                pasts.setdefault(path, Past())
            case ev.ApprovalRequested(request=request) | ev.RequestOpened(request=request):
                tools[request.id] = request.tool
                past = pasts.setdefault(request.path, Past())
                if past.started is None and past.request is None:
                    past.request, past.requested_at = request, event.at
            case ev.ApprovalGranted(request_id=request_id, sticky=True):
                sticky.add(tools.get(request_id, ""))
            case _:
                pass
        before = event
    return pasts


def _told(past: Past) -> str:
    if past.started is not None:
        return f"{past.started.tool} {bytes(past.started.arguments).decode()}"
    if past.request is not None and past.request.tool:
        return f"{past.tool} {bytes(past.request.arguments).decode()}"
    if past.request is not None and past.request.kind == "question":
        return f"{past.tool} {_question(past.request, past.requested_at)}"
    return past.tool


def _question(asked: ev.Request, at_us: int) -> str:
    within = f" within {_limit(asked.expires_at - at_us)}" if asked.expires_at is not None else ""
    return f"{msgspec.json.encode(asked.message).decode()} {bytes(asked.schema).decode()}{within}"


def _approval(message: str, expires_us: int) -> str:
    return f"approval {msgspec.json.encode(message).decode()} within {expires_us / 1e6:g} s"


def _moment(at_us: int | None) -> str:
    return datetime.fromtimestamp((at_us or 0) / 1e6, UTC).isoformat()


def _limit(limit_us: int | None) -> str:
    return "no limit" if limit_us is None else f"{limit_us / 1e6:g} s"
