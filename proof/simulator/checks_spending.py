"""Checks of money. An account is kept of each journal from its raw events, and held against what the world saw paid."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core import events as ev
from proof.simulator.case import Case, Check
from proof.simulator.witness import TASK_ENDS, Fact, Story
from proof.simulator.world import PRICES

_Ending = ev.StepWaiting | ev.StepCompleted | ev.StepFailed | ev.StepRetrying | ev.StepInterrupted | ev.StepInDoubt


def spend_never_decreases_and_keeps_its_limit(case: Case) -> Iterator[str]:
    """What was settled only grows, stays under the limit in force plus one reservation, and is what the world saw paid.

    A reservation is made where there is room for it and settled once; a child's end tells what the child has spent.
    """
    accounts = {story.id: _Account(case, story) for story in case.told.stories.values()}
    for account in accounts.values():
        for fact in account.story.facts:
            yield from (f"{account.story.id}: event {fact.seq}: {text}" for text in account.enter(fact))
    for account in accounts.values():
        for _, event in account.story.events(ev.ChildEnded):
            told, known = event.spent_micros or 0, accounts[event.child_id].settled
            if told != known:
                yield f"{account.story.id} {event.path}: its child spent {known}, the parent was told {told}"


class _Account:
    def __init__(self, case: Case, story: Story) -> None:
        self.story = story
        self.settled = 0
        self._case = case
        self._limit: int | None = None
        self._open: dict[str, int] = {}
        self._largest = 0  # reservation so far
        self._outside = 0  # spent by children that were born before there was a limit: nothing is reserved for them

    def enter(self, fact: Fact) -> Iterator[str]:
        """Take one event into account, and say what is wrong with it."""
        before, event = self.settled, fact.event
        match event:
            case ev.TaskCreated():
                self._limit = event.budget.limit_micros if event.budget is not None else None
            case ev.StepStarted():
                yield from self._start(fact, event)
            case ev.ChildStarted() if event.reserved_micros is not None:
                yield from self._reserve(event.path, event.reserved_micros)
                yield from self._share(event, event.reserved_micros)
            case ev.ChildEnded():
                yield from self._end_child(event)
            case ev.BudgetRaised():
                yield from self._raise(event)
            case ev.BudgetWarned() if event.settled_micros != self.settled:
                yield f"people were told that {event.settled_micros} are spent, and {self.settled} are"
            case ev.BudgetExhausted():
                yield from self._exhausted(event)
            case _:
                yield from self._end(fact)
        if self.settled < before:
            yield f"{before} were spent, and now {self.settled}"
        if self._limit is not None and self.settled > self._limit + self._largest + self._outside:
            yield f"{self.settled} are spent, the limit is {self._limit}"

    def _start(self, fact: Fact, event: ev.StepStarted) -> Iterator[str]:
        if event.path in self._open:
            self.settled += self._open.pop(event.path)  # the attempt before it was lost: nobody knows what it cost
        price = PRICES.get(event.tool, 0) if fact.seq > self.story.born else 0  # what a fork has copied cost it nothing
        if event.reserved_micros != price:
            yield f"{event.reserved_micros} are reserved for {event.path}, which may cost {price}"
        if event.reserved_micros:
            yield from self._reserve(event.path, event.reserved_micros)

    def _reserve(self, path: str, micros: int) -> Iterator[str]:
        taken = self.settled + sum(self._open.values())
        if self._limit is not None and taken + micros > max(self._limit, taken):
            yield f"{micros} are reserved for {path}, and {taken} of {self._limit} are taken"
        self._open[path] = micros
        self._largest = max(self._largest, micros)

    def _share(self, event: ev.ChildStarted, reserved: int) -> Iterator[str]:
        budget = self._case.told.stories[event.child_id].created.budget
        if budget is None or budget.limit_micros > reserved:
            yield f"{reserved} are reserved for the child of {event.path}, which may spend {budget}"

    def _end(self, fact: Fact) -> Iterator[str]:
        event = fact.event
        if isinstance(event, TASK_ENDS):
            self.settled += sum(self._open.values())
            self._open.clear()
        elif isinstance(event, _Ending | ev.StepSkipped):
            held = self._open.pop(event.path, None)
            spent = None if isinstance(event, ev.StepSkipped) else event.spent_micros
            self.settled += spent if spent is not None else held or 0
            if spent is not None and (held is None or spent > held):
                yield f"{event.path} settles {spent}, and {held} were reserved for it"
            if isinstance(event, ev.StepCompleted) and held is not None:
                yield from self._compare(fact, event)

    def _compare(self, fact: Fact, event: ev.StepCompleted) -> Iterator[str]:
        """The world is asked what this very attempt has paid."""
        lines = [
            line
            for line in self._case.told.calls.get((self.story.id, event.path), [])
            if (line.attempt, line.process) == (event.attempt, fact.process)
        ]
        paid = next((line.value for line in lines if line.phase == "spent"), None)
        expected = paid if paid is not None else PRICES.get(lines[0].tool) if lines else None
        if event.spent_micros != expected:
            yield f"{event.path} settles {event.spent_micros}, and the world saw {expected}"

    def _end_child(self, event: ev.ChildEnded) -> Iterator[str]:
        held, spent = self._open.pop(event.path, None), event.spent_micros or 0
        self.settled += spent
        if held is None:
            self._outside += spent
        elif spent > held:
            yield f"the child of {event.path} spent {spent}, and {held} were reserved for it"

    def _raise(self, event: ev.BudgetRaised) -> Iterator[str]:
        if event.path:
            self._open[event.path] += event.limit_micros - (self._limit or 0)
        self._limit = event.limit_micros
        over = self._outside if event.path else 0  # what a child is given in addition leaves the excess as it is
        if self._limit + over < self.settled + sum(self._open.values()):
            yield f"the limit became {self._limit}, and more is spent or reserved"

    def _exhausted(self, event: ev.BudgetExhausted) -> Iterator[str]:
        room = (self._limit or 0) - self.settled - sum(self._open.values())
        if self._limit is None or event.room_micros != room or event.needed_micros <= room:
            yield f"{event.path} needs {event.needed_micros}, of {self._limit} are left {room}, not {event.room_micros}"


CHECKS: tuple[Check, ...] = (spend_never_decreases_and_keeps_its_limit,)
