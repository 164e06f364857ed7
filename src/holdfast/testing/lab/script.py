"""What people and the outside do during a run: answers to requests, events, and commands at given moments.

Everything in a script must be used: an answer that nobody asked for is a mistake in the test, or in the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.budget import read_usd
from holdfast.core.durations import parse_duration
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import UsageError
from holdfast.testing.lab.errors import LabError
from holdfast.testing.lab.points import Moment, parse_moment
from holdfast.tools.json_values import encode

HOLDING = ("pause", "resume", "interrupt", "stop")


class ScriptedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command, as somebody gives it."""

    verb: str
    arguments: dict[str, Any] = {}


class Later(msgspec.Struct, frozen=True):
    """Something that is said a while after it was asked for."""

    delay_s: float
    what: Any


def raw(value: Any) -> Raw:
    return Raw(encode(value, "the value"))


def approve(*, arguments: Mapping[str, Any] | None = None, why: str = "", sticky: bool = False) -> ScriptedCommand:
    edited = {"arguments": raw(arguments)} if arguments is not None else {}
    return ScriptedCommand(verb="approve", arguments={"why": why, "sticky": sticky, **edited})


def deny(why: str = "") -> ScriptedCommand:
    return ScriptedCommand(verb="deny", arguments={"why": why})


def resolve(remedy: str, *, output: Any = None, arguments: Mapping[str, Any] | None = None) -> ScriptedCommand:
    data = raw(arguments) if arguments is not None else raw(output) if remedy == "done" else msgspec.UNSET
    return ScriptedCommand(verb="resolve", arguments={"remedy": remedy, "data": data})


def send(name: str, data: Any = None) -> ScriptedCommand:
    return ScriptedCommand(verb="send", arguments={"name": name, "data": raw(data)})


def as_answer(request: ev.Request, given: Any) -> ScriptedCommand:
    """A plain value as the answer that this kind of request wants."""
    match request.kind, given:
        case "approval", ScriptedCommand(verb="approve" | "deny"):
            return given
        case "approval", bool():
            return approve() if given else deny()
        case "question", _ if not isinstance(given, ScriptedCommand):
            return ScriptedCommand(verb="answer", arguments={"data": raw(given)})
        case "budget", int() | float() if not isinstance(given, bool):
            return ScriptedCommand(verb="budget", arguments={"add_micros": read_usd(given)})
        case "correction" | "doubt" | "budget", ScriptedCommand(verb="resolve"):
            return given
        case "correction" | "doubt" | "budget", str() if given in request.remedies:
            return resolve(given)
        case _:
            raise LabError(_misfit(request, given))


def _misfit(request: ev.Request, given: Any) -> str:
    wanted = {"approval": "True or False", "question": "a value"}
    if request.kind == "budget":
        wanted["budget"] = f"how many dollars more, or one of {', '.join(request.remedies)}"
    said = wanted.get(request.kind) or f"one of {', '.join(request.remedies)}"
    kind = f"an {request.kind}" if request.kind == "approval" else f"a {request.kind}"
    told = f"lab.{given.verb}(…)" if isinstance(given, ScriptedCommand) else repr(given)
    hint = did_you_mean(given, request.remedies) if isinstance(given, str) and request.kind not in wanted else ""
    return f'answers["{request.path}"]: this is {kind}, so say {said}; not {told}{hint}'


class Script(msgspec.Struct, kw_only=True):
    """`answers` by step path, `events` by name, `commands` by moment: an event of the execution, or a time."""

    answers: Mapping[str, Any] = {}
    events: Mapping[str, Any] = {}
    commands: Mapping[str, str | ScriptedCommand | Sequence[str | ScriptedCommand]] = {}


class Actor:
    """One run's way through a script: what is left to say, and when."""

    def __init__(self, script: Script) -> None:
        self._answers = {path: _in_turn(given) for path, given in script.answers.items()}
        self._events = {name: _in_turn(given) for name, given in script.events.items()}
        self._given = {path: len(answers) for path, answers in self._answers.items()}
        self._asked: set[str] = set()
        self._waited: set[str] = set()
        self.timed: list[tuple[float, str, ScriptedCommand]] = []
        self.triggered: list[tuple[Moment, str, ScriptedCommand]] = []
        for when, given in script.commands.items():
            self._plan(when, given)

    def _plan(self, when: str, given: str | ScriptedCommand | Sequence[str | ScriptedCommand]) -> None:
        moment = parse_moment(when)
        for one in [given] if isinstance(given, str | ScriptedCommand) else given:
            said = _command(when, one)
            if moment is not None:
                self.triggered.append((moment, when, said))
                continue
            try:
                self.timed.append((parse_duration(when), when, said))
            except UsageError:
                raise LabError(
                    f'commands["{when}"]: expected a time since the start such as "2h", '
                    'or an event such as "step:completed STEP"'
                ) from None

    def answer(self, path: str) -> Any:
        """What is said to a request about this step; `Nothing` if nobody says anything."""
        self._asked.add(path)
        return _next(self._answers, path)

    def event(self, name: str) -> Any:
        self._waited.add(name)
        return _next(self._events, name)

    def due_events(self, event: str, path: str) -> list[ScriptedCommand]:
        """The commands whose moment this event is."""
        now = [entry for entry in self.triggered if entry[0].fits(event, path)]
        self.triggered = [entry for entry in self.triggered if entry not in now]
        return [said for _, _, said in now]

    def unsaid(self) -> dict[str, int]:
        """Answers that nobody asked for: how many, by step path."""
        return {path: len(answers) for path, answers in self._answers.items()}

    def unused(self, unsaid: Mapping[str, int]) -> list[str]:
        """Sentences about what was never asked for. `unsaid` are the answers that were left over in every run."""
        sentences: list[str] = []
        for path, left in unsaid.items():
            if left == self._given[path]:
                sentences.append(f'answers["{path}"] was never asked for{_hint(path, self._asked, "asked about")}')
            elif left:
                given = self._given[path]
                sentences.append(f'answers["{path}"]: there are {given} answers, and only {given - left} asked for')
        for name, left in self._events.items():
            if left and name not in self._waited:
                sentences.append(f'events["{name}"] was never waited for{_hint(name, self._waited, "waited for")}')
            elif left:
                sentences.append(f'events["{name}"]: {len(left)} of them came too late: nothing waited any more')
        return sentences


def _next(left: dict[str, list[Any]], name: str) -> Any:
    return left[name].pop(0) if left.get(name) else Nothing


class Nothing:
    """Nobody says anything."""


def _in_turn(given: Any) -> list[Any]:
    return list(given.items) if isinstance(given, InTurn) else [given]


class InTurn(msgspec.Struct, frozen=True):
    """One answer after the other, for what is asked more than once."""

    items: tuple[Any, ...]


def _command(when: str, given: str | ScriptedCommand) -> ScriptedCommand:
    if isinstance(given, ScriptedCommand):
        return given
    if given not in HOLDING:
        raise LabError(
            f'commands["{when}"]: there is no command "{given}"{did_you_mean(given, HOLDING)}; '
            f"there are {', '.join(HOLDING)}, and lab.send(event)"
        )
    return ScriptedCommand(verb=given)


def _hint(name: str, known: set[str], how: str) -> str:
    if near := did_you_mean(name, known):
        return near
    return f"; {how}: {', '.join(sorted(known))}" if known else f"; nothing was {how}"
