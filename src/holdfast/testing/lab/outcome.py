"""What became of a run: the execution as the world outside sees it, and the calls that reached the tools."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.commands import REASON_WORDS
from holdfast.core.execution import Execution
from holdfast.engine.json_view import plain, resolved, wire_event, wire_state
from holdfast.journal.log import read_events, read_state
from holdfast.journal.memory import MemoryStore
from holdfast.journal.store import Query
from holdfast.testing.lab.errors import LabError
from holdfast.testing.lab.fakes import ToolCall
from holdfast.testing.recordings.recording import record_stored

QUERY_MAX = 10_000


class Outcome(msgspec.Struct, kw_only=True, repr_omit_defaults=True):
    """`events`, `steps` and `requests` are as `holdfast events` and `holdfast show --json` print them.

    `doubts` are the steps that were in doubt at any time, `crashes` the points at which a process was killed, `points`
    those that a run with crash_at="everywhere" tried. `seconds` is virtual time.
    """

    id: str
    status: str
    failure: dict[str, Any] | None
    waiting_for: str
    seconds: float
    events: list[dict[str, Any]]
    steps: dict[str, dict[str, Any]]
    requests: list[dict[str, Any]]
    calls: list[ToolCall]
    doubts: list[str]
    children: list[Outcome]
    recording: bytes
    crashes: list[str] = []
    points: list[str] = []
    commits: int = 0
    value: Any = None

    def __repr__(self) -> str:
        return f"<outcome: {self.described()}>"

    @property
    def output(self) -> Any:
        """The output. Raises if the execution did not complete: there is none, not even null."""
        if self.status != "completed":
            raise LabError(f"there is no output: the execution is {self.explained()}")
        return self.value

    def explained(self) -> str:
        """How it is described, and what went wrong where a person should correct it."""
        wrong = [request for request in self.requests if request["kind"] == "correction" and request["failure"]]
        failed = [f"{request['path']}: {request['failure']['message']}" for request in wrong]
        return "; ".join([self.described(), *failed])

    def described(self) -> str:
        """In words that a crash on the way does not change."""
        if self.failure is not None:
            return f"{self.status}: {self.failure['message']}"
        return f"{self.status} for {self.waiting_for}" if self.waiting_for else self.status

    def calls_of(self, tool: str) -> list[ToolCall]:
        """The calls of one tool, by its name or by a step's path."""
        return [call for call in self.calls if tool in (call.tool, call.path)]

    def names(self, prefix: str = "") -> list[str]:
        """The names of the events, in order; `names("step:")` are those that begin so."""
        return [name for event in self.events if (name := str(event["type"])).startswith(prefix)]


async def outcome_of(store: MemoryStore, execution_id: str, calls: list[ToolCall], now_us: int) -> Outcome:
    head, state, _ = await read_state(store, execution_id)
    events = await read_events(store, execution_id, 0)
    shown = await resolved(store, wire_state(head, state, lambda _: False))
    children = await store.heads(Query(parent_id=execution_id, limit=QUERY_MAX))
    return Outcome(
        id=execution_id,
        status=state.status,
        value=shown["output"],
        failure=cast("dict[str, Any] | None", plain(state.failure)),
        waiting_for=_reasons(state),
        seconds=((state.ended_at or now_us) - state.facts().at) / 1e6,
        events=[await resolved(store, wire_event(execution_id, seq, event)) for seq, event in events],
        steps={step["path"]: step for step in cast("list[dict[str, Any]]", shown["steps"])},
        requests=cast("list[dict[str, Any]]", shown["requests"]),
        calls=[call for call in calls if call.execution_id == execution_id],
        doubts=list(dict.fromkeys(event.path for _, event in events if isinstance(event, ev.StepInDoubt))),
        children=[await outcome_of(store, child.id, calls, now_us) for child in reversed(children)],
        recording=await record_stored(store, execution_id),
    )


def _reasons(state: Execution) -> str:
    """In words that do not change when a crash changes the numbers of requests."""
    more = sum(reason.more for reason in state.reasons)
    parts = [
        f"{REASON_WORDS[reason.kind]} ({reason.name if reason.kind == 'event' else reason.path})"
        for reason in state.reasons
    ]
    return " and ".join([*parts, *([f"{more} more"] if more else [])])
