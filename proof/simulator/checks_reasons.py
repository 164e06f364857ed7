"""Checks of what an execution says it waits for. It is woken by that, and people are shown it; so it is not believed,
but compared with what the events of its steps say.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core import events as ev
from proof.simulator.case import Case, Check

_OF_STEPS = ("timer", "event", "approval", "answer", "correction", "doubt", "budget")  # the others no event begins

Waits = dict[str, ev.Reason]  # what each step waits for, by its path


def what_is_waited_for_is_named(case: Case) -> Iterator[str]:
    """Who waits names every step that does, what for and until when, and no other: by that it is woken later."""
    for story in case.told.stories.values():
        waits: Waits = {}
        gone: set[str] = set()
        lost: set[str] = set()
        for fact in story.facts:
            if isinstance(fact.event, ev.StepFailed):
                gone.update(_taken_along(fact.event.path))
            elif isinstance(fact.event, ev.StepStarted):
                lost.update(_lost(fact.event.path))
            if isinstance(fact.event, ev.TaskWaiting) and fact.seq > story.born:
                for text in _compare(_without(waits, gone, lost), fact.event):
                    yield f"{story.id}: event {fact.seq} {text}"
            else:
                _follow(waits, fact.event)


def _without(waits: Waits, gone: set[str], lost: set[str]) -> Waits:
    """A branch that another one has taken along records which waits it gave up, but a child goes on by itself. Of who
    lost a race, its program's author gave them up, and that is recorded nowhere.
    """
    taken, beaten = tuple(gone), tuple(lost)
    return {
        path: reason
        for path, reason in waits.items()
        if not (path.startswith(beaten) and not _lost(path)) and not (reason.kind == "child" and path.startswith(taken))
    }


def _lost(path: str) -> tuple[str, ...]:
    scope, _, name = path.rpartition("/")
    return (f"{scope}/",) if name.startswith("won") else ()


def _compare(waits: Waits, said: ev.TaskWaiting) -> Iterator[str]:
    for reason in waits.values():
        over = reason.kind == "timer" and (reason.due_at or 0) <= said.at  # it may wait for something else by now
        if reason not in said.reasons and not over:
            yield f"does not say that it waits for {_told(reason)}"
    for reason in said.reasons:
        if reason.kind in _OF_STEPS and reason not in waits.values():
            yield f"says that it waits for {_told(reason)}, which no step does"


def _told(reason: ev.Reason) -> str:
    until = f" until {reason.due_at}" if reason.due_at is not None else ""
    return f"the {reason.kind} {reason.name}".rstrip() + f" of {reason.path}{until}"


def _follow(waits: Waits, event: ev.Event) -> None:
    """What is waited for after this event."""
    match event:
        case ev.StepWaiting() if event.reason == "timer":
            waits[event.path] = ev.Reason(kind="timer", path=event.path, due_at=event.due_at)
        case ev.StepWaiting() if event.reason == "event":
            waits[event.path] = ev.Reason(kind="event", path=event.path, due_at=event.due_at, name=event.name)
        case ev.StepRetrying():
            waits[event.path] = ev.Reason(kind="timer", path=event.path, due_at=event.due_at)
        case ev.ApprovalRequested() | ev.RequestOpened():
            asked = event.request
            kind = "answer" if asked.kind == "question" else asked.kind
            waits[asked.path] = ev.Reason(kind=kind, path=asked.path, due_at=asked.expires_at, name=asked.id)
        case ev.ApprovalGranted() | ev.ApprovalDenied() | ev.ApprovalExpired() | ev.RequestAnswered():
            for path in [path for path, reason in waits.items() if reason.name == event.request_id]:
                del waits[path]
        case ev.ChildStarted():
            waits[event.path] = ev.Reason(kind="child", path=event.path, name=event.child_id)
        case ev.ChildEnded() | ev.StepStarted() | ev.StepCompleted() | ev.StepSkipped() | ev.StepFailed():
            waits.pop(event.path, None)
        case _:
            pass


def _taken_along(path: str) -> tuple[str, ...]:
    """How the paths begin that a function asks for no longer, when this step failed: those of the branches beside it,
    up to where the failure is caught.
    """
    scopes = path.split("/")[:-1]
    gone: list[str] = []
    while scopes and not scopes[-1].startswith("try"):
        if scopes[-1].startswith("gather"):
            gone.append("/".join(scopes).rpartition("[")[0] + "[")
        scopes.pop()
    return tuple(gone)


CHECKS: tuple[Check, ...] = (what_is_waited_for_is_named,)
