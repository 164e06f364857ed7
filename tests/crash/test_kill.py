"""Real processes killed with SIGKILL at many points: what was done is not done again, what is unknown is in doubt."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from crash import worker
from engine.kit import engine_at, result, settled
from holdfast.core.execution import Execution

WORKER = Path(worker.__file__)
COMMITS = {"plan": 28, "function": 22}  # more than either program makes: the last ones are not killed at all
LINES = {"plan": 13, "function": 8}


def kill_at(program: str, folder: Path, kind: str, numbers: range) -> dict[str, int]:
    """Run the program once for each point; returns how each process ended."""
    points = [f"{kind}:{number}" for number in numbers]
    command = [sys.executable, str(WORKER), program, str(folder), *points]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    codes = {point: int(code) for point, code in (line.split() for line in done.stdout.splitlines())}
    assert set(codes.values()) <= {-9, 0}, done.stderr
    return codes


def lines_of(folder: Path) -> list[list[str]]:
    file = folder / worker.LINES
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


async def states_of(folder: Path) -> dict[str, Execution]:
    """What the journal says right after the death, by execution."""
    async with engine_at(folder, recover="none") as engine:
        return {head.id: await engine.get(head.id).state() for head in await engine.list()}


async def finish(folder: Path) -> tuple[Counter[str], dict[str, Execution]]:
    """Recover, settle every doubt as a person would who sees that the step happened, and run to the end."""
    doubts: Counter[str] = Counter()
    async with engine_at(folder, *worker.TOOLS, functions=worker.FUNCTIONS) as engine:
        for head in sorted(await engine.list(), key=lambda head: head.parent_id == ""):  # children first
            run = engine.get(head.id)
            while await settled(run) == "waiting":
                for asked in (await run.state()).open_requests():
                    assert asked.request.kind == "doubt"
                    doubts[f"{run.id}:{asked.request.path}"] += 1
                    await run.resolve(asked.request.path, "done", output=0)
            await result(run)
        return doubts, {head.id: await engine.get(head.id).state() for head in await engine.list()}


async def check(folder: Path) -> int:
    """Everything that must be true after a death at this point; returns how many doubts there were."""
    before, died = lines_of(folder), await states_of(folder)
    if not died:
        assert before == []  # it died before the task was handed in
        return 0
    doubts, finished = await finish(folder)
    after = lines_of(folder)
    new = Counter(line[2] for line in after[len(before) :])
    for execution_id, state in died.items():
        for path, step in state.steps.items():
            if step.status == "completed":
                assert new[f"{execution_id}:{path}"] == 0, f"{path} had completed and ran again"
    by_key = Counter((line[0], line[2]) for line in after)
    for (effect, key), count in by_key.items():
        if effect == "once":
            assert count == 1, f"{key} ran {count} times"
    for execution_id, state in finished.items():
        assert state.status == "completed"
        for path, step in state.steps.items():
            key = f"{execution_id}:{path}"
            if step.kind == "tool" and step.effect == "once":
                assert by_key["once", key] == 1 or doubts[key] == 1, f"{path} never ran, and nobody was asked"
    return sum(doubts.values())


@pytest.mark.parametrize("program", ["plan", "function"])
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_killed_around_every_commit_nothing_is_lost_or_repeated(
    tmp_path: Path, program: str, moment: str
) -> None:
    first = 1 if moment == "before" else 2  # after one commit and before the next is nearly the same point
    codes = kill_at(program, tmp_path, f"{moment}-commit", range(first, COMMITS[program] + 1, 2))
    assert codes[f"{moment}-commit:{first}"] == -9
    assert 0 in codes.values(), "the points should reach to the end of the program"
    for point in codes:
        await check(tmp_path / point)


@pytest.mark.parametrize("program", ["plan", "function"])
async def test_killed_in_the_middle_of_a_tool_once_steps_are_in_doubt(tmp_path: Path, program: str) -> None:
    doubts: dict[str, int] = {}
    for moment in ("before", "after"):
        codes = kill_at(program, tmp_path, f"{moment}-line", range(1, LINES[program] + 1))
        assert -9 in codes.values()
        for point in codes:
            doubts[point] = await check(tmp_path / point)
    assert sum(doubts.values()) > 0
