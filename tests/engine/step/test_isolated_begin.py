"""When a call in a process of its own begins: not before that has loaded the tool and is let in."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.kit import engine_at, events, names, plan, result, seen, settled, step, step_of, turns, until
from engine.step import slow_to_load as slow
from holdfast.core.events import StepInterrupted
from holdfast.engine.limits import guards
from holdfast.tools.isolated import parent as isolated

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

LATE = {"memory": "500MB"}  # moves a tool into a process of its own


class Loading:
    """The processes that load the tools' module, in the order in which they were seen."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: list[int] = []

    def pids(self) -> list[int]:
        found = {int(path.name.removeprefix("loading-")) for path in self._folder.glob("loading-*")}
        self._seen += sorted(found - set(self._seen))
        return self._seen

    async def next(self) -> int:
        known = len(self.pids())
        await until(lambda: len(self.pids()) > known)
        return self._seen[known]

    def let_go(self, pid: int, word: str = "") -> None:
        said = self._folder / f"said-{pid}"
        said.write_text(word)
        said.rename(self._folder / f"go-{pid}")

    def reached(self) -> dict[str, float]:
        """Who reached the tool, and when."""
        log = self._folder / "reached"
        lines = log.read_text().splitlines() if log.exists() else []
        return {line.split()[0]: float(line.split()[1]) for line in lines}


@pytest.fixture
def loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loading:
    folder = tmp_path / "loading"
    folder.mkdir()
    monkeypatch.setenv(slow.FOLDER, str(folder))
    return Loading(folder)


def _named(tool: str, name: str, **others: Any) -> dict[str, Any]:
    return plan(step("one", tool, **{"with": {"name": name}}, **others))


async def test_a_call_whose_breaker_opens_while_its_process_starts_is_held_back(
    tmp_path: Path, loading: Loading
) -> None:
    async with engine_at(tmp_path, slow.down) as engine:
        late = await engine.start(_named("down", "late"))
        pid = await loading.next()
        early = await engine.start(_named("down", "early"))
        loading.let_go(await loading.next())
        assert await settled(early) == "failed"  # and with it the breaker is open
        loading.let_go(pid)
        waiting: Any = (await seen(late, "task:waiting")).event
        assert [reason.kind for reason in waiting.reasons] == ["breaker"]
        await until(lambda: not Path(f"/proc/{pid}").exists())
        assert list(loading.reached()) == ["early"]
        interrupted = next(event for event in await events(late) if isinstance(event, StepInterrupted))
        assert interrupted.used is not None  # what was used up to start it
        await late.stop()


async def test_the_time_that_it_takes_to_load_is_not_the_tools(tmp_path: Path, loading: Loading) -> None:
    assert (slow.pay.timeout_s, slow.pay.idle_timeout_s) == (2.0, 2.0)
    async with engine_at(tmp_path, slow.pay) as engine:
        run = await engine.start(_named("pay", "pay"))
        pid = await loading.next()
        began = time.monotonic()
        await until(lambda: time.monotonic() > began + 2.2)
        loading.let_go(pid)
        await settled(run)
        assert (await step_of(run, "one")).status == "completed"


async def test_whoever_is_stopped_while_it_loads_was_never_called(tmp_path: Path, loading: Loading) -> None:
    async with engine_at(tmp_path, slow.pay) as engine:
        run = await engine.start(_named("pay", "pay"))
        pid = await loading.next()
        await run.stop()
        await until(lambda: not Path(f"/proc/{pid}").exists())
        assert await settled(run) == "stopped"
        assert "step:in_doubt" not in await names(run)
        assert "step:interrupted" in await names(run)


async def test_loading_takes_only_so_long_and_says_nothing_about_the_tool(
    tmp_path: Path, loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "START_S_MAX", 0.01)
    monkeypatch.setattr(isolated, "FAREWELL_S", 0.01)
    async with engine_at(tmp_path, slow.pay) as engine:
        run = await engine.start(_named("pay", "pay", on_error="fail"))
        assert await settled(run) == "failed"
        failure = (await step_of(run, "one")).failure
        assert failure is not None
        assert (failure.category, failure.happened) == ("transient", "nothing")
        assert "pay was not called: its own process had not loaded" in failure.message
        assert "slow_to_load.py after 0.01 s; see what the module does when it is loaded" in failure.message
        assert not any(breaker.has_news for _, _, breaker in engine.services.guards.breakers())


