"""Writes the golden journals of the current schema version: histories that every later Holdfast must fold the same.

Run `python tests/golden/make.py` once for a new schema version, and commit what it wrote. A journal that exists is
never written again: old ones are what people have on their disks.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

sys.path.insert(0, str(Path(__file__).parent.parent))

from proof.simulator import play
from proof.simulator.scenario import draw_plain

from core.histories import ENDINGS, LIMITED, LONG, PAID, PRESSED, TO_STATUS, opened, step
from holdfast.core import events as ev
from holdfast.core.execution import Execution
from holdfast.core.fold import apply
from holdfast.core.policy import Checkpoints
from holdfast.engine.transfer.export import gather
from holdfast.journal.bundle.read import read
from holdfast.journal.bundle.write import write
from holdfast.journal.codec import CHAIN_START, Row, decode, link, make_row, make_snapshot, verify

HERE = Path(__file__).parent
HISTORY = 0  # in which children, retries, large values and people's answers come about
RAW_INPUTS = msgspec.Raw(b'{"topic": "tides"}')
BLOB = msgspec.Raw(msgspec.json.encode(ev.Blob(digest="ab" * 16, bytes=9000)))


class Golden(msgspec.Struct, kw_only=True):
    """`events` are [schema version, body] pairs; `digest` is the end of their chain; `snapshot` the folded state."""

    events: list[tuple[int, str]]
    digest: str
    summary: dict[str, Any]
    snapshot_version: int
    snapshot: str

    def rows(self) -> list[Row]:
        """With digests computed from the bytes, so that the chain's rule is frozen by `digest`."""
        rows: list[Row] = []
        chain = CHAIN_START
        for seq, (version, body) in enumerate(self.events, 1):
            chain = link(chain, version, body.encode())
            rows.append(Row(seq, version, body.encode(), chain))
        return rows


def folded(rows: Sequence[Row]) -> Execution:
    state = Execution(id="golden")
    for row in rows:
        apply(state, decode(row), row.seq)
    return state


def summary(state: Execution) -> dict[str, Any]:
    """What people would notice if it changed."""
    facts = state.facts()
    return {
        "status": state.status,
        "title": state.title,
        "owner": facts.owner,
        "program": [facts.program.kind, facts.program.name],
        "seq": state.seq,
        "ended": [state.ended, state.total],
        "output": bytes(state.output).decode(),
        "failure": state.failure.message if state.failure else None,
        "failed_path": state.failed_path,
        "by": [state.by, state.why],
        "steps": {path: _step(found) for path, found in sorted(state.steps.items())},
        "open_steps": sorted(state.open_steps),
        "open_requests": sorted(asked.request.id for asked in state.open_requests()),
        "sticky": sorted(state.sticky),
        "mailbox": {name: [item.seq for item in items] for name, items in sorted(state.mailbox.items())},
        "children": {path: [child.id, child.status] for path, child in sorted(state.children.items())},
        "extensions": len(state.extensions),
        "recoveries": state.recoveries,
        "accepted": list(state.accepted),
        **({"spend": msgspec.to_builtins(state.spend)} if state.spend.amounts else {}),
    }


def _step(step: Any) -> dict[str, Any]:
    return {
        "status": step.status,
        "tool": step.tool,
        "attempts": [one.outcome for one in step.attempts],
        "output": bytes(step.output).decode(),
        "failure": step.failure.category if step.failure else None,
        "reason": step.reason,
        "by": step.by,
        "retries": step.retries,
        "diverged": step.diverged,
        **({"used": msgspec.to_builtins(step.used)} if step.used else {}),
    }


def whole(state: Execution) -> Any:
    """All of a folded state, as JSON: what a snapshot of it would hold, whatever snapshots look like by then."""
    return msgspec.json.decode(make_snapshot(state, CHAIN_START).body)


def lost(then: Any, now: Any, where: str = "") -> list[str]:
    """Where a state of today does not say what it said then. What it says beyond that is new, and harms nobody."""
    if isinstance(then, dict) and isinstance(now, dict):
        named: dict[str, Any] = cast("dict[str, Any]", then)
        return [text for name in named for text in lost(named[name], now.get(name), f"{where}.{name}")]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        return [text for place, (old, new) in pairs for text in lost(old, new, f"{where}[{place}]")]
    return [] if then == now else [f"{where}: {then!r} then, {now!r} now"]


def golden(events: Sequence[ev.Event]) -> Golden:
    rows: list[Row] = []
    for seq, event in enumerate(events, 1):
        rows.append(make_row(rows[-1].digest if rows else CHAIN_START, seq, event))
    chain = verify(rows, 0, CHAIN_START)
    state = folded(rows)
    told = summary(state)
    state.snapshot_seq = state.seq
    snapshot = make_snapshot(state, chain)
    return Golden(
        events=[(row.version, row.body.decode()) for row in rows],
        digest=chain.hex(),
        summary=told,
        snapshot_version=snapshot.version,
        snapshot=snapshot.body.decode(),
    )


