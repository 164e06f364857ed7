"""The command line on a store in PostgreSQL: started, killed, looked at and examined as on a file."""

from __future__ import annotations

import re

import pytest

from cli.workshop import Workshop, wait_until
from servers.postgres import PostgresServer


@pytest.fixture
def url(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store of every command in this test."""
    url = postgres_server.schema_url(lease_s=1).replace("postgres@", "postgres:geheim@")
    monkeypatch.setenv("HOLDFAST_STORE", url)
    return url


def test_a_task_is_run_listed_shown_and_commanded(shop: Workshop, url: str) -> None:
    assert shop.run("list").err.startswith("holdfast: no executions")
    shop.run("run", "ask.yaml", code=3)
    [listed] = shop.run("list", "--json").json
    assert listed["status"] == "waiting"
    assert shop.run("show", "@last").out
    shop.run("approve", "@last")
    shop.run("resume", "@last")
    [listed] = shop.run("list", "--json").json
    assert listed["status"] == "completed"
    assert not (shop.folder / ".holdfast").exists()


def test_a_database_is_pruned_and_its_server_backs_it_up(shop: Workshop, url: str) -> None:
    for plan, code in (("two.yaml", 0), ("ask.yaml", 3)):
        shop.run("run", plan, code=code)
    rehearsed = shop.run("prune", "--older-than", "0s", "--dry-run").out.splitlines()
    assert rehearsed[-1] == "1 execution would be deleted; nothing was changed"
    assert shop.run("prune", "--older-than", "0s").out.splitlines() == [
        "deleted 1 execution",
        "the server makes their space free for others with its next vacuum",
    ]
    [listed] = shop.run("list", "--json").json
    assert listed["name"] == "ask"
    shop.run("stop", "@last")
    assert shop.run("delete", "@last", "--json").json["bytes_freed"] is None
    refused = shop.run("backup", "copy.db", code=2).err
    assert "is backed up by its server's own tools: pg_dump --schema=" in refused
    assert "geheim" not in refused


def test_a_restored_dump_is_held_until_a_person_lets_it_go(
    shop: Workshop, url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run("run", "ask.yaml", code=3)
    told = shop.run("backup", "copy.db", code=2).err
    assert re.search("in the restored copy, give `holdfast .*hold --all` before an engine is started", told)
    running = shop.start("run", "gate.yaml")
    shop.wait_for_log("gate begun")
    schema = url.partition("schema=")[2].partition("&")[0]
    database = postgres_server.restore(postgres_server.dump(schema), f"restored_{schema}")
    shop.open_gate()
    shop.finish(running)

    monkeypatch.setenv("HOLDFAST_STORE", f"{database}?schema={schema}&lease_s=1")
    wait_until(lambda: shop.run("hold", "--all", "--why", "Monday's dump", code=None).code == 0, "the lease to run out")
    heads = shop.run("list", "--held", "--json").json
    assert {(head["name"], head["status"], head["held"]) for head in heads} == {
        ("ask", "waiting", "Monday's dump"), ("gate", "running", "Monday's dump"),
    }  # fmt: skip
    shop.run("approve", "--name", "ask")
    shop.run("worker", "--until-idle")
    assert {head["status"] for head in shop.run("list", "--held", "--json").json} == {"waiting", "running"}
    assert shop.run("resume", "--held", "--all").out == "2 applied\n"

    def is_completed() -> bool:
        """A worker that gets no processor during its lease loses what it drives; the next one takes it up."""
        shop.run("worker", "--until-idle")
        return {head["status"] for head in shop.run("list", "--json").json} == {"completed"}

    wait_until(is_completed, "the end of both")


def test_the_doctor_finds_a_database_well(shop: Workshop, url: str) -> None:
    shop.run("run", "ask.yaml", code=3)
    report = shop.run("doctor", code=1).out
    assert report.splitlines()[0].startswith("store: postgresql://postgres@127.0.0.1")
    assert "geheim" not in report
    found = shop.run("doctor", "--json", code=1).json["findings"]
    assert {finding["name"] for finding in found} == {
        "tool"
    }  # of the workshop itself: a tool that is always missing one


def test_the_doctor_names_a_server_that_is_not_there(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", "postgresql://ann:geheim@127.0.0.1:1/tasks")
    out = shop.run("doctor", code=1).out
    assert "postgresql://ann@127.0.0.1:1/tasks cannot be reached (Connection refused)" in out
    assert "Check that the server runs" in out
    assert "geheim" not in out
