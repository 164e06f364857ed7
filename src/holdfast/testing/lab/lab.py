"""The lab as a test sees it: fakes, what may run for real, and `run`. Plain calls, no coroutines.

Every run has a world of its own and starts at the same time with the same dice, so the same test gives the same outcome
to the byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import UNSET

from holdfast.core.durations import parse_duration
from holdfast.core.durations import parse_moment as parse_time
from holdfast.core.error_text import did_you_mean, quoted
from holdfast.core.errors import Divergence, PlanInvalid, Problem
from holdfast.core.forms import ASK
from holdfast.core.policy import Effect
from holdfast.programs.function import Function
from holdfast.programs.prepare import Subject
from holdfast.testing.lab import script as scripts
from holdfast.testing.lab.errors import LabError, NotCrashSafe, blames_the_test
from holdfast.testing.lab.fakes import Fake, FakeOptions, Raises
from holdfast.testing.lab.loop import LabLoop
from holdfast.testing.lab.needed import all_used, check_said, check_task, ended_as_meant, never_reached, worth_a_sweep
from holdfast.testing.lab.outcome import Outcome
from holdfast.testing.lab.play import Play, Task
from holdfast.testing.lab.points import EVERYWHERE, Crashes, Point, parse_points
from holdfast.testing.lab.script import Actor, InTurn, Later, Script, ScriptedCommand
from holdfast.testing.lab.steps import AnyTool
from holdfast.testing.lab.sweep import Same, sweep
from holdfast.testing.lab.world import RunBounds, Toolbox, World
from holdfast.testing.virtual_time import START_US
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.human import asking
from holdfast.tools.registry import Registry
from holdfast.tools.tool import Tool

LIMIT = "365d"
EVENTS_MAX = 10_000


class Lab:
    """`start` is when every run begins, `limit` how much virtual time one may take, `events_max` how many events.

    `seed` decides the dice. Plan files are looked for in `folder` first, then in the current one; the fixture `lab`
    says the folder of its test.
    """

    approve = staticmethod(scripts.approve)
    deny = staticmethod(scripts.deny)
    resolve = staticmethod(scripts.resolve)
    send = staticmethod(scripts.send)

    @blames_the_test
    def __init__(
        self,
        *,
        start: str | datetime | None = None,
        limit: float | str = LIMIT,
        events_max: int = EVENTS_MAX,
        seed: int = 0,
        folder: str | Path | None = None,
    ) -> None:
        if not isinstance(cast("Any", events_max), int) or isinstance(events_max, bool) or events_max < 1:
            raise LabError(f"events_max= is how many events a run may write, from 1 on; not {events_max!r}")
        given = start.isoformat() if isinstance(start, datetime) else start
        start_us = START_US if given is None else parse_time(given)
        self._bounds = RunBounds(
            start_us=start_us,
            limit_s=parse_duration(limit),
            events_max=events_max,
            folder=None if folder is None else Path(folder).absolute(),
        )
        self._seed = seed
        self._fakes: dict[str, Fake] = {}
        self._real: dict[str, AnyTool] = {ASK: asking}  # it calls nothing: a person answers, and so does the script
        self._functions: list[Function[..., Any]] = []
        self._loop: LabLoop | None = None

    # ---- what there is ------------------------------------------------------------------------------------------

    @blames_the_test
    def fake(
        self,
        tool: str | AnyTool,
        *,
        returns: Any = UNSET,
        raises: Raises | Sequence[Raises] = (),
        does: Callable[..., Any] | None = None,
        takes: float | str = 0.0,
        effect: Effect | None = None,
        replace: bool = False,
    ) -> Fake:
        """A fake in the place of a tool: `returns=` a value or `does=` a function, `raises=` errors first.

        `raises` is one error for every call, or a list: one for each call, then the value. `takes` is how long it works
        in virtual time. `effect` is that of the real tool if that is given, otherwise `once`. `replace` puts it in the
        place of a fake that is there already, such as one from a fixture.
        """
        name = _name_of(tool)
        if name == ASK:
            raise LabError(
                f"{ASK} asks a person and calls nothing, so a fake of it would never be called; "
                'say what the person answers: lab.run(…, answers={"STEP": …})'
            )
        if name in self._fakes and not replace:
            raise LabError(f"there is a fake of {name} already; one tool has one fake, unless you say replace=True")
        if replace and name not in self._fakes:
            raise LabError(f"there is no fake of {name} to replace{did_you_mean(name, self._fakes)}")
        real = self._real.get(name) or _builtin(name) if isinstance(tool, str) else tool
        options = FakeOptions(returns=returns, raises=raises, does=does, takes=takes, effect=effect)
        made = self._fakes[name] = Fake(name, real, options)
        return made

    @blames_the_test
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
        if not answers:
            raise LabError("lab.in_turn needs an answer, or some")
        return InTurn(answers)

    @property
    def now(self) -> datetime:
        """The time in the lab: that of the run under way, or when the last one ended."""
        passed_s = 0.0
        if self._loop is not None:
            passed_s = self._loop.time() if self._loop.ended_s is None else self._loop.ended_s
        return datetime.fromtimestamp(self._bounds.start_us / 1e6 + passed_s, UTC)

    # ---- running ------------------------------------------------------------------------------------------------

    @blames_the_test
    def run(  # noqa: PLR0913 -- each is a noun of its own, and most tests need one or two
        self,
        program: Subject,
        *,
        inputs: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
        events: Mapping[str, Any] | None = None,
        commands: Mapping[str, str | ScriptedCommand | Sequence[str | ScriptedCommand]] | None = None,
        budget: float | Mapping[str, float] | None = None,
        resources: Mapping[str, Any] | None = None,
        crash_at: str | Sequence[str] | None = None,
        patience: float | str = 0.0,
        doubts: Literal["wait", "look"] = "wait",
        ends: str | None = None,
        same: Same | None = None,
    ) -> Outcome:
        """Run a plan (a file or a mapping) or a function until it is over, or only people could move it.

        `answers` are given by step path when asked for, `events` by name when waited for, `commands` at a time ("2h")
        or an event ("step:completed charge"). `budget` is what it may spend and `resources` what its steps may use, as
        for `Engine.start`; tools in the lab run in its own process, which holds them to nothing. `patience` is how
        long to go on when nobody answers. With doubts="look", a person settles doubts by looking what happened. `ends`
        is the status at the end that the test means: a crash "everywhere" demands "completed" unless told otherwise.
        `same` says what such a crash must not change; without it, that is the end, the output and every step.
        """
        check_task(program, inputs)
        check_said(ends, doubts)
        script = Script(answers=answers or {}, events=events or {}, commands=commands or {})
        task = Task(
            program=program,
            inputs=inputs,
            budget=budget,
            resources=resources,
            patience_s=parse_duration(patience),
            limit_s=self._bounds.limit_s,
            seed=str(self._seed),
            tell_truth=doubts == "look",
        )
        if crash_at == EVERYWHERE:
            return self._everywhere(task, script, ends, same)
        outcome, actor = self._once(task, script, parse_points(crash_at))
        all_used(actor, outcome, actor.unsaid())
        if ends is not None:
            ended_as_meant(outcome, ends)
        return outcome

    def _everywhere(self, task: Task, script: Script, ends: str | None, same: Same | None) -> Outcome:
        try:
            outcome, actor = self._once(task, script, [])
        except Divergence as error:
            raise NotCrashSafe(f"even left alone, it is not the same when it wakes up\n{error}") from None
        worth_a_sweep(outcome, ends)
        unsaid = actor.unsaid()
        task.tell_truth = True
        calls = {name: fake.calls for name, fake in self._fakes.items()}

        def run_at(point: Point) -> Outcome:
            killed, other = self._once(task, script, [point])
            for path, left in other.unsaid().items():
                unsaid[path] = min(unsaid[path], left)
            return killed

        outcome.points = sweep(outcome, run_at, same)
        for name, fake in self._fakes.items():
            fake.calls = calls[name]
        all_used(actor, outcome, unsaid)
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
            try:
                outcome = runner.run(play())
            except PlanInvalid as error:
                raise _with_hints(error) from None
        if crashes.left:
            raise never_reached(crashes.left[0], outcome)
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


def _name_of(tool: Any) -> str:
    if not isinstance(tool, str | Tool):
        raise LabError(f"lab.fake takes a tool or the name of one, not {tool!r}")
    return tool if isinstance(tool, str) else cast("AnyTool", tool).name


def _builtin(name: str) -> AnyTool | None:
    return next((tool for tool in builtin_tools() if tool.name == name), None)


def _with_hints(error: PlanInvalid) -> PlanInvalid:
    """A plan names its tools, so one that was not faked looks like a mistake in the plan."""
    problems: list[Problem] = []
    for problem in error.problems:
        tool = problem.missing_tool
        hint = (
            f"; in the lab, lab.fake({quoted(tool)}, returns=…) makes one, lab.use(…) takes a real one" if tool else ""
        )
        problems.append(problem._replace(message=problem.message + hint))
    return PlanInvalid(problems, error.source)


def _no_loop_here() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise LabError("lab.run runs a loop of its own; make the test a plain `def`, not a coroutine")
