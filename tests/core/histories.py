"""Histories for tests of the fold: one that holds every kind of event, and ways to fold and to reach a status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.budget import Budget
from holdfast.core.execution import Execution
from holdfast.core.failure import Failure
from holdfast.core.fold import apply
from holdfast.core.policy import Concurrency
from holdfast.core.resources import Usage

CREATED = ev.TaskCreated(at=1, program=ev.Program(kind="plan", name="report"))
STARTED = ev.TaskStarted(at=2, because="created", driver="d1")
BROKEN = Failure(category="transient", message="no answer", error="ConnectionError", happened="unknown")
LIMITED = Failure(category="rate_limit", message="later", happened="nothing", retry_after_s=3.0)
EVENT_TYPES: tuple[type[ev.Event], ...] = get_args(ev.AnyEvent)


def fold(events: Iterable[ev.Event], state: Execution | None = None) -> Execution:
    state = state or Execution(id="e1")
    for event in events:
        apply(state, event, state.seq + 1)
    return state


def running(*events: ev.Event) -> Execution:
    return fold([CREATED, STARTED, *events])


def approval(path: str = "publish", request_id: str = "r1", tool: str = "files.write") -> ev.ApprovalRequested:
    request = ev.Request(id=request_id, kind="approval", path=path, message="Publish?", tool=tool, expires_at=99)
    return ev.ApprovalRequested(at=10, request=request)


def opened(kind: ev.RequestKind, path: str, request_id: str, *remedies: str) -> ev.RequestOpened:
    request = ev.Request(id=request_id, kind=kind, path=path, message="What now?", remedies=remedies)
    return ev.RequestOpened(at=10, request=request)


def step(path: str, *, at: int = 5, tool: str = "http.get", **values: object) -> ev.StepStarted:
    return ev.StepStarted(at=at, path=path, tool=tool, **values)  # pyright: ignore[reportArgumentType]


TO_STATUS: dict[str, tuple[ev.Event, ...]] = {
    "queued": (CREATED,),
    "running": (CREATED, STARTED),
    "waiting": (CREATED, STARTED, ev.TaskWaiting(at=3, reasons=(ev.Reason(kind="approval", path="publish"),))),
    "paused": (CREATED, STARTED, ev.TaskPaused(at=3, by="ann", why="lunch", until=50)),
    "interrupted": (CREATED, STARTED, ev.TaskInterrupted(at=3, by="ann")),
    "completed": (CREATED, STARTED, ev.TaskCompleted(at=3, output=Raw(b"42"))),
    "failed": (CREATED, STARTED, ev.TaskError(at=3, failure=BROKEN, path="search")),
    "stopped": (CREATED, STARTED, ev.TaskStopped(at=3, by="ann")),
}

LONG: tuple[ev.Event, ...] = (
    ev.TaskCreated(
        at=1,
        program=ev.Program(kind="plan", name="report", source=Raw(b'{"steps":[]}'), file="report.yaml"),
        inputs=Raw(b'{"topic":"tides"}'),
        owner="ann",
        title="Report on tides",
        labels={"team": "sea"},
        key="daily",
        parent=ev.Parent(id="p1", path="reports"),
        forked_from=ev.ForkedFrom(id="f1", at="search"),
        concurrency=Concurrency(key="reports", limit=2),
        pause_timeout_s=60.0,
        on_pause_timeout="resume",
        engine="0.1.0",
        folder="/srv/reports",
        tools={"http.get": "1"},
        total=7,
        budget=Budget(limit_micros=500_000, warn_at=0.5),
    ),
    ev.StepCarried(at=1, path="search", tool="http.get", digest="ab", call_key="f1:search", notes=Raw(b"1")),
    step("old", at=1, digest="cd"),
    ev.StepCompleted(at=1, path="old", output=Raw(b"0")),
    ev.TaskStarted(at=2, because="created", driver="d1"),
    ev.StepDiscarded(at=2, path="old", why="its input is another one now"),
    step("search", effect="idempotent", arguments=Raw(b'{"q":1}'), digest="ab", title="Search"),
    ev.StepNoted(at=6, path="search", data=Raw(b'{"session":"s1"}')),
    ev.StepRetrying(at=7, path="search", failure=BROKEN, due_at=9, started_at=5, duration_us=2),
    step("search", at=9, attempt=2),
    ev.TaskRecovered(at=10, driver="d2", lost="d1"),
    step("search", at=11, attempt=3),
    ev.StepCompleted(at=12, path="search", attempt=3, output=Raw(b'{"hits":[1,2]}'), started_at=11, duration_us=1),
    step("pages", kind="for_each", tool="", total=2, at=13),
    step("pages[0]", at=14),
    ev.StepFailed(at=15, path="pages[0]", failure=BROKEN, critical=False, started_at=14, duration_us=1),
    ev.StepSkipped(at=16, path="pages[1]", reason="when: false"),
    ev.StepCompleted(at=17, path="pages", output=Raw(b"[null,null]")),
    ev.StepDiverged(at=18, path="search", recorded="ab", attempted="cd"),
    ev.StepUndone(at=18, path="search", by="ann"),
    ev.StepWaiting(at=19, path="publish", reason="approval", tool="files.write", due_at=99),
    approval(),
    ev.TaskWaiting(at=20, reasons=(ev.Reason(kind="approval", path="publish", due_at=99),)),
    ev.ApprovalGranted(at=21, request_id="r1", by="ann", why="fine", arguments=Raw(b'{"path":"x"}'), sticky=True),
    ev.TaskStarted(at=22, because="woken", driver="d2"),
    step("publish", effect="once", tool="files.write", at=23),
    ev.StepInDoubt(at=24, path="publish", why="its driver died"),
    opened("doubt", "publish", "r2", "done", "again", "skip"),
    ev.RequestAnswered(at=26, request_id="r2", remedy="done", by="ann", data=Raw(b"1")),
    ev.StepCompleted(at=27, path="publish", output=Raw(b"1"), by="ann"),
    ev.StepWaiting(at=28, path="tide", reason="event", kind="wait", name="high"),
    ev.EventReceived(at=29, name="high", data=Raw(b"3"), by="moon"),
    ev.EventReceived(at=30, name="high", data=Raw(b"4")),
    ev.StepCompleted(at=31, path="tide", output=Raw(b"3"), consumed=32),
    step("part", kind="child", tool="", at=32),
    ev.ChildStarted(at=33, path="part", child_id="c1"),
    ev.TaskPaused(at=34, by="ann", why="lunch", until=90, on_timeout="resume"),
    ev.TaskPauseExpiring(at=35, due_at=90, then="resume"),
    ev.TaskResumed(at=36, by="ann", forced=("tools changed",)),
    ev.TaskStarted(at=37, because="resumed"),
    ev.ChildEnded(at=38, path="part", child_id="c1", status="failed", failure=BROKEN),
    ev.StepCompleted(at=39, path="part", output=Raw(b"null")),
    ev.PlanExtended(at=40, steps=Raw(b'[{"id":"mail"}]'), count=1, by="ann"),
    ev.CheckpointSaved(at=40, file="e1.51.json", through=51, bytes=9000, ended=4),
    step("mail", at=41),
    ev.StepInterrupted(at=42, path="mail", started_at=41, duration_us=1),
    ev.TaskInterrupted(at=43, by="ann", why="wrong list"),
    ev.TaskResumed(at=44, by="ann"),
    ev.TaskStarted(at=45, because="resumed"),
    ev.StepWaiting(at=46, path="mail", reason="approval"),
    approval("mail", "r3", "mail.send"),
    ev.ApprovalDenied(at=48, request_id="r3", by="ann", why="too many"),
    ev.StepFailed(at=49, path="mail", failure=Failure(category="permission", message="denied")),
    ev.StepWaiting(at=50, path="late", reason="approval"),
    approval("late", "r4"),
    ev.ApprovalExpired(at=100, request_id="r4"),
    ev.StepSkipped(at=101, path="late", reason="expired", by="ann"),
    ev.StepLogged(at=101, path="search", attempt=3, log=ev.Blob(digest="cd" * 16, bytes=40), lines=2),
)
PAID: tuple[ev.Event, ...] = (  # what a budget adds to a history, after any other events
    step("ask", at=102, tool="model.ask", reserved_micros=200_000),
    ev.StepCompleted(at=103, path="ask", spent_micros=130_000),
    step("draw", at=104, tool="model.draw", effect="once", reserved_micros=200_000),
    ev.StepInDoubt(at=105, path="draw", why="its driver died"),
    ev.BudgetWarned(at=105, settled_micros=330_000, limit_micros=500_000),
    ev.StepSkipped(at=106, path="draw", reason="skipped by ann", by="ann"),
    ev.BudgetExhausted(at=107, path="sing", needed_micros=200_000, room_micros=170_000, limit_micros=500_000),
    ev.StepWaiting(at=107, path="sing", reason="budget", tool="model.sing"),
    opened("budget", "sing", "r5", "skip", "fail"),
    ev.BudgetRaised(at=108, limit_micros=900_000, by="ann"),
    ev.RequestAnswered(at=108, request_id="r5", remedy="raised", by="ann"),
    step("sing", at=109, tool="model.sing", reserved_micros=200_000),
    ev.StepRetrying(at=110, path="sing", failure=LIMITED, due_at=111, spent_micros=0),
    step("sing", at=111, attempt=2, tool="model.sing", reserved_micros=200_000),
    step("sing", at=112, attempt=3, tool="model.sing", reserved_micros=200_000),
    ev.StepFailed(at=113, path="sing", attempt=3, failure=BROKEN, critical=False, spent_micros=50_000),
    step("kin", kind="child", tool="child", at=114),
    ev.ChildStarted(at=114, path="kin", child_id="c2", reserved_micros=320_000),
    ev.BudgetRaised(at=115, limit_micros=1_000_000, by="ann", path="kin"),
    ev.ChildEnded(at=116, path="kin", child_id="c2", status="completed", spent_micros=70_000, unknown=1),
    ev.StepCompleted(at=117, path="kin"),
    step("last", at=118, tool="model.ask", reserved_micros=200_000),
)
PRESSED: tuple[ev.Event, ...] = (  # what a machine short of memory adds, and what commands used, after any other events
    ev.PressureFelt(at=119, path="build", stage="tight", why="5.0% of the memory is free, and 10.0% is the least"),
    ev.TaskWaiting(at=119, reasons=(ev.Reason(kind="pressure", path="build", due_at=179, name="tight"),)),
    ev.TaskStarted(at=120, because="woken", driver="d2"),
    step("build", at=121, tool="shell.run"),
    ev.StepRetrying(at=122, path="build", failure=BROKEN, due_at=123, used=Usage(cpu_s=1.5, memory_bytes=9000)),
    step("build", at=123, attempt=2, tool="shell.run"),
    ev.StepCompleted(
        at=124, path="build", attempt=2,
        used=Usage(cpu_s=0.25, memory_bytes=7000, processes=3, disk_bytes=512, output_bytes=10),
    ),
    step("test", at=125, tool="shell.run"),
    ev.StepFailed(at=126, path="test", failure=BROKEN, critical=False, used=Usage(cpu_s=2.0)),
)  # fmt: skip
ENDINGS: tuple[ev.Event, ...] = (
    ev.TaskCompleted(at=102, output=Raw(b'{"done":true}')),
    ev.TaskError(at=102, failure=BROKEN, path="mail"),
    ev.TaskStopped(at=102, by="ann", why="enough"),
)
