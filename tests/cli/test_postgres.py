"""The command line on a store in PostgreSQL: started, killed, looked at and examined as on a file."""

from __future__ import annotations

import pytest

from cli.workshop import Workshop
from servers.postgres import PostgresServer


@pytest.fixture
def url(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store of every command in this test."""
    url = postgres_server.schema_url(lease_s=1).replace("postgres@", "postgres:geheim@")
    monkeypatch.setenv("HOLDFAST_STORE", url)
    return url


def test_a_task_is_run_listed_shown_and_commanded(shop: Workshop, url: str) -> None:
    assert shop.run("list").out.startswith("no executions")
    shop.run("run", "ask.yaml", code=3)
    [listed] = shop.run("list", "--json").json
    assert listed["status"] == "waiting"
    assert shop.run("show", "@last").out
    shop.run("approve", "@last")
    shop.run("resume", "@last")
    [listed] = shop.run("list", "--json").json
    assert listed["status"] == "completed"
    assert not (shop.folder / ".holdfast").exists()


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
