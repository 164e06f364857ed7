"""Brings a PostgreSQL schema to the version this Holdfast knows, and refuses one that is newer.

Runs with every new connection, in one transaction under a lock that all processes take: whoever is let in has written
its lease before anybody else may ask whether the store is in use.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.errors import SchemaTooNew, StoreUnavailable
from holdfast.journal.postgres.address import PostgresAddress
from holdfast.journal.postgres.connection import Connection, statements
from holdfast.journal.postgres.leases import Leases
from holdfast.journal.sql import migrations


async def admit(connection: Connection, address: PostgresAddress, leases: Leases) -> None:
    sql = statements()
    async with connection.transaction():
        await connection.execute(sql["lock_schema"], (address.schema,))
        await _migrate(connection, address)
        await leases.write(connection)


async def _migrate(connection: Connection, address: PostgresAddress) -> None:
    sql, steps = statements(), migrations("postgres")
    version = 0 if await _one(connection, "is_fresh") else int(await _one(connection, "read_version") or 0)
    if version > len(steps):
        raise SchemaTooNew(
            f"{address.shown} has schema version {version}, this Holdfast knows {len(steps)}; "
            "upgrade Holdfast to open it"
        )
    if version == len(steps):
        return
    if version and await _one(connection, "living"):
        raise StoreUnavailable(
            f"{address.shown} must be upgraded from schema version {version} to {len(steps)}, and another process is "
            "using it",
            todo="end that process first",
        )
    if await _one(connection, "encoding") != "UTF8":
        raise StoreUnavailable(
            f"{address.shown} cannot hold every text",
            todo="create the database with ENCODING 'UTF8' TEMPLATE template0",
        )
    if not await _one(connection, "schema_exists", address.schema):
        await connection.execute(f'CREATE SCHEMA "{address.schema}"'.encode())
    for step in steps[version:]:
        await connection.execute(step.encode())
    await connection.execute(sql["write_version"], (len(steps),))


async def _one(connection: Connection, name: str, *values: object) -> Any:
    row = await (await connection.execute(statements()[name], values or None)).fetchone()
    return row[0] if row else None
