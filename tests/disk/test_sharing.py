"""Two engines on one file under load, and a fork in the middle of one: nothing lost, nothing twice, no lock gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from disk import forked, pair
from holdfast.core import events as ev
from holdfast.journal.log import read_events, read_state
from holdfast.journal.sqlite.store import SqliteStore
from holdfast.journal.store import Query

COUNT = 40


def run_script(file: str | None, *arguments: object) -> subprocess.Popen[str]:
    assert file is not None
    return subprocess.Popen(
        [sys.executable, file, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(Path(file).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_two_engines_under_load_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    processes = [run_script(pair.__file__, tmp_path, name, COUNT) for name in ("one", "two")]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
    store = SqliteStore(tmp_path / ".holdfast" / "journal.db")
    heads = await store.heads(Query(limit=1000))
    assert Counter(head.status for head in heads) == {"completed": 2 * COUNT}
    assert {head.key for head in heads} == {f"{name}-{number}" for name in ("one", "two") for number in range(COUNT)}
    for head in heads:
        await read_state(store, head.id)
        events = [event for _, event in await read_events(store, head.id, 0)]
        assert not [event for event in events if isinstance(event, ev.TaskRecovered)]  # nobody was taken for dead
    await store.close()
    lines = [line.split() for line in (tmp_path / pair.LINES).read_text().splitlines()]
    assert Counter(Counter((word, identity, path) for word, _, identity, path in lines).values()) == {1: 12 * COUNT}
    _never_driven_by_two(lines)


def _never_driven_by_two(lines: list[list[str]]) -> None:
    inside: dict[str, Counter[str]] = {}
    for word, process, identity, _ in lines:
        running = inside.setdefault(identity, Counter())
        running[process] += 1 if word == "begin" else -1
        assert sum(count > 0 for count in running.values()) <= 1, f"{identity} was driven by two processes"


def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    process = run_script(forked.__file__, tmp_path)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    child, parent = (json.loads(line) for line in output.splitlines())
    wanted = "open a new one in the child process"
    assert child["uses"].keys() == {"list", "start", "command", "state"}
    assert all(wanted in text for text in child["uses"].values()), child
    assert child["of its own"] == "completed"
    assert parent == {"alive": True, "output": 1, "statuses": ["completed", "completed"], "found": []}