# What a function leaves behind: names instead of a pinned document, code steps, a question, a child, a divergence of
# time and chance recorded, and a program that was told to go on in spite of a change.
FUNCTION: Sequence[ev.Event] = [
    ev.TaskCreated(
        at=1, program=ev.Program(kind="function", name="research"), inputs=RAW_INPUTS, owner="ann", hold=True
    ),
    ev.TaskResumed(at=2, by="ann", why="now", forced=("research changed",)),
    ev.TaskStarted(at=2, because="resumed", driver="d1"),
    step("now", kind="code", tool="code", at=3),
    ev.StepCompleted(at=3, path="now", output=msgspec.Raw(b'"2026-01-01T00:00:00Z"')),
    step("both[0]/fetch", effect="read", at=4),
    step("both[1]/fetch~2", effect="once", at=4),
    ev.StepCompleted(at=5, path="both[0]/fetch", output=BLOB, started_at=4, duration_us=7, cached=True),
    ev.StepRetrying(at=6, path="both[1]/fetch~2", failure=LIMITED, due_at=9, fallback=1, reduced=True, refreshed=True),
    step("both[1]/fetch~2", effect="once", at=9, attempt=2, fallback=1, reduced=True, refreshed=True, tool="other"),
    ev.StepCompleted(at=10, path="both[1]/fetch~2", attempt=2, output=msgspec.Raw(b"1.0"), tool="other"),
    ev.StepWaiting(at=11, path="colour", reason="answer", kind="wait", name="which?"),
    opened("question", "colour", "r1"),
    ev.TaskWaiting(at=12, reasons=(ev.Reason(kind="answer", path="colour", name="r1"),)),
    ev.RequestAnswered(at=13, request_id="r1", remedy="answered", by="ann", data=msgspec.Raw(b'"blue"')),
    ev.TaskStarted(at=14, because="woken", driver="d2"),
    ev.StepCompleted(at=15, path="colour", output=msgspec.Raw(b'"blue"'), by="ann"),
    step("part", kind="child", tool="research", at=16),
    ev.ChildStarted(at=16, path="part", child_id="c1"),
    ev.ChildEnded(at=17, path="part", child_id="c1", status="completed", output=msgspec.Raw(b"[1]")),
    ev.StepCompleted(at=18, path="part", output=msgspec.Raw(b"[1]")),
    ev.TaskCompleted(at=19, output=msgspec.Raw(b'{"big":123456789012345678901234567890}')),
]

# What saves itself to files while it goes on.
SAVED: Sequence[ev.Event] = [
    ev.TaskCreated(
        at=1, program=ev.Program(kind="function", name="research"), inputs=RAW_INPUTS,
        checkpoint=Checkpoints(every_steps=1, every_s=60.0, on=("pause", "end")),
    ),
    ev.TaskStarted(at=2, because="created", driver="d1"),
    step("fetch", at=3),
    ev.StepCompleted(at=4, path="fetch", output=msgspec.Raw(b"1")),
    ev.CheckpointSaved(at=5, file="/x/executions/golden.4.json", through=4, bytes=900, ended=1),
    ev.TaskPaused(at=6, by="ann"),
    ev.CheckpointSaved(at=7, file="/x/executions/golden.6.json", through=6, bytes=1100, ended=1),
]  # fmt: skip

HISTORIES: dict[str, Sequence[ev.Event]] = {
    "completed": [*LONG, ENDINGS[0]],
    "failed": [*LONG, ENDINGS[1]],
    "stopped": [*LONG, ENDINGS[2]],
    "retried": [*LONG, ENDINGS[0]],  # with what a retry copies; the three above were written before there was that
    "running": [
        *TO_STATUS["running"],
        step("search", arguments=msgspec.Raw(b'{"q": 1}')),
        step("pages", kind="for_each"),
    ],
    "waiting": TO_STATUS["waiting"],
    "paused": TO_STATUS["paused"],
    "queued": TO_STATUS["queued"],
    "interrupted": TO_STATUS["interrupted"],
    "function": FUNCTION,
    "budget": [*LONG, *PAID, ENDINGS[0]],
    "saved": SAVED,
    "pressed": [*TO_STATUS["running"], *PRESSED],
    "logged": [
        *TO_STATUS["running"],
        step("search"),
        ev.StepLogged(at=6, path="search", log=ev.Blob(digest="cd" * 16, bytes=40), lines=2),
        ev.StepCompleted(at=6, path="search"),
    ],
}


class Exported(msgspec.Struct, kw_only=True):
    """A file as an engine exported it, and by the id of each execution in it all that its events amounted to."""

    file: str
    states: dict[str, Any]


def exported() -> Exported:
    """The largest family of a simulated history: written by an engine, and the same wherever it is made."""
    played = play(draw_plain(HISTORY))
    heads = {head.id: head for head in played.store.all_heads()}
    parents = sorted((head.parent_id for head in heads.values() if head.parent_id), key=lambda one: -heads[one].seq)
    bundle = asyncio.run(gather(played.store, parents[0]))
    file = b"".join(write(bundle, "golden"))
    states = {carried.state.id: whole(carried.state) for carried in read(file).executions}
    return Exported(file=file.decode(), states=states)


def main() -> None:
    folder = HERE / f"v{ev.SCHEMA_VERSION}"
    folder.mkdir(exist_ok=True)
    family = folder / "family.export"
    if not family.exists():
        family.write_bytes(msgspec.json.format(msgspec.json.encode(exported())) + b"\n")
        print(f"{family.name} written")
    for name, events in HISTORIES.items():
        path = folder / f"{name}.json"
        if path.exists():
            print(f"{path.name} exists and stays as it is")
            continue
        path.write_bytes(msgspec.json.format(msgspec.json.encode(golden(events))) + b"\n")
        print(f"{path.name} written")


if __name__ == "__main__":
    main()
