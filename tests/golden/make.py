"""Writes the golden journals of the current schema version: histories that every later Holdfast must fold the same.

Run `python tests/golden/make.py` once for a new schema version, and commit what it wrote. A journal that exists is
never written again: old ones are what people have on their disks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parent.parent))

from core.histories import ENDINGS, LONG, TO_STATUS, step
from holdfast.core import events as ev
from holdfast.core.execution import Execution, percent
from holdfast.core.fold import apply
from holdfast.journal.codec import CHAIN_START, Row, decode, link, make_row, make_snapshot, verify

HERE = Path(__file__).parent


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
        "percent": percent(state),
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
    }


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


HISTORIES: dict[str, Sequence[ev.Event]] = {
    "completed": [*LONG, ENDINGS[0]],
    "failed": [*LONG, ENDINGS[1]],
    "stopped": [*LONG, ENDINGS[2]],
    "running": [
        *TO_STATUS["running"],
        step("search", arguments=msgspec.Raw(b'{"q": 1}')),
        step("pages", kind="for_each"),
    ],
    "waiting": TO_STATUS["waiting"],
    "paused": TO_STATUS["paused"],
}


def main() -> None:
    folder = HERE / f"v{ev.SCHEMA_VERSION}"
    folder.mkdir(exist_ok=True)
    for name, events in HISTORIES.items():
        path = folder / f"{name}.json"
        if path.exists():
            print(f"{path.name} exists and stays as it is")
            continue
        path.write_bytes(msgspec.json.format(msgspec.json.encode(golden(events))) + b"\n")
        print(f"{path.name} written")


if __name__ == "__main__":
    main()
