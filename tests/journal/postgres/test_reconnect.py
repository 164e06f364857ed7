"""A PostgreSQL server that is away for a moment, and commits whose end nobody saw: neither is anybody's trouble."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.kit import Gate, engine_at, names, plan, result, step, until
from holdfast.core.errors import StoreUnavailable
from holdfast.journal.postgres import reconnect
from holdfast.journal.postgres.store import PostgresStore
from holdfast.journal.store import Query
from holdfast.testing.store_contract.samples import Sample
from journal.postgres.support import run_sql
from servers.commands import environment, start_command
from servers.postgres import PostgresServer


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    yield store
    await store.close()


# ---- away --------------------------------------------------------------------------------------


async def test_calls_wait_for_a_server_that_is_away_for_a_moment(
    store: PostgresStore, postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    sample = Sample(1)
    await store.commit([sample.new])
    postgres_server.crash()
    try:
        with caplog.at_level(logging.WARNING, "holdfast"):
            writing = asyncio.create_task(store.commit([sample.entry()]))
            reading = asyncio.create_task(store.heads(Query()))
            await until(lambda: "waiting up to 30 s for the server: " in caplog.text)
    finally:
        postgres_server.start()
    assert [written.ok for written in await writing] == [True]
    assert [head.id for head in await reading] == [sample.id]
    assert caplog.text.count("waiting up to") == 1
    assert "going on" in caplog.text


async def test_a_server_that_stays_away_is_named_and_when_it_is_back_the_store_goes_on(
    store: PostgresStore, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnect, "AWAY_S", 0.1)
    sample = Sample(1)
    await store.commit([sample.new])
    postgres_server.crash()
    try:
        for call in (store.commit([sample.entry()]), store.head(sample.id)):
            with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1.*cannot be reached.*check that the server runs"):
                await call
    finally:
        postgres_server.start()
    sample.rows = sample.rows[:1]
    assert (await store.commit([sample.entry()]))[0].ok
    assert (await store.head(sample.id)).seq == 2


async def test_what_no_waiting_helps_against_is_told_at_once(store: PostgresStore, postgres_url: str) -> None:
    await store.commit([Sample(1).new])
    await run_sql(store, "CREATE ROLE passing LOGIN SUPERUSER")
    passing = PostgresStore(postgres_url.replace("postgres@", "passing@"))
    await passing.drivers()
    await run_sql(store, "DROP ROLE passing", END_SESSIONS)
    with pytest.raises(StoreUnavailable, match='role "passing" does not exist'):
        await passing.drivers()
    await passing.close()


END_SESSIONS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE application_name = 'holdfast' AND pid <> pg_backend_pid()
"""


@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_a_once_step_that_ends_while_the_server_is_away_is_recorded_and_not_in_doubt(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(effect="once")
    async with engine_at(tmp_path, gate.tool, store=postgres_url) as engine:
        run = await engine.start(plan(step("one", "gate"), step("two", "gate")))
        waiting = asyncio.create_task(result(run))
        await gate.wait_entered()
        getattr(postgres_server, how)()
        try:
            gate.open.set()
            await until(lambda: "waiting up to" in caplog.text)
        finally:
            postgres_server.start()
        await waiting
        assert await names(run, "step:") == ["step:started", "step:completed"] * 2
    assert len(gate.calls) == 2


SLOW = """
name: slow
steps:
  - {id: wait, tool: shell.run, with: {command: "touch begun; while [ ! -e go ]; do sleep 0.02; done"}}
  - {id: after, tool: shell.run, with: {command: "echo done"}}
"""


def at_the_terminal(url: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    pipes: Any = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return start_command(["--store", url, *arguments], cwd=folder, env=environment(), **pipes)


@contextmanager
def slow_run(url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`holdfast run` in the middle of a step that ends when there is a file called `go`."""
    (folder / "slow.yaml").write_text(SLOW)
    with at_the_terminal(url, folder, "run", "slow.yaml") as running:
        try:
            while not (folder / "begun").exists():
                assert running.poll() is None, running.communicate()
            yield running
        finally:
            running.kill()


def test_a_run_at_the_terminal_outlasts_a_restart_of_the_server(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    with slow_run(postgres_url, tmp_path) as running:
        assert running.stderr is not None
        postgres_server.stop()
        try:
            (tmp_path / "go").touch()
            told = next(line for line in running.stderr if "waiting up to" in line)
        finally:
            postgres_server.start()
        shown, complaints = running.communicate(timeout=60)
    assert running.returncode == 0, told + complaints
    assert "completed in " in shown
    assert "is back after" in complaints


def test_whoever_follows_is_told_when_a_dead_driver_would_be_noticed(postgres_url: str, tmp_path: Path) -> None:
    with (
        slow_run(postgres_url, tmp_path) as running,
        at_the_terminal(postgres_url, tmp_path, "resume", "@last") as other,
    ):
        assert other.stdout is not None
        assert "following it; if it is dead, its lease runs out within 10 s" in other.stdout.readline()
        (tmp_path / "go").touch()
        for process in (running, other):
            shown, complaints = process.communicate(timeout=60)
            assert "completed in " in shown, complaints


# ---- commits whose end nobody saw --------------------------------------------------------------

DIE_AT_COMMIT = """
CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    IF nextval('deaths') <= {times} THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
    RETURN NULL;
END $$
"""
DIE_TRIGGER = """
CREATE CONSTRAINT TRIGGER die AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()
"""


async def die_at_commit(store: PostgresStore, times: int) -> None:
    await run_sql(store, "CREATE SEQUENCE deaths", DIE_AT_COMMIT.format(times=times), DIE_TRIGGER)


async def test_a_commit_that_was_cut_off_and_rolled_back_is_made_again(store: PostgresStore) -> None:
    sample = Sample(1)
    await store.commit([sample.new])
    await die_at_commit(store, times=2)
    assert (await store.commit([sample.entry()]))[0].ok
    assert (await store.head(sample.id)).seq == 2


async def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = Sample(1)
    await store.commit([sample.new])
    lose_next_answer(store, monkeypatch)
    assert (await store.commit([sample.command("c1")]))[0].ok  # a second time, it would be refused as known
    assert [command.id for command in await store.pending()] == ["c1"]


async def test_a_commit_of_which_the_server_knows_nothing_is_told_as_unknown(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = Sample(1)
    await store.commit([sample.new])
    lose_next_answer(store, monkeypatch)
    monkeypatch.setitem(store._sql, "transaction_status", b"SELECT NULL WHERE %s <> ''")
    with pytest.raises(StoreUnavailable, match="may or may not have been written"):
        await store.commit([sample.command("c1")])
    assert not (await store.commit([sample.command("c1")]))[0].ok


async def test_a_server_that_never_gets_to_commit_is_named(store: PostgresStore) -> None:
    sample = Sample(1)
    await store.commit([sample.new])
    await die_at_commit(store, times=99)
    with pytest.raises(StoreUnavailable, match=r"was lost 5 times .* nothing was written"):
        await store.commit([sample.entry()])


def lose_next_answer(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next transaction is committed, and the line breaks before the server's word of it arrives."""
    connection: Any = store._writing.connection
    transaction = connection.transaction

    @asynccontextmanager
    async def cut_off() -> AsyncIterator[None]:
        async with transaction():
            yield
        connection.pgconn.finish()
        raise psycopg.OperationalError("the line broke")

    monkeypatch.setattr(connection, "transaction", cut_off)
