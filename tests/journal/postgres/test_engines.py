"""Engines on PostgreSQL: takeovers by lease, zombies, commands between processes, a server that goes away."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import holdfast
from engine.kit import Gate, engine_at, events, plan, result, seen, settled, step
from holdfast.core import events as ev
from holdfast.core.errors import SchemaTooNew, StoreUnavailable
from holdfast.journal.postgres import reconnect
from holdfast.journal.postgres.store import PostgresStore
from journal.postgres import worker as postgres_worker
from journal.postgres.support import run_sql, wait_for_sql
from journal.postgres.worker import held, hold
from servers.postgres import LOCKED_ROLE, PostgresServer

Worker = subprocess.Popen[str]


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    """With a lease that a busy machine keeps, and that does not take long to run out."""
    return postgres_server.schema_url(lease_s=2)


@pytest.fixture
def worker(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> Iterator[Worker]:
    """An engine process that is in the middle of a step."""
    command = [sys.executable, postgres_worker.__file__, request.param, url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("worker", ["die"], indirect=True)
async def test_what_a_killed_process_drove_is_taken_over_when_its_lease_has_run_out(
    worker: Worker, url: str, tmp_path: Path
) -> None:
    async with engine_at(tmp_path, hold, functions=[held], store=url) as engine:
        [head] = await engine.list()
        assert not engine.is_dead(head.driver)
        worker.kill()
        run = engine.get(head.id)
        assert await settled(run) == "completed"
        assert await run.result() == "the successor's"
        [recovered] = [event for event in await events(run) if isinstance(event, ev.TaskRecovered)]
        assert (recovered.lost, recovered.driver) == (head.driver, engine.services.driver)


@pytest.mark.parametrize("worker", ["stall"], indirect=True)
async def test_a_process_whose_event_loop_stands_still_loses_what_it_drives_and_cannot_write_when_it_wakes_up(
    worker: Worker, url: str, tmp_path: Path
) -> None:
    async with engine_at(tmp_path, hold, functions=[held], store=url) as engine:
        [head] = await engine.list()
        run = engine.get(head.id)
        assert await settled(run) == "completed"
        before = await events(run)
        output, _ = worker.communicate("wake up\n", timeout=60)
        assert (worker.returncode, output) == (0, "the successor's\n")
        assert await events(run) == before


async def test_a_closing_engine_lets_go_at_once(postgres_server: PostgresServer, tmp_path: Path) -> None:
    gate, store = Gate(effect="idempotent"), postgres_server.schema_url(lease_s=3600)
    limits = holdfast.Limits(drain_s=0.01, interrupt_grace_s=0.01)
    async with engine_at(tmp_path, gate.tool, store=store, limits=limits) as engine:
        run = await engine.start(plan(step("one", "gate")))
        await gate.wait_entered()
    gate.open.set()
    async with engine_at(tmp_path, gate.tool, store=store) as engine:
        await result(engine.get(run.id))
    assert len(gate.calls) == 2


async def test_a_command_and_its_watcher_in_another_engine_reach_the_driver(postgres_url: str, tmp_path: Path) -> None:
    gate = Gate(effect="read")
    async with (
        engine_at(tmp_path, gate.tool, store=postgres_url) as driving,
        engine_at(tmp_path, gate.tool, store=postgres_url, recover="none") as other,
    ):
        run = await driving.start(plan(step("one", "gate"), step("two", "gate")))
        await gate.wait_entered()
        answer = await other.get(run.id).pause(by="ann")
        assert answer.outcome == "applied"
        gate.open.set()
        await seen(other.get(run.id), "task:paused")
        await other.get(run.id).resume(by="ann")
        await seen(other.get(run.id), "task:completed")
        assert len(gate.calls) == 2


async def test_an_engine_says_that_the_server_is_gone_for_long_and_goes_on_when_it_is_back(
    postgres_server: PostgresServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(effect="idempotent")
    monkeypatch.setattr(reconnect, "AWAY_S", 0.1)
    async with engine_at(tmp_path, gate.tool, store=url) as engine:
        run = await engine.start(plan(step("one", "gate"), step("two", "gate")))
        await gate.wait_entered()
        postgres_server.crash()
        gate.open.set()
        try:
            with pytest.raises(StoreUnavailable, match=r"cannot be reached .*check that the server runs"):
                await result(run)
        finally:
            postgres_server.start()
        async with asyncio.timeout(60):
            while not await _completed(run):  # noqa: ASYNC110 -- until then each answer is that the server was gone
                await asyncio.sleep(0.05)


async def _completed(run: holdfast.Run) -> bool:
    try:
        await run.result()
    except StoreUnavailable:
        return False
    return True


# ---- opening -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            ("postgres@", "locked:geheim@"),
            r'password authentication failed for user "locked"\); check the user\'s name',
        ),
        (("/postgres?", "/nothing?"), r'database "nothing" does not exist\); create the database'),
        (("postgres@", "ghost:geheim@"), r'role "ghost" does not exist\); create the database or the role'),
    ],
    ids=["password", "database", "role"],
)
async def test_an_engine_that_is_not_let_in_says_why_without_the_password_and_leaves_nothing_behind(
    postgres_server: PostgresServer, tmp_path: Path, change: tuple[str, str], text: str
) -> None:
    with psycopg.connect(postgres_server.url) as connection:
        connection.execute(
            f"DROP ROLE IF EXISTS {LOCKED_ROLE}; CREATE ROLE {LOCKED_ROLE} LOGIN PASSWORD 'right'".encode()
        )
    with pytest.raises(StoreUnavailable, match=text) as caught:
        async with engine_at(tmp_path, store=postgres_server.schema_url().replace(*change)):
            pass
    trace: BaseException | None = caught.value
    while trace is not None:
        assert "geheim" not in str(trace)
        trace = trace.__cause__
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_engine_that_is_too_old_for_the_schema_says_so_and_leaves_nothing_behind(
    postgres_url: str, tmp_path: Path
) -> None:
    async with engine_at(tmp_path, store=postgres_url) as engine:
        store = engine.services.store
        assert isinstance(store, PostgresStore)
    await run_sql(store, "INSERT INTO schema_version VALUES (99)")
    with pytest.raises(SchemaTooNew, match="upgrade Holdfast"):
        async with engine_at(tmp_path, store=postgres_url):
            pass
    assert asyncio.all_tasks() == {asyncio.current_task()}
    ours = f"application_name = 'holdfast' AND query ~ '{store.address.schema}'"
    await wait_for_sql(store, f"SELECT 1 FROM pg_stat_activity WHERE {ours}", lambda found: not found)


async def test_an_address_where_nobody_listens_is_named(tmp_path: Path) -> None:
    url = "postgresql://ann:geheim@127.0.0.1:1/tasks"
    text = (
        r"^postgresql://ann@127\.0\.0\.1:1/tasks cannot be reached \(Connection refused\); check that the server runs"
    )
    with pytest.raises(StoreUnavailable, match=text):
        async with engine_at(tmp_path, store=url):
            pass


WITHOUT_DRIVER = """
import sys
sys.modules["psycopg"] = None
import holdfast
from holdfast.core.errors import StoreUnavailable
holdfast.Engine("memory:")
try:
    holdfast.Engine("postgresql://127.0.0.1/tasks")
except StoreUnavailable as error:
    print(error)
"""


def test_without_the_driver_it_is_said_which_extra_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DRIVER], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert "needs psycopg" in done.stdout
    assert done.stdout.endswith("pip install 'psycopg[binary]'\n")


def test_the_driver_is_imported_only_when_it_is_needed(tmp_path: Path) -> None:
    script = "import sys, holdfast; holdfast.Engine('memory:'); print('psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout == "False\n"
