"""A laptop that sleeps: processes that stand still for a while and go on, and nobody takes them for dead wrongly."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from cli.workshop import Workshop, wait_until
from servers.postgres import PostgresServer


def asleep(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{process.pid}/stat")
    if state.exists():
        wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "the stop")


def awake(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGCONT)


def events(shop: Workshop, execution: str = "@last") -> list[str]:
    return [event["type"] for event in shop.run("events", execution, "--json").lines]


def begin_worker(shop: Workshop) -> subprocess.Popen[str]:
    process = shop.start("worker", "--json")
    assert shop.told(process)["event"] == "began"
    return process


# ---- one file ------------------------------------------------------------------------------------------------------


def test_on_a_file_a_sleeper_is_not_taken_for_dead_and_goes_on(shop: Workshop) -> None:
    driving = shop.start("run", "once.yaml", "--json")
    shop.wait_for_log("pay begun")
    asleep(driving)
    assert shop.newest()["driven"] is True
    lines = shop.run("worker", "--once", "--json").lines
    assert [line["event"] for line in lines] == ["began", "ended"]
    shop.open_gate()
    awake(driving)
    result = shop.finish(driving, 0).lines[-1]
    assert (result["status"], result["output"]) == ("completed", "done")
    assert shop.log() == ["pay begun", "pay ended"]
    assert not {"task:recovered", "step:in_doubt"} & set(events(shop))


def test_a_timer_that_came_due_in_the_meantime_fires_on_waking(shop: Workshop) -> None:
    shop.write("nap.yaml", "name: nap\nsteps:\n  - {id: nap, wait: 2s}\n  - {id: after, tool: work.do}\n")
    driving = shop.start("run", "nap.yaml", "--json")
    while (event := shop.told(driving))["type"] != "task:waiting":
        pass
    asleep(driving)
    [nap] = event["reasons"]
    wait_until(lambda: is_past(nap["due_at"]), "the timer")
    assert shop.newest()["status"] == "waiting"
    awake(driving)
    shop.finish(driving, 0)
    assert shop.log() == ["after ran"]
    assert "task:recovered" not in events(shop)


def is_past(at: str) -> bool:
    from datetime import UTC, datetime

    return datetime.fromisoformat(at) < datetime.now(UTC)


# ---- a shared database ---------------------------------------------------------------------------------------------


@pytest.fixture
def database(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of every command in this test."""
    monkeypatch.setenv("HOLDFAST_STORE", postgres_server.schema_url(lease_s=1))


@pytest.mark.usefixtures("database")
def test_on_a_database_the_others_go_on_and_the_sleeper_comes_back_by_itself(shop: Workshop) -> None:
    sleeper = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    identity = shop.newest()["id"]
    shop.kill(sleeper)
    sleeper = begin_worker(shop)
    assert (shop.told(sleeper)["id"], shop.newest()["driven"]) == (identity, True)
    wait_until(lambda: shop.log().count("gate begun") == 2, "the sleeper's attempt")
    asleep(sleeper)
    other = begin_worker(shop)
    assert shop.told(other)["id"] == identity
    wait_until(lambda: shop.log().count("gate begun") == 3, "the other's attempt")
    awake(sleeper)
    let_go = shop.told(sleeper)
    assert (let_go["event"], let_go["id"]) == ("let_go", identity)
    shop.open_gate()
    assert shop.told(other)["status"] == "completed"
    assert shop.log().count("after ran") == 1
    assert "step:in_doubt" not in events(shop)
    other.send_signal(signal.SIGTERM)
    shop.finish(other, 0)
    second = shop.run("run", "ask.yaml", "--json", code=3).lines[-1]["id"]
    shop.run("approve", second)
    assert shop.told(sleeper)["id"] == second
    assert shop.told(sleeper)["status"] == "completed"
    sleeper.send_signal(signal.SIGTERM)
    shop.finish(sleeper, 0)


@pytest.mark.usefixtures("database")
def test_a_sleeper_whom_nobody_replaced_goes_on_without_a_doubt(shop: Workshop) -> None:
    driving = shop.start("run", "once.yaml", "--json")
    shop.wait_for_log("pay begun")
    asleep(driving)
    wait_until(lambda: not shop.newest()["driven"], "the lease's end")
    shop.open_gate()
    awake(driving)
    assert shop.finish(driving, 0).lines[-1]["status"] == "completed"
    assert shop.log() == ["pay begun", "pay ended"]
    assert not {"task:recovered", "step:in_doubt"} & set(events(shop))


def test_when_all_sleep_and_wake_together_nobody_takes_the_others_for_dead(
    shop: Workshop, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", postgres_server.schema_url(lease_s=5))
    asking = shop.run("run", "ask.yaml", "--json", code=3).lines[-1]["id"]
    driving = shop.start("run", "once.yaml", "--json")
    worker = begin_worker(shop)
    shop.wait_for_log("pay begun")
    for process in (driving, worker):
        asleep(process)
    wait_until(lambda: not shop.newest()["driven"], "the lease's end")
    shop.run("approve", asking)
    awake(worker)
    # It looks around and takes up what was answered, but not what somebody may still be driving.
    assert [shop.told(worker)["id"] for _ in range(2)] == [asking, asking]
    awake(driving)
    shop.open_gate()
    assert shop.finish(driving, 0).lines[-1]["status"] == "completed"
    worker.send_signal(signal.SIGTERM)
    assert [line["event"] for line in shop.finish(worker, 0).lines] == ["ended"]
    assert not {"task:recovered", "step:in_doubt"} & set(events(shop))


@pytest.mark.usefixtures("database")
def test_what_a_sleeper_did_not_finish_is_in_doubt_for_the_others_and_only_that(shop: Workshop) -> None:
    driving = shop.start("run", "once.yaml", "--json")
    shop.wait_for_log("pay begun")
    identity = shop.newest()["id"]
    asleep(driving)
    other = begin_worker(shop)
    assert shop.told(other)["id"] == identity
    shop.wait_for_status("waiting")
    assert [step["status"] for step in shop.run("show", identity, "--json").json["steps"]] == ["in_doubt"]
    awake(driving)
    shop.open_gate()
    result = shop.finish(driving, None)
    shop.run("resolve", identity, "pay", "--done", "--output", '"paid"')
    shop.wait_for_status("completed")
    assert events(shop).count("step:in_doubt") == 1
    assert result.code == 3, result.err


def test_many_that_wait_are_counted_and_each_can_still_be_answered(shop: Workshop) -> None:
    items = ", ".join(f"p{number:02}" for number in range(30))
    each = f"{{id: all, for_each: [{items}], key: '${{{{ item }}}}', max_parallel: 30"
    shop.write("many.yaml", f"name: many\nsteps: [{each}, steps: [{{id: ok, approval: 'May it?'}}]}}]")
    ran = shop.run("run", "many.yaml", code=3)
    waiting = next(line for line in ran.out.splitlines() if "waiting for an approval" in line)
    assert waiting.endswith("and 25 more")
    assert " and 10 more" in shop.run("show", "@last").out
    unlisted = sorted(request["path"] for request in shop.run("show", "@last", "--json").lines[0]["requests"])[-1]
    assert shop.run("approve", "--name", "many", "--all", "--step", unlisted).out == "1 applied\n"
