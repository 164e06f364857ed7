"""What the measurements of Holdfast share: a scratch engine, no-op tools, and one line of JSON."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import holdfast


@holdfast.tool(effect="idempotent")
async def idempotent(i: int) -> int:
    return i


@holdfast.tool(effect="once")
async def once(i: int) -> int:
    return i


@holdfast.tool(effect="read")
async def read(i: int) -> int:
    return i


@holdfast.function
async def sequence(ctx: holdfast.Context, steps: int, effect: str = "idempotent") -> int:
    tool = {"idempotent": idempotent, "once": once, "read": read}[effect]
    for i in range(steps):
        await ctx.call(tool, i)
    return steps


@asynccontextmanager
async def scratch_engine(**limits: float) -> AsyncIterator[holdfast.Engine]:
    """An engine on a fresh SQLite file."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with holdfast.Engine(
            folder=folder,
            functions=[sequence],
            limits=holdfast.Limits(**limits),  # pyright: ignore[reportArgumentType]
        ) as engine:
            yield engine


def print_result(**fields: object) -> None:
    print(json.dumps(fields), flush=True)
