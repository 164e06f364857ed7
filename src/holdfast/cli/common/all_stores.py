"""`holdfast list --all`: the executions of every store this user has used, each with the folder it belongs to.

A store that cannot be read now is named on stderr and keeps nobody from seeing the others.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from holdfast.cli.output.format import aside
from holdfast.core.errors import HoldfastError
from holdfast.journal.postgres.address import is_postgres
from holdfast.settings import Settings, load_settings
from holdfast.settings.known_stores import KnownStore, known_stores

STORE_TIMEOUT_S = 5.0  # a database that does not answer must not hold the list up
STORES_AT_ONCE = 8

Read = Callable[[Settings], Awaitable[list[dict[str, Any]]]]


async def heads_everywhere(here: Settings, read: Read, as_json: bool) -> list[dict[str, Any]]:
    """What `read` finds in each store, the newest first; what is in two, as in a backup, is where it went on last."""
    places = {store.store: _settings_of(store, here) for store in known_stores()}
    places[here.store_shown] = here
    turns = asyncio.Semaphore(STORES_AT_ONCE)

    async def look(settings: Settings) -> list[dict[str, Any]]:
        try:
            async with turns, asyncio.timeout(STORE_TIMEOUT_S):
                found = await read(settings)
        except (HoldfastError, TimeoutError) as error:
            why = str(error) or f"no answer within {STORE_TIMEOUT_S:g} s"
            aside(f"{settings.store_shown} is left out: {why}", as_json)
            return []
        return [{**head, "store": settings.store_shown} for head in found]

    found = [head for heads in await asyncio.gather(*map(look, places.values())) for head in heads]
    one_each: dict[str, dict[str, Any]] = {}
    for head in found:
        known = one_each.get(head["id"])
        if known is None or (head["updated_at"], not head["held"]) > (known["updated_at"], not known["held"]):
            one_each[head["id"]] = head
    if twice := len(found) - len(one_each):
        aside(f"{twice} more are copies, as in a backup: each is listed once, where it went on last", as_json)
    return sorted(one_each.values(), key=lambda head: head["id"], reverse=True)


def _settings_of(known: KnownStore, here: Settings) -> Settings:
    """The password of a database is not kept with its name, but perhaps in the settings of its project."""
    if known.store == here.store_shown:
        return here
    store = known.store
    if is_postgres(store):
        try:
            of_project = load_settings(Path(known.folder), {"HOME": os.environ.get("HOME", "")})
            store = of_project.store if of_project.store_shown == store else store
        except HoldfastError:
            pass  # its settings are broken; perhaps the address will do
    return Settings(root=Path(known.folder), store=store, sources={"store": "known"})
