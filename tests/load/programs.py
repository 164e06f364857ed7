"""What the load tests run: six programs that meet every kind of wait, and tools that leave a mark outside the journal.

Every call of a tool that matters appends `effect key` to a ledger file, which nothing but the file system remembers.
So what the journal says happened can be compared with what did.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import holdfast
from holdfast.core.execution import Execution

LEDGER = "ledger.txt"
BLINK_S = 0.004  # long enough for an interrupt to come in between
QUICK = holdfast.Retry(first_s=0.001)  # the default number of retries, without the waiting

Ledger = Counter[tuple[str, str]]  # how often each (effect, key) was seen in the world


def mark(call: holdfast.Call, effect: str) -> None:
    handle = os.open(call.folder / LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{effect} {call.key}\n".encode())
    os.close(handle)


def read_ledger(folder: Path) -> Ledger:
    file = folder / LEDGER
    lines = file.read_text().splitlines() if file.exists() else []
    return Counter((effect, key) for effect, _, key in (line.partition(" ") for line in lines))


@holdfast.tool(effect="read")
async def look(value: Any = None) -> Any:
    return value


@holdfast.tool(effect="idempotent")
async def put(call: holdfast.Call, value: Any = None) -> Any:
    mark(call, "idempotent")
    await asyncio.sleep(BLINK_S)
    return value


@holdfast.tool(effect="once")
async def pay(call: holdfast.Call, value: Any = None) -> Any:
    mark(call, "once")
    await asyncio.sleep(BLINK_S)
    return value


# It fails on purpose: a breaker would take that for a service that is down, and have all of them wait.
@holdfast.tool(effect="idempotent", retry=QUICK, breaker=False)
async def flaky(call: holdfast.Call, fails: int) -> int:
    mark(call, "idempotent")
    if call.attempt <= fails:
        raise holdfast.Transient("not yet")
    return call.attempt


@holdfast.function
async def leaf(ctx: holdfast.Context, value: int = 1) -> int:
    await ctx.sleep(0.01)
    return await ctx.call(pay, value)


@holdfast.function
async def family(ctx: holdfast.Context, value: int = 1) -> list[Any]:
    child = await ctx.start(leaf, {"value": value})
    both = await ctx.gather(ctx.call(put, value), ctx.call(pay, value))
    await ctx.wait_for("go")
    return [*both, await child.result()]


@holdfast.function
async def asker(ctx: holdfast.Context, value: int = 1) -> int:
    await ctx.call(put, value)
    return await ctx.call(pay, await ctx.ask("how much?", type="integer", name="much"))


ERRAND: dict[str, Any] = {
    "name": "errand",
    "inputs": {"value": "integer"},
    "steps": [
        {"id": "look", "tool": "look", "with": {"value": "${{ inputs.value }}"}},
        {"id": "try", "tool": "flaky", "with": {"fails": "${{ inputs.value % 3 }}"}},
        {"id": "pay", "tool": "pay", "with": {"value": "${{ steps.look.output }}"}},
    ],
    "output": "${{ steps.pay.output }}",
}
GATED: dict[str, Any] = {
    "name": "gated",
    "inputs": {"value": "integer"},
    "steps": [
        {"id": "put", "tool": "put"},
        {"id": "gate", "wait": {"event": "go"}},
        {"id": "pay", "tool": "pay", "with": {"value": "${{ inputs.value }}"}},
    ],
}
APPROVED: dict[str, Any] = {
    "name": "approved",
    "inputs": {"value": "integer"},
    "steps": [
        {"id": "put", "tool": "put"},
        {"id": "pay", "tool": "pay", "approval": "required"},
        {"id": "tell", "tool": "put", "with": {"value": "${{ inputs.value }}"}},
    ],
}
BATCH: dict[str, Any] = {
    "name": "batch",
    "inputs": {"value": "integer"},
    "steps": [
        {"id": "each", "tool": "put", "for_each": [1, 2, 3], "with": {"value": "${{ item }}"}},
        {"id": "nap", "wait": 0.02},
        {"id": "part", "start": "leaf", "with": {"value": "${{ inputs.value }}"}},
    ],
}

TOOLS = [look, put, pay, flaky]
FUNCTIONS = [leaf, family, asker]
PROGRAMS: tuple[Any, ...] = (ERRAND, GATED, APPROVED, BATCH, family, asker)
WEIGHTS = (1, 3, 3, 1, 1, 2)  # most of them wait for somebody


def any_program(rng: Random) -> Any:
    return rng.choices(PROGRAMS, WEIGHTS)[0]


def check_world(states: list[Execution], ledger: Ledger) -> list[str]:
    """What the journal says against what happened: every difference, as a sentence."""
    wrong: list[str] = []
    known: set[tuple[str, str]] = set()
    for state in states:
        for path, step in state.steps.items():
            if step.kind != "tool" or step.effect == "read":
                continue
            key = (step.effect, f"{state.id}:{path}")
            known.add(key)
            times = ledger[key]
            if step.status == "completed" and not times:
                wrong.append(f"{key[1]} completed and never happened")
            if step.effect == "once" and times > 1:
                wrong.append(f"{key[1]} happened {times} times")
            if times > max(1, step.attempt):
                wrong.append(f"{key[1]} happened {times} times in {step.attempt} attempts")
    wrong += [f"{key} happened, and no journal knows of it" for _, key in ledger.keys() - known]
    return wrong
