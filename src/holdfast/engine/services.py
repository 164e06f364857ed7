"""What every part of an engine shares: the journal, the tools, the time, the dice.

Time, ids and randomness come in through here and nowhere else, so that a simulator can put its own in their place.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.core import events as ev
from holdfast.core.errors import UsageError
from holdfast.core.execution import Execution
from holdfast.core.policy import (
    BREAKER_FAILURES,
    BREAKER_REST_S,
    HEALTH_EVERY_S,
    INTERRUPT_GRACE_S,
    OPTIONAL_WAIT_S,
    PASSIVATE_AFTER_S,
    STEPS_AT_ONCE,
)
from holdfast.core.resources import DEFAULTS, Resources
from holdfast.engine.commands.validation import edits_objection, output_objection, wants_output
from holdfast.engine.limits.guards import Guards
from holdfast.engine.limits.pressure import Pressure
from holdfast.journal.blobs import reference
from holdfast.journal.log import SNAPSHOT_EVENTS_MIN, Log
from holdfast.journal.store import DeletableStore
from holdfast.journal.writer import Writer
from holdfast.tools.registry import Registry
from holdfast.tools.secrets.vault import Vault
from holdfast.tools.tool import Tool

if TYPE_CHECKING:
    from holdfast.engine.feed import Feed
    from holdfast.engine.notifications import Notifier
    from holdfast.engine.program import ProgramKind
    from holdfast.engine.retention import Retention


DEADLINES_EVERY_S = 0.02  # how exactly time limits are kept
LOOK_S = 0.02  # how often other processes' writes are noticed
SWEEP_CHANGED_S = 0.1  # how soon after a write it is looked for what should be driven
TIDY_S = 60.0  # how often it is looked for what ended long ago, if the settings say how long that is
SWEEP_S = 0.5  # how often the dead and the due are looked for when nothing was written


class Clock(Protocol):
    def now_us(self) -> int: ...


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much at once, and how long; each with its unit."""

    executions: int = 100  # running at the same time in this process; the rest wait in the queue
    parked: int = 1000  # waiting executions kept in memory for a quick wake-up; more are put to sleep at once
    passivate_after_s: float = PASSIVATE_AFTER_S
    interrupt_grace_s: float = INTERRUPT_GRACE_S
    steps: int = STEPS_AT_ONCE  # tool calls at the same time in this process
    execution_steps: int = STEPS_AT_ONCE  # and in one execution
    breaker_failures: int = BREAKER_FAILURES  # in a row, before a tool is left alone
    breaker_rest_s: float = BREAKER_REST_S
    optional_wait_s: float = OPTIONAL_WAIT_S  # that a step that may fail waits for a tool that is left alone
    health_every_s: float = HEALTH_EVERY_S
    drain_s: float = 10.0  # how long a closing engine lets running steps finish


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often an engine looks around, and writes down what a journal amounts to.

    In virtual time, looking seldom is what makes a month pass in no time.
    """

    look_s: float = LOOK_S
    sweep_changed_s: float = SWEEP_CHANGED_S
    sweep_s: float = SWEEP_S
    snapshot_events_min: int = SNAPSHOT_EVENTS_MIN
    tidy_s: float = TIDY_S


class Deadlines:
    """Time limits of running attempts, looked at every few milliseconds.

    Nearly every attempt ends long before its limit, so a timer for each would be made only to be thrown away.
    """

    def __init__(self) -> None:
        self._due: dict[asyncio.Task[Any], float] = {}
        self._expired: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, task: asyncio.Task[Any], loop: asyncio.AbstractEventLoop, limit_s: float) -> float | None:
        """Limit what a task does from now on; returns the limit that stood before, for a step within a step."""
        before = self._due.get(task)
        self._due[task] = loop.time() + limit_s
        if self._timer is None:
            self._timer = loop.call_later(DEADLINES_EVERY_S, self._enforce, loop)
        return before

    def clear(self, task: asyncio.Task[Any], before: float | None) -> bool:
        """The attempt has ended; True if it was cancelled because its time was up."""
        if before is None:
            del self._due[task]
        else:
            self._due[task] = before
        if task in self._expired:
            self._expired.discard(task)
            return True
        return False

    def is_over(self, task: asyncio.Task[Any]) -> bool:
        """Whether a task was cancelled because its time was up."""
        return task in self._expired

    def _enforce(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for task, at in self._due.items():
            if at <= now and task not in self._expired:
                self._expired.add(task)
                task.cancel()
        self._timer = loop.call_later(DEADLINES_EVERY_S, self._enforce, loop) if self._due else None


@dataclass(kw_only=True)
class Services:
    store: DeletableStore
    writer: Writer
    registry: Registry
    feed: Feed
    driver: str
    folder: Path
    programs: dict[str, ProgramKind]
    limits: Limits = field(default_factory=Limits)
    pace: Pace = field(default_factory=Pace)
    retention: Retention | None = None
    clock: Clock = field(default_factory=SystemClock)
    rng: random.Random = field(default_factory=random.Random)
    deadlines: Deadlines = field(default_factory=Deadlines)
    pressure: Pressure = field(default_factory=Pressure)
    _in_hand: list[str] = field(default_factory=list[str])
    left_behind: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])
    _living: dict[str, set[asyncio.Future[Any]]] = field(default_factory=dict[str, set[asyncio.Future[Any]]])
    resources: Resources = DEFAULTS  # what the commands of a step may use, if neither step nor tool says otherwise
    secrets: Vault = field(default_factory=Vault)
    notices: Notifier | None = None  # without any, nobody is told of anything
    version: str = ""
    data_folder: Path | None = None  # where checkpoints are written; without one there are none
    on_child: Callable[[str], None] = lambda _: None
    owe_checkpoint: Callable[[str, int, float], None] = lambda _id, _since_us, _when: None  # see checkpointing.Owed

    @cached_property
    def guards(self) -> Guards:
        return Guards(self.limits, self.rng)

    def validation_error(self, state: Execution, events: Sequence[ev.Event]) -> str:
        """What is wrong with what a command brings, as far as programs and tools here can tell; "" if nothing is."""
        for event in events:
            match event:
                case ev.PlanExtended():
                    said = self._extension_objection(state, event)
                case ev.ApprovalGranted() if event.arguments:
                    said = self._edits_objection(state.requests[event.request_id].request, event.arguments)
                case ev.RequestAnswered():
                    said = self._remedy_objection(state, state.requests[event.request_id].request, event)
                case _:
                    said = ""
            if said:
                return said
        return ""

    def _extension_objection(self, state: Execution, event: ev.PlanExtended) -> str:
        kind = state.facts().program.kind
        if kind not in self.programs:
            return ""  # nobody here can tell
        check = getattr(self.programs[kind], "check_extension", None)
        if check is None:
            return f"only plans can be extended; this is a {kind}"
        try:
            check(state, msgspec.json.decode(event.steps, type=list[dict[str, Any]]))
        except msgspec.ValidationError as error:
            return f"the new steps are no list of steps: {error}"
        except UsageError as error:
            return str(error)
        return ""

    def _remedy_objection(self, state: Execution, request: ev.Request, event: ev.RequestAnswered) -> str:
        if event.data and bytes(request.recorded) != b"null" and event.remedy == "again":
            return "it is done again with the input it has now; to change that, give the execution other inputs"
        if request.keeps:
            is_said = event.remedy == "done" and bytes(event.data or b"null") != b"null"
            return "it keeps the output that it has; leave --output out" if is_said else ""
        if event.remedy == "again" and event.data:
            return self._edits_objection(request, event.data)
        if event.remedy == "done":
            return self.output_objection(state, request, bytes(event.data or b"null"))
        return ""

    def _edits_objection(self, request: ev.Request, edits: msgspec.Raw) -> str:
        own = None if reference(request.arguments) is not None else bytes(request.arguments)
        return edits_objection(self.known_tool(request.tool), own, bytes(edits))

    def output_objection(self, state: Execution, request: ev.Request, output: bytes) -> str:
        return output_objection(self.known_tool(request.tool), output, self._is_output_read(state, request.path))

    def wants_output(self, state: Execution, path: str, tool: str) -> bool:
        """Whether a person who says that the step was done must say what it gave, too."""
        return wants_output(self.known_tool(tool), self._is_output_read(state, path))

    def _is_output_read(self, state: Execution, path: str) -> bool:
        """Of a plan that is known; anything else is taken to read what its steps give."""
        kind = self.programs.get(state.facts().program.kind)
        look = getattr(kind, "is_output_read", None)
        return look is None or look(state, path)

    def known_tool(self, name: str) -> Tool[..., Any] | None:
        return self.registry.get(name) if name in self.registry.names() else None

    def allowed(self, *said: Resources | None) -> Resources:
        """What a call may use: as its step says, then its task, then its tool, and in the end the settings."""
        found = self.resources
        for one in reversed(said):
            found = one.over(found) if one is not None else found
        return found

    def open_log(self, state: Execution, chain: bytes, epoch: int) -> Log:
        """The journal of an execution that this engine has claimed."""
        return Log(self.store, self.writer, state, chain, epoch, snapshot_events_min=self.pace.snapshot_events_min)

    @contextmanager
    def in_hand(self, execution_id: str) -> Generator[None]:
        """While an execution is being created, taken up or commanded here, it is nobody's stray."""
        self._in_hand.append(execution_id)
        try:
            yield
        finally:
            self._in_hand.remove(execution_id)

    def has_in_hand(self) -> bool:
        return bool(self._in_hand)

    def is_in_hand(self, execution_id: str) -> bool:
        return execution_id in self._in_hand

    def leave_behind(self, task: asyncio.Task[Any]) -> None:
        """A tool that will not end. It is counted until it does, and what it says is not heard."""
        self.left_behind.add(task)
        task.add_done_callback(self._gone)

    def _gone(self, task: asyncio.Task[Any]) -> None:
        self.left_behind.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that nobody complains about it

    def lives_on(self, key: str, call: asyncio.Future[Any]) -> None:
        """The call of a step was cut off and still runs: until it ends, nobody can know that it did not happen."""
        living = self._living.setdefault(key, set())
        living.add(call)

        def ended(_: object) -> None:
            living.discard(call)
            if not living and self._living.get(key) is living:
                del self._living[key]

        call.add_done_callback(ended)

    def is_living(self, key: str) -> bool:
        return key in self._living

    def new_id(self) -> str:
        """A UUIDv7: sorts by time, and can be told apart from its beginning or its end."""
        milliseconds = self.clock.now_us() // 1000
        value = (milliseconds & 0xFFFFFFFFFFFF) << 80
        value |= 0x7 << 76 | self.rng.getrandbits(12) << 64
        value |= 0b10 << 62 | self.rng.getrandbits(62)
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
