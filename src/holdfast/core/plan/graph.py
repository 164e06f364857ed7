"""Which step of one list comes after which: cycles, and what has surely ended when a step begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Graph:
    """The needs of one list of steps. Ids that `needs` mentions must be in the list."""

    def __init__(self, needs: Mapping[str, Sequence[str]]) -> None:
        self._needs = {step: tuple(dict.fromkeys(of)) for step, of in needs.items()}
        self._number = {step: number for number, step in enumerate(self._needs)}
        order = self._order()
        self.cycles = self._find_cycles(set(self._needs) - set(order))
        # One bit per step: with thousands of steps, sets of names would take gigabytes.
        self._before: dict[str, int] = {}
        for step in order:
            bits = 0
            for need in self._needs[step]:
                bits |= self._before[need] | (1 << self._number[need])
            self._before[step] = bits

    def __contains__(self, step: str) -> bool:
        return step in self._needs

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._needs)

    def waves(self) -> list[tuple[int, str]]:
        """Every step with its turn, from 1: steps of one turn may run at the same time."""
        turn: dict[str, int] = {}
        for step in self._order():
            turn[step] = 1 + max((turn[need] for need in self._needs[step]), default=0)
        return sorted(((turn[step], step) for step in turn), key=lambda one: (one[0], self._number[one[1]]))

    def ends_before(self, earlier: str, later: str) -> bool:
        """Whether `later` needs `earlier`, directly or through others. In a cycle, which is reported anyway: yes."""
        bits = self._before.get(later)
        return bits is None or bool(bits >> self._number[earlier] & 1)

    def _order(self) -> list[str]:
        """Every step after all that it needs; steps in or behind a cycle are left out."""
        missing = {step: len(of) for step, of in self._needs.items()}
        dependents: dict[str, list[str]] = {step: [] for step in self._needs}
        for step, of in self._needs.items():
            for need in of:
                dependents[need].append(step)
        order = [step for step, count in missing.items() if count == 0]
        for step in order:  # grows while it is walked
            for dependent in dependents[step]:
                missing[dependent] -= 1
                if missing[dependent] == 0:
                    order.append(dependent)
        return order

    def _find_cycles(self, stuck: set[str]) -> list[tuple[str, ...]]:
        """Walk along needs that are stuck until a step comes up again; cycles that share a step are shown once."""
        cycles: list[tuple[str, ...]] = []
        seen: set[str] = set()
        for start in (step for step in self._needs if step in stuck):
            trail: dict[str, None] = {}
            step = start
            while step not in seen and step not in trail:
                trail[step] = None
                step = next(need for need in self._needs[step] if need in stuck)
            if step in trail:
                walked = list(trail)
                cycles.append(self._rotated(walked[walked.index(step) :]))
            seen.update(trail)
        return cycles

    def _rotated(self, cycle: list[str]) -> tuple[str, ...]:
        """Begin with the step that is written first, and end with it again."""
        first = min(range(len(cycle)), key=lambda index: self._number[cycle[index]])
        turned = cycle[first:] + cycle[:first]
        return (*turned, turned[0])
