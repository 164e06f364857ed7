"""The programs that are killed, what people say to them, and what is done to them while they run.

Each is finished off by a client who follows a script, so that every run of a program has the same story and the same
end, however often its process dies on the way. What may not differ is compared in verdict.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import holdfast
from proof.crash_sweep.world import look, pay, put, stamp


@dataclass(frozen=True, kw_only=True)
class Say:
    """A command to the first execution, given when the steps named in `after` have left their mark in the world."""

    verb: str
    after: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class Open:
    """Open a gate, once everything before it in the script was answered."""

    gate: str


@dataclass(frozen=True, kw_only=True)
class Program:
    """`replies` are what a person says to a request, by the path of its step: a verb and its arguments."""

    subject: Any
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    replies: Mapping[str, tuple[str, dict[str, Any]]] = field(default_factory=dict[str, Any])
    script: Sequence[Say | Open] = ()
    chance: frozenset[str] = frozenset()  # steps whose output is different in every run
    sleepy: bool = False  # it is put to sleep whenever it waits
    elsewhere: bool = False  # replies and script come from another process, which is killed at points of its own


def step(step_id: str, tool: str, value: Any = None, /, **others: Any) -> dict[str, Any]:
    arguments = {"with": {"value": value}} if value is not None else {}
    return {"id": step_id, "tool": tool, **arguments, **others}


def plan(*steps: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    return {"name": "killed", "steps": list(steps), **others}


GRAPH = Program(
    subject=plan(
        step("a", "look", 1),
        step("b", "put", "${{ steps.a.output + 1 }}"),
        step("c", "pay", 3, needs=["b"]),
        step("d", "pay", 4, needs=["b"]),
        step("side", "stamp", 5, needs=["a"]),
        {"id": "nap", "wait": 0.003, "needs": ["c", "d"]},
        step("f", "flaky"),
        step("each", "put", "${{ item }}", for_each=[1, 2, 3], max_parallel=2),
        {"id": "m", "steps": [step("n", "pay", 6), step("o", "put", "${{ steps.n.output }}")]},
        step("unused", "pay", 7, when="${{ steps.a.output > 1 }}"),
        step("z", "look", "${{ steps.each.output }}", needs=["m", "side"]),
        **{"finally": [step("sweep", "put", 8), step("bye", "pay", 9)]},
    )
)


@holdfast.function
async def inner(ctx: holdfast.Context) -> int:
    await ctx.call(put, 1)
    return await ctx.call(pay, 2)


@holdfast.function
async def outer(ctx: holdfast.Context) -> list[Any]:
    first = await ctx.call(look, 1)
    child = await ctx.start(inner)
    paid, put_back = await ctx.gather(ctx.call(pay, 3), ctx.call(put, 4))
    await ctx.call(put, ctx.random(), name="by_chance")
    await ctx.sleep(0.003)
    seven = await ctx.run("seven", lambda: 7)
    return [first, await child.result(), paid, put_back, seven, await ctx.call(pay, 5, name="last")]


FUNCTION = Program(subject="outer", chance=frozenset({"random", "by_chance"}))


@holdfast.function
async def curious(ctx: holdfast.Context) -> int:
    answer = await ctx.ask("how many?", type="integer")
    return await ctx.call(pay, answer)


ASKED = Program(
    subject=plan(
        step("write", "put", 1),
        step("send", "pay", 2, approval="Send it?"),
        {"id": "fine", "approval": "All well?"},
        step("never", "pay", 3, approval=True, critical=False),
        {"id": "count", "start": "curious", "needs": ["fine"]},
        {"id": "news", "wait": {"event": "go"}, "needs": ["fine"]},
        step("last", "pay", "${{ steps.news.output + steps.count.output }}", needs=["news", "count"]),
    ),
    replies={
        "send": ("approve", {"arguments": {"value": 20}}),
        "fine": ("approve", {}),
        "never": ("deny", {"why": "too dear"}),
        "ask": ("answer", {"data": 5}),
    },
    script=[Say(verb="send", after="write", arguments={"name": "go", "data": 30})],
    sleepy=True,
)


@holdfast.function
async def grandchild(ctx: holdfast.Context, value: int) -> int:
    await ctx.call(put, value)
    return await ctx.call(pay, value + 1)


@holdfast.function
async def doomed(ctx: holdfast.Context) -> int:
    await ctx.call(pay, 1)
    await ctx.call("broken")
    return await ctx.call(stamp, 2)


CHILD = """
name: child
inputs: {value: integer}
steps:
  - {id: before, tool: put, with: {value: "${{ inputs.value }}"}}
  - {id: young, start: grandchild, with: {value: "${{ steps.before.output + 1 }}"}}
  - {id: after, tool: pay, with: {value: "${{ steps.young.output }}"}}