@pytest.mark.parametrize(
    ("word", "category", "how"),
    [
        ("exit", "configuration", "(exit code 3); see what the module does when it is loaded"),
        ("kill", "transient", "(killed by SIGKILL)"),
    ],
)
async def test_a_process_that_dies_while_it_loads_has_not_called_the_tool(
    tmp_path: Path, loading: Loading, word: str, category: str, how: str
) -> None:
    async with engine_at(tmp_path, slow.pay) as engine:
        run = await engine.start(_named("pay", "pay", on_error="fail"))
        loading.let_go(await loading.next(), word)
        assert await settled(run) == "failed"
        failure = (await step_of(run, "one")).failure
        assert failure is not None
        assert (failure.category, failure.happened) == (category, "nothing")
        assert "pay was not called: its own process ended while it loaded" in failure.message
        assert how in failure.message
        assert not any(breaker.has_news for _, _, breaker in engine.services.guards.breakers())


async def test_a_limit_that_an_interpreter_alone_goes_beyond_leaves_no_doubt(tmp_path: Path, loading: Loading) -> None:
    async with engine_at(tmp_path, slow.pay) as engine:
        run = await engine.start(_named("pay", "pay", resources={"memory": "15MB"}))  # about 30 MB are needed
        assert await settled(run) == "failed"
        failed = await step_of(run, "one")
        assert failed.failure is not None
        assert (failed.failure.category, failed.failure.happened) == ("resource", "nothing")
        assert "15 MB are allowed, so it was ended: pay;\nif it needs more, raise resources.memory" in (
            failed.failure.message
        )
        assert "(pay was not called: its process had only started)" in failed.failure.message
        assert not any(breaker.has_news for _, _, breaker in engine.services.guards.breakers())


async def test_so_many_interpreters_at_once_and_the_rest_wait_without_their_time_running(
    tmp_path: Path, loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "INTERPRETERS_MAX", 1)
    async with engine_at(tmp_path, slow.pay) as engine:
        first = await engine.start(_named("pay", "first"))
        pid = await loading.next()
        cut = await engine.start(_named("pay", "cut"))
        await seen(cut, "step:started")
        second = await engine.start(_named("pay", "second"))
        await seen(second, "step:started")
        began = time.monotonic()
        await until(lambda: time.monotonic() > began + 2.2)  # longer than `timeout` of the tool
        assert loading.pids() == [pid]
        await cut.stop()
        assert await settled(cut) == "stopped"
        assert "step:in_doubt" not in await names(cut)
        loading.let_go(pid)
        loading.let_go(await loading.next())
        assert [await result(first), await result(second)] == ["paid", "paid"]
        assert list(loading.reached()) == ["first", "second"]
        assert engine.services.guards.interpreters.used == 0


async def test_a_rate_is_held_where_the_tool_begins_however_long_its_processes_take(
    tmp_path: Path, loading: Loading
) -> None:
    async with engine_at(tmp_path, slow.paced) as engine:
        runs = [await engine.start(_named("paced", name, resources=LATE)) for name in ("one", "other")]
        pids = [await loading.next(), await loading.next()]
        for pid in pids:
            loading.let_go(pid)
        for run in runs:
            await result(run)
        one, other = sorted(loading.reached().values())
        assert other - one > 0.5  # once a second; without that, they come together


async def test_calls_here_and_in_processes_of_their_own_keep_to_one_rate(tmp_path: Path, loading: Loading) -> None:
    async with engine_at(tmp_path, slow.paced) as engine:
        isolated = await engine.start(_named("paced", "apart", resources=LATE))
        pid = await loading.next()
        here = await engine.start(_named("paced", "here"))
        await result(here)
        loading.let_go(pid)
        await result(isolated)
        reached = loading.reached()
        assert reached["apart"] - reached["here"] > 0.5


@pytest.mark.parametrize(("declines", "status"), [(False, "completed"), (True, "failed")])
async def test_an_answer_counts_from_when_it_is_given_and_not_from_when_its_process_has_ended(
    tmp_path: Path, loading: Loading, monkeypatch: pytest.MonkeyPatch, declines: bool, status: str
) -> None:
    monkeypatch.setattr(isolated, "FAREWELL_S", 2.5)  # longer than `timeout` of the tool
    async with engine_at(tmp_path, slow.pay_and_stay) as engine:
        run = await engine.start(plan(step("one", "pay_and_stay", **{"with": {"declines": declines}})))
        loading.let_go(await loading.next())
        await settled(run)
        assert (await step_of(run, "one")).status == status  # and not in doubt


async def test_whoever_is_stopped_when_it_has_answered_is_not_in_doubt(
    tmp_path: Path, loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "FAREWELL_S", 60)
    async with engine_at(tmp_path, slow.pay_and_stay) as engine:
        run = await engine.start(plan(step("one", "pay_and_stay")))
        loading.let_go(await loading.next())
        await until(lambda: "answered" in loading.reached())
        await turns(10)
        await run.stop()
        await settled(run)
        assert (await step_of(run, "one")).status == "completed"
