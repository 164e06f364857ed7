"""Histories for the property tests: any event there is, and what real executions of random plans left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import Raw

import holdfast
from holdfast.core import events as ev
from holdfast.core.budget import Budget
from holdfast.core.failure import Failure
from holdfast.core.policy import Checkpoints, Concurrency
from holdfast.journal.log import read_events

texts = st.text(max_size=20)
numbers = st.integers(-(2**53), 2**53)
raws = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner),
).map(lambda value: Raw(msgspec.json.encode(value)))
failures = st.builds(
    Failure,
    category=st.sampled_from(["transient", "logic", "tool"]),
    message=texts,
    happened=st.sampled_from(["nothing", "known", "unknown"]),
    affects=st.lists(texts, max_size=2).map(tuple),
)
requests = st.builds(
    ev.Request,
    id=texts,
    kind=st.sampled_from(["approval", "doubt"]),
    path=texts,
    message=texts,
    arguments=raws,
    failure=st.none() | failures,
)
PARTS: dict[str, st.SearchStrategy[Any]] = {
    "request": requests,
    "failure": failures,
    "program": st.builds(ev.Program, kind=texts, name=texts, source=raws),
    "parent": st.none() | st.builds(ev.Parent, id=texts, path=texts),
    "forked_from": st.none() | st.builds(ev.ForkedFrom, id=texts, at=texts),
    "budget": st.none() | st.builds(Budget, limit_micros=numbers),
    "checkpoint": st.none() | st.builds(Checkpoints, every_steps=st.none() | numbers, on=st.just(("end",))),
    "concurrency": st.none() | st.builds(Concurrency, key=texts, limit=numbers),
    "log": st.builds(ev.Blob, digest=texts, bytes=numbers),
    "reasons": st.lists(st.builds(ev.Reason, kind=st.sampled_from(["timer", "event"]), path=texts)).map(tuple),
    "labels": st.dictionaries(texts, texts, max_size=3),
    "tools": st.dictionaries(texts, texts, max_size=3),
    "forced": st.lists(texts, max_size=2).map(tuple),
    **dict.fromkeys(("inputs", "output", "arguments", "data", "steps", "trace", "notes"), raws),
}


def events_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Each field by its name where it is a struct or JSON, else by its type; optional ones are sometimes left out."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    hints = msgspec.inspect.type_info(kind)
    assert isinstance(hints, msgspec.inspect.StructType)
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in hints.fields:
        found = PARTS[field.name] if field.name in PARTS else _plain(field.type)
        (fields if field.required else optional)[field.name] = found
    return st.fixed_dictionaries(fields, optional=optional).map(lambda values: kind(**values))


def _plain(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case msgspec.inspect.IntType():
            return numbers
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.StrType():
            return texts
        case msgspec.inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case msgspec.inspect.StructType(cls=part):
            return events_of(part)
        case msgspec.inspect.VarTupleType(item_type=item):
            return st.lists(_plain(item), max_size=3).map(tuple)
        case msgspec.inspect.UnionType(types=types):
            return st.one_of([st.none() if isinstance(t, msgspec.inspect.NoneType) else _plain(t) for t in types])
        case _:
            raise AssertionError(f"no strategy for {kind}")


# ---- what real executions left behind --------------------------------------------------------------------------

commands = st.lists(st.sampled_from(["pause", "interrupt", "resume", "approve", "send", "stop"]), max_size=4)


@st.composite
def small_plans(draw: st.DrawFn) -> dict[str, Any]:
    """Plans that run in a moment: tools that work, fail for a while or for good, waits, approvals, loops, nesting."""
    found: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 4))):
        step: dict[str, Any] = {"id": f"s{number}"}
        if number and draw(st.booleans()):
            step["needs"] = draw(st.lists(st.sampled_from([one["id"] for one in found]), unique=True))
        step |= draw(
            st.sampled_from(
                [
                    {"tool": "act", "with": {"fails": 0}},
                    {"tool": "act", "with": {"fails": 2}, "retry": {"max": 3, "first": 0.0}},
                    {"tool": "act", "with": {"fails": 9}, "retry": {"max": 1, "first": 0.0}, "critical": False},
                    {"tool": "act", "with": {"fails": 9}, "retry": 0, "fallback": "rest"},
                    {"tool": "rest", "for_each": [1, 2], "when": "1 < 2"},
                    {"tool": "rest", "when": False},
                    {"tool": "rest", "approval": "required"},
                    {"wait": {"event": "go"}},
                    {"wait": 0.001},
                    {"steps": [{"id": f"in{number}", "tool": "rest"}]},
                ]
            )
        )
        found.append(step)
    return {"name": "random", "steps": found}


async def history_of(plan: dict[str, Any], said: list[str]) -> list[ev.Event]:
    """Run a plan on a store in memory, with these commands along the way, and read what it left."""

    @holdfast.tool(effect="idempotent")
    async def act(call: holdfast.Call, fails: int) -> int:
        if call.attempt <= fails:
            raise holdfast.Transient("not yet")
        return fails

    @holdfast.tool(effect="idempotent")
    async def rest(fails: int = 0) -> None: ...

    limits = holdfast.Limits(passivate_after_s=0.0)
    async with holdfast.Engine("memory:", tools=[act, rest], limits=limits) as engine:
        run = await engine.start(plan)
        for verb in [*said, "stop"]:
            await asyncio.sleep(0.003)  # what has happened by then is the machine's business; any history will do
            named = {"name": "go"} if verb == "send" else {}
            await run.command(verb, by="ann", **named)
        return [event for _, event in await read_events(engine.services.store, run.id, 0)]


histories = st.tuples(small_plans(), commands).map(lambda drawn: asyncio.run(history_of(*drawn)))
