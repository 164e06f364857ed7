"""Executions that nobody drives until a person says so, with their children: to hold them, and to let them go.

A family is held as a whole or not at all: a child that went on would come to its end without its parent. Takes nothing
from whoever drives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.core.errors import NotFound, StoreCorrupted
from holdfast.journal.store import Head, Hold, Query, Store

PATIENCE_S = 1.0  # with a commander, who has claimed an execution for some milliseconds
LOOK_AGAIN_S = 0.05
PAGE = 1000  # children read at once


class _Refused(NamedTuple):
    why: dict[str, str]
    driven: set[str]  # those of them that somebody drives


async def hold(store: Store, is_dead: Callable[[str], bool], wanted: Sequence[str], why: str) -> dict[str, str]:
    """Keep everybody from driving them and their descendants. Returns who is left as it was, and why."""
    refused = _Refused({}, set())
    before: dict[str, Head] = {}
    families = {one: await _family(store, one) for one in wanted}
    asked = list(wanted)
    while asked:
        before |= {head.id: head for family in families.values() for head in family if head.id in asked}
        part = await _hold_each(store, is_dead, asked, why)
        refused.why.update(part.why)
        refused.driven.update(part.driven)
        # Who was driven until a moment ago may have had children meanwhile; who is held has none any more.
        families = {one: await _family(store, one) for one in wanted}
        living = dict.fromkeys(head.id for family in families.values() for head in family if not head.ended_at)
        asked = [one for one in living if one not in before]
    found = {one: refused.why[one] for one in wanted if one in refused.why}
    undone: set[str] = set()
    for one, family in families.items():
        going_on = next((head.id for head in family if head.id != one and head.id in refused.driven), None)
        if one not in found and going_on is not None:
            found[one] = f"a process drives its child {going_on} now; interrupt that: holdfast interrupt {going_on}"
        if one in found:
            undone |= {head.id for head in family if head.id == one or head.id not in families}
    if freed := [one for one in sorted(undone) if one in before and not before[one].held]:
        await store.commit([Hold(execution_ids=tuple(freed), why="")])
    return found


async def let_go(store: Store, execution_id: str) -> None:
    """A person said that it may go on: then nothing of it is held any more, nor of its children."""
    if held := [head.id for head in await _family(store, execution_id) if head.held]:
        await store.commit([Hold(execution_ids=tuple(held), why="")])


async def _family(store: Store, execution_id: str) -> list[Head]:
    """It and its descendants, but for those of whoever has ended; nobody, if it is not there."""
    found = {head.id: head for head in await store.heads(Query(ids=(execution_id,), limit=1))}
    parents = list(found)
    for parent in parents:  # which grows meanwhile
        page = await store.heads(Query(parent_id=parent, limit=PAGE))
        while page:
            new = [head for head in page if head.id not in found]  # a circle can only be forged; it must end, too
            found |= {head.id: head for head in new}
            parents += [head.id for head in new if not head.ended_at]
            page = await store.heads(Query(parent_id=parent, before=page[-1].id, limit=PAGE))
    return list(found.values())


# ---- each --------------------------------------------------------------------------------------------------------


async def _hold_each(store: Store, is_dead: Callable[[str], bool], wanted: Sequence[str], why: str) -> _Refused:
    """Who is driven goes on, and is left as it was.

    The store decides in one transaction. A commander lets go in a moment, and may not keep a hold from being set: so
    what somebody has claimed is asked for once more until he has.
    """
    refused = _Refused({}, set())
    left: list[str] = list(wanted)
    give_up = asyncio.get_running_loop().time() + PATIENCE_S
    while left:
        dead = tuple(driver for driver in await store.drivers() if is_dead(driver))
        await store.commit([Hold(execution_ids=tuple(left), why=why, unless_driven=dead)])
        refused.driven.clear()
        for execution_id in left:
            problem, is_driven = await _not_held(store, execution_id)
            if is_driven:
                refused.driven.add(execution_id)
            if problem:
                refused.why[execution_id] = problem
            else:
                refused.why.pop(execution_id, None)
        if asyncio.get_running_loop().time() >= give_up:
            break
        left = [one for one in left if one in refused.driven]
        if left:
            await asyncio.sleep(LOOK_AGAIN_S)
    return refused


async def _not_held(store: Store, execution_id: str) -> tuple[str, bool]:
    """Why a hold was not set, and whether that is because somebody has claimed it."""
    try:
        head = await store.head(execution_id)
    except (NotFound, StoreCorrupted) as error:  # of one, which must not keep the others from being held
        return str(error), False
    if head.ended_at:
        return f"the execution is {head.status}; nobody will drive it", False
    if head.held:
        return "", False
    return f"a process drives it now; interrupt it: holdfast interrupt {execution_id}", True