"""

FAMILY = Program(
    subject=plan(
        step("first", "put", 1),
        {"id": "good", "start": "child.yaml", "with": {"value": 10}},
        {"id": "bad", "start": "doomed", "needs": ["first"], "critical": False},
        step("both", "pay", "${{ steps.good.output }}", needs=["good", "bad"]),
        output="${{ steps.both.output }}",
    ),
    files={"child.yaml": CHILD},
)

TROUBLE = Program(
    subject=plan(
        step("first", "rate", 1),
        step("settle", "put", 2),
        step("again", "rate", 1),
        step("moved", "transfer", 3),
        step("wired", "wire", 30),
        step("later", "busy", 4),
        step("other", "broken", 5, fallback=["broken", {"tool": "pay", "with": {"value": 50}}]),
        step("typo", "strict", "six"),
        step("known", "strict", "seven", needs=["other"]),
        step("spared", "strict", "eight", needs=["other"]),
        step("lost", "broken", critical=False, needs=["typo", "known", "spared"]),
        step("sure", "transfer", "${{ steps.typo.output + steps.known.output }}", needs=["typo", "known"]),
    ),
    replies={
        "typo": ("resolve", {"remedy": "again", "data": {"value": 6}}),
        "known": ("resolve", {"remedy": "done", "data": 7}),
        "spared": ("resolve", {"remedy": "skip"}),
    },
)


@holdfast.function
async def companion(ctx: holdfast.Context) -> str:
    await ctx.call("linger", gate="one")
    return await ctx.call("linger", gate="two", name="second")


COMMANDED = Program(
    subject=plan(
        step("begin", "put", 1),
        {"id": "with", "start": "companion"},
        {"id": "hold", "tool": "linger", "with": {"gate": "one"}, "needs": ["begin"]},
        {"id": "cut", "tool": "linger", "with": {"gate": "two"}, "needs": ["hold"]},
        {"id": "doubt", "tool": "dwell", "with": {"gate": "two"}, "needs": ["hold"]},
        step("end", "pay", 2, needs=["cut", "doubt", "with"]),
    ),
    script=[
        Say(verb="pause", after="hold", arguments={"why": "lunch"}),
        Open(gate="one"),
        Say(verb="extend", arguments={"steps": [step("more", "pay", 3), step("most", "put", 4)]}),
        Say(verb="pause"),
        Say(verb="resume"),
        Say(verb="interrupt", after="cut doubt second"),
        Open(gate="two"),
        Say(verb="send", arguments={"name": "unheard", "data": 1}),
        Say(verb="interrupt"),
        Say(verb="resume"),
    ],
)

STOPPED = Program(
    subject=plan(
        step("begin", "pay", 1),
        {"id": "with", "start": "companion"},
        {"id": "hold", "tool": "linger", "with": {"gate": "one"}, "needs": ["begin"]},
        step("end", "pay", 2, needs=["with", "hold"]),
        **{"finally": [step("tidy", "pay", 3)]},
    ),
    script=[Say(verb="stop", after="hold linger", arguments={"why": "enough"})],
)


@holdfast.function
async def shopper(ctx: holdfast.Context) -> int:
    await ctx.call("ask_model", 3)
    return await ctx.call("buy", 4)


MORE = ("budget", {"add_micros": 1_000_000})
PAID = Program(
    subject=plan(
        step("first", "ask_model", 1),
        step("second", "buy", 2, needs=[]),
        {"id": "kid", "start": "shopper", "needs": ["first", "second"]},
        step("third", "ask_model", "${{ steps.kid.output }}"),
        step("fourth", "buy", 5),
        budget={"usd": 0.65, "warn_at": 0.5},
    ),
    replies=dict.fromkeys(("first", "second", "third", "fourth", "ask_model", "buy"), MORE),
)

# What saves itself to a file after every step and at every rest, and is added to while it does.
SAVING = Program(
    subject=plan(
        step("first", "put", 1),
        {"id": "hold", "tool": "linger", "with": {"gate": "one"}},
        step("last", "pay", 2),
        checkpoint={"every_steps": 1, "on": ["pause", "interrupt", "end"]},
    ),
    script=[
        Say(verb="extend", after="first", arguments={"steps": [step("more", "pay", 3)]}),
        Say(verb="pause", after="hold"),
        Open(gate="one"),
        Say(verb="extend", arguments={"steps": [step("most", "put", 4)]}),
        Say(verb="resume"),
    ],
)

ASKED_FROM_ELSEWHERE = replace(ASKED, elsewhere=True)
COMMANDED_FROM_ELSEWHERE = replace(COMMANDED, elsewhere=True)

PROGRAMS: dict[str, Program] = {
    "graph": GRAPH,
    "function": FUNCTION,
    "asked": ASKED,
    "family": FAMILY,
    "trouble": TROUBLE,
    "commanded": COMMANDED,
    "stopped": STOPPED,
    "paid": PAID,
    "saving": SAVING,
    "asked-elsewhere": ASKED_FROM_ELSEWHERE,
    "commanded-elsewhere": COMMANDED_FROM_ELSEWHERE,
}
FUNCTIONS = [inner, outer, curious, grandchild, doomed, companion, shopper]
