"""What an expression may name at one point of a plan, and which of those steps have surely ended there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.core.error_text import did_you_mean, quoted
from holdfast.core.expressions import Condition, Template
from holdfast.core.plan.fields import Problems
from holdfast.core.plan.graph import Graph
from holdfast.core.secret_refs import not_declared

UNNAMED = "?"  # begins the stand-in for the id of a step that has none, so that reading can go on


@dataclass(frozen=True, slots=True)
class ScopeLevel:
    """One list of steps, seen from one of them; seen from outside (`step` empty), all its steps have ended."""

    graph: Graph
    step: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """The lists around a point, outermost first, and every name that an expression may use there."""

    inputs: frozenset[str]
    names: frozenset[str] = frozenset({"inputs"})
    levels: tuple[ScopeLevel, ...] = ()
    secrets: frozenset[str] | None = None  # those that are declared; None: nobody has looked
    may_use_secrets: bool = False

    def inside(self, graph: Graph) -> Scope:
        names = self.names | {f"steps.{step}" for step in graph.ids if not step.startswith(UNNAMED)}
        return replace(self, names=names, levels=(*self.levels, ScopeLevel(graph)))

    def at(self, step: str) -> Scope:
        """The same list, seen from one of its steps."""
        return replace(self, levels=(*self.levels[:-1], ScopeLevel(self.levels[-1].graph, step)))

    def with_secrets(self) -> Scope:
        """The arguments of a tool: the only place where a secret is of any use."""
        return replace(self, may_use_secrets=True)

    def having(self, *names: str) -> Scope:
        return replace(self, names=self.names | set(names))

    def has_step(self, step: str) -> bool:
        return any(step in level.graph for level in self.levels)

    def check(self, uses: Template | Condition, problems: Problems) -> None:
        """An expression that reads what may not be there yet would work on one day and fail on another."""
        for place, name in dict.fromkeys(uses.uses):
            kind, _, name_of_one = name.partition(".")
            if kind == "inputs" and name_of_one and name_of_one not in self.inputs:
                hint = did_you_mean(name_of_one, self.inputs) or "; declare it under inputs"
                problems.note(place, f"no input called {quoted(name_of_one)}{hint}")
            elif kind == "steps" and name_of_one:
                message = self._not_ended(name_of_one)
                if message:
                    problems.note(place, f"uses {name}, {message}")
            elif kind == "secrets" and not self.may_use_secrets:
                problems.note(place, f"uses {name}; a secret goes to a tool, under with, and nowhere else")
            elif kind == "secrets" and self.secrets is not None and name_of_one not in self.secrets:
                problems.note(place, not_declared(name_of_one, sorted(self.secrets)))

    def _not_ended(self, step: str) -> str:
        for depth, level in enumerate(reversed(self.levels)):
            if step not in level.graph:
                continue
            if not level.step or level.graph.ends_before(step, level.step):
                return ""
            if step == level.step:
                return "which is the step itself" if depth == 0 else "which has not ended while its own steps run"
            whose = "" if depth == 0 else f" of {quoted(level.step)}"
            if level.graph.ends_before(level.step, step):
                return f"which comes after {'this step' if depth == 0 else quoted(level.step)}"
            return f"which may not have ended yet; add {quoted(step)} to needs{whose}"
        return ""
