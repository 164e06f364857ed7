"""The transition table against the engine: random commands to a real execution, compared with a model of a few lines.

The model knows the tables of core/lifecycle.py and nothing of how the engine works: which status an event enters, and
from which statuses it is legal. After every command, status, answer and number of events must be what it says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import holdfast
from holdfast.core import events as ev
from holdfast.core.commands import DATA_BYTES_MAX, Answer, Command
from holdfast.core.lifecycle import ENDS, TASK_MOVES
from holdfast.engine.commands.inbox import settle
from holdfast.journal.liveness import InProcess
from holdfast.journal.log import read_events
from properties.strategies import FACTOR

EVENT_OF = {"pause": "task:paused", "interrupt": "task:interrupted", "stop": "task:stopped", "resume": "task:started"}

GATED = {"name": "gated", "steps": [{"id": "gate", "wait": {"event": "go"}}]}
ASKING = {"name": "asking", "steps": [{"id": "gate", "tool": "quick", "approval": "required"}]}
BUSY = {"name": "busy", "steps": [{"id": "gate", "tool": "slow"}]}
RESTS_AS = {"gated": "waiting", "asking": "waiting", "busy": "running"}  # where each stands until it is let go on


VERBS = sorted({*EVENT_OF, "approve", "deny", "answer", "resolve", "send", "extend"})
SENSELESS = [
    b"[]", b'"now"', b"nothing", b'{"why":null}', b'{"until":"soon"}', b'{"step":["gate"]}',
    msgspec.json.encode({"why": "x" * DATA_BYTES_MAX}),
]  # fmt: skip


class Model:
    """What must be true of one execution, told from the tables alone."""

    def __init__(self, rests_as: str, held: bool) -> None:
        self.rests_as = rests_as
        self.held = held
        self.status = "queued" if held else rests_as
        self.begun = not held
        self.end = ""  # how it will end as soon as it may go on

    def outcome(self, verb: str) -> str:
        move = TASK_MOVES[EVENT_OF[verb]]
        if self.status in ENDS:
            return "unchanged" if self.status == move.to else "refused"
        if verb == "resume":  # waiting and queued go on by themselves, unless a person holds them
            return "applied" if self.status in ("paused", "interrupted") or self.held else "unchanged"
        return "applied" if self.status in move.frm else "unchanged"

    def command(self, verb: str) -> str:
        outcome = self.outcome(verb)
        if outcome == "applied":
            self.held = False
            if verb == "resume":
                self.begun = True
            self.status = self.end or self.rests_as if verb == "resume" else TASK_MOVES[EVENT_OF[verb]].to
        return outcome

    def let_go(self, end: str) -> None:
        """What it waits for has come: it ends now, or when it is resumed."""
        self.end = self.end or end
        if self.status == self.rests_as:
            self.status = self.end


class Lifecycle(RuleBasedStateMachine):
    patience_s = 20.0
    name: str
    model: Model
    gate: asyncio.Event
    engine: holdfast.Engine
    run: holdfast.Run

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.answered = ""
        self.cuts = 0

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, self.patience_s))

    @initialize(program=st.sampled_from([GATED, ASKING, BUSY]), held=st.booleans(), sleeps=st.booleans())
    def start(self, program: dict[str, Any], held: bool, sleeps: bool) -> None:
        self.name = program["name"]
        self.model = Model(RESTS_AS[self.name], held)

        async def begin() -> None:
            self.gate = asyncio.Event()

            @holdfast.tool(effect="read")
            async def slow() -> None:
                try:
                    await self.gate.wait()
                except asyncio.CancelledError:
                    self.cuts += 1
                    raise

            @holdfast.tool(effect="read")
            async def quick() -> None: ...

            limits = holdfast.Limits(passivate_after_s=0.0 if sleeps else 30.0, interrupt_grace_s=1.0)
            self.engine = holdfast.Engine("memory:", tools=[slow, quick], limits=limits)
            await self.engine.open()
            self.run = await self.engine.start(program, hold=held)

        self.do(begin())
        self.reach()

    def reach(self) -> None:
        """Wait until the execution stands where the model stands."""

        async def wait() -> None:
            while (await self.run.status()) != self.model.status:  # noqa: ASYNC110 -- a head has no event
                await asyncio.sleep(0.001)

        try:
            self.do(wait())
        except TimeoutError:
            raise AssertionError(f"{self.do(self.run.status())}, expected {self.model.status}") from None

    def say(self, expected: str, verb: str, **arguments: Any) -> None:
        """Give a command; what it did and what it did not do must be as expected."""
        status, before = self.do(self.run.status()), self.do(self.told())
        answer: Answer = self.do(self.run.command(verb, by="ann", **arguments))
        assert answer.outcome == expected, f"{verb} in {status}: {answer.outcome} ({answer.text}), not {expected}"
        assert answer.text.strip()
        self.reach()
        if expected != "applied":
            assert answer.seq == 0
            assert self.do(self.told()) == before, f"a command that was {expected} changed something"

    async def told(self) -> list[ev.Event]:
        """Its history, but for waking up and lying down again: a sleeper may be woken only to hear of a refusal."""
        events = [event for _, event in await read_events(self.engine.services.store, self.run.id, 0)]
        return [event for event in events if not isinstance(event, ev.TaskStarted | ev.TaskWaiting)]

    @rule(verb=st.sampled_from(sorted(EVENT_OF)))
    def hold_or_go_on(self, verb: str) -> None:
        self.say(self.model.command(verb), verb)

    @rule(verb=st.sampled_from(sorted(EVENT_OF)))
    def say_it_twice(self, verb: str) -> None:
        """The second time is always a no-op that says so, or a refusal."""
        self.say(self.model.command(verb), verb)
        second = self.model.command(verb)
        assert second != "applied"
        self.say(second, verb)

    @precondition(lambda self: self.name == "gated")
    @rule()
    def send_what_it_waits_for(self) -> None:
        expected = "refused" if self.model.status in ENDS else "applied"
        if expected == "applied":
            self.model.let_go("completed")
        self.say(expected, "send", name="go")

    @precondition(lambda self: self.name == "asking")
    @rule(verb=st.sampled_from(["approve", "deny"]))
    def answer_what_it_asks(self, verb: str) -> None:
        said = {"approve": "granted", "deny": "denied"}[verb]
        if self.answered:  # the same again changes nothing, whatever has become of it since
            expected = "unchanged" if self.answered == said else "refused"
        elif self.model.status in ENDS or not self.model.begun:
            expected = "refused"
        else:
            expected, self.answered = "applied", said
            self.model.let_go("completed" if verb == "approve" else "failed")
        self.say(expected, verb, step="gate")

    @precondition(lambda self: self.name == "busy")
    @rule()
    def let_the_tool_end(self) -> None:
        async def open_gate() -> None:
            self.gate.set()

        self.do(open_gate())
        if self.model.begun or self.model.status == "queued":
            self.model.let_go("completed")
        self.model.end = self.model.end or "completed"
        self.reach()

    @rule(verb=st.sampled_from(["answer", "resolve"]))
    def answer_what_nobody_asked(self, verb: str) -> None:
        self.say("refused", verb, step="gate", remedy="done")

    @rule(verb=st.sampled_from(VERBS), arguments=st.sampled_from(SENSELESS))
    def say_what_makes_no_sense(self, verb: Any, arguments: bytes) -> None:
        """Past whoever would not let it in: it is refused, nothing is journaled, nobody is woken, nothing is cut."""
        before, cuts = self.do(self.all_told()), self.cuts
        services, command_id = self.engine.services, self.engine.services.new_id()
        command = Command(
            id=command_id, execution_id=self.run.id, verb=verb, at=0, by="ann", arguments=msgspec.Raw(arguments)
        )

        async def post() -> Answer:
            await services.store.commit([command])
            return await settle(services, InProcess(), command, self.engine._keeper.drivers.get)  # pyright: ignore[reportPrivateUsage]

        assert self.do(post()).outcome == "refused"
        self.reach()
        assert self.do(self.all_told()) == before
        assert self.cuts == cuts

    async def all_told(self) -> list[ev.Event]:
        return [event for _, event in await read_events(self.engine.services.store, self.run.id, 0)]

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.do(self.engine.close())
            assert not any(self.engine.holdings().values())
        self.loop.close()


def test_the_engine_does_what_the_table_says() -> None:
    run_state_machine_as_test(Lifecycle, settings=settings(max_examples=int(25 * FACTOR), stateful_step_count=12))


def test_the_model_would_notice_a_wrong_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test is worth something: an engine that pauses what is interrupted does not pass."""
    from holdfast.core import commands

    monkeypatch.setitem(commands._RULES, "interrupt", commands._RULES["pause"])  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(Lifecycle, "patience_s", 0.5)
    once = settings(
        max_examples=40, stateful_step_count=6, phases=[Phase.generate]
    )  # what fails need not be made small
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Lifecycle, settings=once)
