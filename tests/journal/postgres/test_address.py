"""Addresses of PostgreSQL stores: what is ours in them, what is libpq's, and what nobody may see."""

from __future__ import annotations

import pytest

from holdfast.core.errors import SettingsInvalid
from holdfast.journal.postgres.address import is_postgres, parse_address


def test_the_schema_and_the_lease_are_ours_and_the_rest_is_libpqs() -> None:
    address = parse_address(
        "postgres://ann:geheim@db:5433/tasks?sslmode=require&schema=team_1&lease_s=2.5&options=-c%20x"
    )
    assert address.libpq == "postgresql://ann:geheim@db:5433/tasks?sslmode=require&options=-c%20x"
    assert (address.schema, address.lease_s) == ("team_1", 2.5)


def test_what_is_not_said_has_a_default() -> None:
    address = parse_address("postgresql://db/tasks")
    assert (address.libpq, address.schema, address.lease_s) == ("postgresql://db/tasks", "holdfast", 10.0)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:geheim@db:5433/tasks", "postgresql://ann@db:5433/tasks"),
        ("postgresql://ann:geheim%40@db/tasks?schema=team", "postgresql://ann@db/tasks?schema=team"),
        ("postgresql://db/tasks?user=ann&password=geheim", "postgresql://ann@db/tasks"),
        ("postgresql://:geheim@[::1]:5433,db2/tasks", "postgresql://[::1]:5433,db2/tasks"),
        ("postgresql:///tasks?host=/run/pg&password=geheim", "postgresql:///run/pg/tasks"),
        ("postgresql://", "postgresql://"),
    ],
)
def test_what_is_shown_says_where_and_holds_no_password(url: str, shown: str) -> None:
    address = parse_address(url)
    assert address.shown == shown
    assert "geheim" not in repr(address)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:ge/heim@db/tasks",
        "postgresql://ann:geheim#1@db/tasks",
        "postgresql://ann:ge:heim@db:port/tasks",
        "postgresql://ann:geheim@[db/tasks",
        "postgresql://ann:geheim@db/tasks?schema",
        "postgresql://ann:geheim\0@db/tasks",
        "postgresql://ann:geheim\ud800@db/tasks",
    ],
)
def test_a_mistake_is_explained_without_repeating_any_of_it(url: str) -> None:
    with pytest.raises(SettingsInvalid, match="%40 for @") as caught:
        parse_address(url)
    assert "heim" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("schema", ["", "Team", "1st", "pg_team", "team-1", "a" * 49, 'x"y'])
def test_a_schema_that_would_need_quotes_is_refused(schema: str) -> None:
    with pytest.raises(SettingsInvalid, match="expected small letters, digits and underscores"):
        parse_address(f"postgresql://db/tasks?schema={schema}")


@pytest.mark.parametrize("lease", ["0", "-1", "nan", "inf", "soon", "", "4000"])
def test_a_lease_without_a_sensible_length_is_refused(lease: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"lease_s=.*: expected a number of seconds from 0\.1 to 3600"):
        parse_address(f"postgresql://db/tasks?lease_s={lease}")


def test_only_addresses_of_postgresql_are_meant() -> None:
    assert is_postgres("postgresql://db")
    assert is_postgres("postgres://db")
    assert not is_postgres("postgresql")
    assert not is_postgres("memory:")
    assert not is_postgres("/data/postgresql://x")
