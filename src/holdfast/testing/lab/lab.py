"""The lab as a test sees it: fakes, what may run for real, and `run`. Plain calls, no coroutines.

Every run has a world of its own and starts at the same time with the same dice, so the same test gives the same outcome
to the byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast.core.durations import parse_duration
from holdfast.core.durations import parse_moment as parse_time
from holdfast.core.policy import Effect
from holdfast.core.suggest import did_you_mean
from holdfast.programs.function import Function
from holdfast.programs.prepare import Subject
from holdfast.testing.lab import script as scripts
from holdfast.testing.lab.errors import LabError
from holdfast.testing.lab.fakes import Fake, FakeOptions, Raises
from holdfast.testing.lab.loop import LabLoop
from holdfast.testing.lab.outcome import Outcome
from holdfast.testing.lab.play import Play, Task
from holdfast.testing.lab.points import EVERYWHERE, Crashes, Point, parse_point
from holdfast.testing.lab.script import Actor, InTurn, Later, Said, Script
from holdfast.testing.lab.steps import AnyTool
from holdfast.testing.lab.sweep import Same, sweep
from holdfast.testing.lab.world import Bounds, Toolbox, World
from holdfast.testing.virtual import START_US
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.registry import Registry
from holdfast.tools.tool import Tool

LIMIT = "365d"
EVENTS_MAX = 10_000


class Lab:
    """`start` is when every run begins, `limit` how much virtual time one may take, `events_max` how many events.

    `seed` decides the dice.
    """

    approve = staticmethod(scripts.approve)
    deny = staticmethod(scripts.deny)
    resolve = staticmethod(scripts.resolve)
    send = staticmethod(scripts.send)

    def __init__(
        self,
        *,
        start: str | datetime | None = None,
        limit: float | str = LIMIT,
        events_max: int = EVENTS_MAX,
        seed: int = 0,
    ) -> None:
        given = start.isoformat() if isinstance(start, datetime) else start
        start_us = START_US if given is None else parse_time(given)
        self._bounds = Bounds(start_us=start_us, limit_s=parse_duration(limit), events_max=events_max)
        self._seed = seed
        self._fakes: dict[str, Fake] = {}
        self._real: dict[str, AnyTool] = {}
        self._functions: list[Function[..., Any]] = []
        self._loop: LabLoop | None = None

    # ---- what there is ------------------------------------------------------------------------------------------

    def fake(
        self,
        tool: str | AnyTool,
        *,
        returns: Any = None,
        raises: Raises | Sequence[Raises] = (),
        does: Callable[..., Any] | None = None,
        takes: float | str = 0.0,
        effect: Effect | None = None,
    ) -> Fake:
        """A fake in the place of a tool: `returns=` a value, `raises=` errors first, `does=` a function.

        `raises` is one error for every call, or a list: one for each call, then the value. `takes` is how long it works
        in virtual time. `effect` is that of the real tool if that is given, otherwise `once`.
        """
        name = tool if isinstance(tool, str) else tool.name
        if name in self._fakes:
            raise LabError(f"there is a fake of {name} already; one tool has one fake")
        real = self._real.get(name) or _builtin(name) if isinstance(tool, str) else tool
        options = FakeOptions(returns=returns, raises=raises, does=does, takes=takes, effect=effect)
        made = self._fakes[name] = Fake(name, real, options)
        return made

    def use(self, *things: str | AnyTool | Function[..., Any]) -> None:
        """What may run for real: tools, built-in tools by name, and functions that are started by name."""
        for thing in things:
            if isinstance(thing, Function):
                self._functions.append(thing)
                continue
            tool = _builtin(thing) if isinstance(thing, str) else thing
            if not isinstance(tool, Tool):
                known = [one.name for one in builtin_tools()]
                hint = did_you_mean(thing, known) if isinstance(thing, str) else ""
                raise LabError(f"lab.use takes tools, functions and names of built-in tools, not {thing!r}{hint}")
            self._real[tool.name] = tool

    @staticmethod
    def later(delay: float | str, what: Any) -> Later:
        """An answer or an event that comes a while after it was asked for."""
        return Later(parse_duration(delay), what)

    @staticmethod
    def in_turn(*answers: Any) -> InTurn:
        """One answer after the other, for what is asked more than once."""
        return InTurn(answers)

    @property
    def now(self) -> datetime:
        """The time in the lab: that of the run under way, or when the last one ended."""
        passed_s = 0.0
        if self._loop is not None:
            passed_s = self._loop.time() if self._loop.ended_s is None else self._loop.ended_s
        return datetime.fromtimestamp(self._bounds.start_us / 1e6 + passed_s, UTC)

    # ---- running ------------------------------------------------------------------------------------------------

    def run(  # noqa: PLR0913 -- each is a noun of its own, and most tests need one or two
        self,
        program: Subject,
        *,
        inputs: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
        events: Mapping[str, Any] | None = None,
        commands: Mapping[str, str | Said | Sequence[str | Said]] | None = None,
        crash_at: str | Sequence[str] = (),
        patience: float | str = 0.0,
        same: Same | None = None,
    ) -> Outcome:
        """Run a plan (a file or a mapping) or a function until it is over, or only people could move it.

        `answers` are given by step path when asked for, `events` by name when waited for, `commands` at a time ("2h")
        or an event ("step:completed charge"). `patience` is how long to go on when nobody answers. `same` says what a
        crash "everywhere" must not change; without it, that is the end, the output and every step.
        """
        script = Script(answers=answers or {}, events=events or {}, commands=commands or {})
        task = Task(
            program=program,
            inputs=inputs,
            patience_s=parse_duration(patience),
            limit_s=self._bounds.limit_s,
            seed=str(self._seed),
        )
        if crash_at == EVERYWHERE:
            return self._everywhere(task, script, same)
        points = [parse_point(text) for text in ([crash_at] if isinstance(crash_at, str) else crash_at)]
        outcome, actor = self._once(task, script, points)
        _all_used(actor)
        return outcome

    def _everywhere(self, task: Task, script: Script, same: Same | None) -> Outcome:
        outcome, actor = self._once(task, script, [])
        answered = [path for path in actor.unasked() if path in script.answers]
        task.tell_truth = True
        calls = {name: fake.calls for name, fake in self._fakes.items()}

        def run_at(point: Point) -> Outcome:
            killed, other = self._once(task, script, [point])
            answered[:] = [path for path in answered if path in other.unasked()]
            return killed

        outcome.points = sweep(outcome, run_at, same)
        for name, fake in self._fakes.items():
            fake.calls = calls[name]
        _all_used(actor, but=set(script.answers) - set(answered))
        return outcome

    def _once(self, task: Task, script: Script, points: Sequence[Point]) -> tuple[Outcome, Actor]:
        _no_loop_here()
        for fake in self._fakes.values():
            fake.begin()
        actor, crashes = Actor(script), Crashes(points)
        self._loop = loop = LabLoop()

        async def play() -> Outcome:
            toolbox = Toolbox(self._fakes, self._real)
            world = World(loop, toolbox, self._registry(), crashes, self._bounds)
            return await Play(world, task, actor).run()

        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            outcome = runner.run(play())
        if crashes.left:
            _never_reached(crashes.left[0], outcome)
        return outcome, actor

    def _registry(self) -> Registry:
        registry = Registry()
        for name in {**self._real, **self._fakes}:
            fake = self._fakes.get(name)
            registry.add(fake.tool_for() if fake is not None else self._real[name])
        for tool in builtin_tools():
            if tool.name not in registry.names():
                registry.add(tool)
        for function in self._functions:
            registry.add_function(function)
        return registry


def _builtin(name: str) -> AnyTool | None:
    return next((tool for tool in builtin_tools() if tool.name == name), None)


def _all_used(actor: Actor, but: Collection[str] = ()) -> None:
    if sentences := actor.unused(but):
        raise LabError("\n".join(sentences))


def _never_reached(point: Point, outcome: Outcome) -> None:
    called = list(dict.fromkeys(name for call in outcome.calls for name in (call.tool, call.path)))
    hint = did_you_mean(point.tool, called) if point.tool else ""
    if not hint and point.tool:
        hint = f"; called were: {', '.join(called) or 'no tools'}"
    if point.commit:
        hint = f"; there were {outcome.commits} journal writes"
    raise LabError(f'crash_at="{point.text}" was never reached{hint}; the execution is {outcome.described()}')


def _no_loop_here() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise LabError("lab.run runs a loop of its own; make the test a plain `def`, not a coroutine")
