"""LangGraph on its SQLite savers: executions of ten no-op nodes, durability="sync", one thread id per execution.

"sync" is the only mode in which a node's checkpoint is written before the next node starts, so it is the only one
compared. The savers set WAL themselves and leave SQLite's synchronous setting at its default, FULL.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

os.environ["LANGSMITH_TRACING"] = "false"
os.environ["LANGCHAIN_TRACING_V2"] = "false"

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from measure import STEPS_PER_EXECUTION, Timed, parse_executions, report_fastest

CONCURRENCY = 8


class Count(TypedDict):
    done: int


def count_one(state: Count) -> Count:
    return {"done": state["done"] + 1}


async def count_one_async(state: Count) -> Count:
    return {"done": state["done"] + 1}


def chain_of(node: Any, saver: Any) -> Any:
    graph = StateGraph(Count)
    names = [f"step_{index}" for index in range(STEPS_PER_EXECUTION)]
    for name in names:
        graph.add_node(name, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    return graph.compile(checkpointer=saver)


def thread(index: int) -> dict[str, Any]:
    return {"configurable": {"thread_id": str(index)}}


def run_sync(folder: Path, executions: int, timed: Timed, workers: int) -> int:
    with SqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
        saver.setup()
        chain = chain_of(count_one, saver)

        def run_one(index: int) -> int:
            return chain.invoke({"done": 0}, thread(index), durability="sync")["done"]

        if workers == 1:
            return timed(lambda: sum(map(run_one, range(executions))))
        with ThreadPoolExecutor(workers) as pool:
            return timed(lambda: sum(pool.map(run_one, range(executions))))


def run_async(folder: Path, executions: int, timed: Timed, concurrency: int) -> int:
    with asyncio.Runner() as runner:
        opening = AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.db"))
        saver = runner.run(opening.__aenter__())
        runner.run(saver.setup())
        chain = chain_of(count_one_async, saver)
        steps = timed(lambda: runner.run(run_concurrently(chain, executions, concurrency)))
        runner.run(opening.__aexit__(None, None, None))
        return steps


async def run_concurrently(chain: Any, executions: int, concurrency: int) -> int:
    slots = asyncio.Semaphore(concurrency)

    async def run_one(index: int) -> int:
        async with slots:
            return (await chain.ainvoke({"done": 0}, thread(index), durability="sync"))["done"]

    return sum(await asyncio.gather(*map(run_one, range(executions))))


def sync_saver_one_at_a_time(folder: Path, executions: int, timed: Timed) -> int:
    return run_sync(folder, executions, timed, workers=1)


def sync_saver_in_threads(folder: Path, executions: int, timed: Timed) -> int:
    return run_sync(folder, executions, timed, workers=CONCURRENCY)


def async_saver_one_at_a_time(folder: Path, executions: int, timed: Timed) -> int:
    return run_async(folder, executions, timed, concurrency=1)


def async_saver_concurrently(folder: Path, executions: int, timed: Timed) -> int:
    return run_async(folder, executions, timed, concurrency=CONCURRENCY)


if __name__ == "__main__":
    report_fastest(
        "LangGraph",
        version("langgraph"),
        [
            sync_saver_one_at_a_time,
            sync_saver_in_threads,
            async_saver_one_at_a_time,
            async_saver_concurrently,
        ],
        parse_executions("LangGraph steps per second, every checkpoint on disk before the next node.", default=400),
    )
