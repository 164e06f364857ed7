"""`holdfast check --against`: whether executions that have not ended would go on with today's code. Changes nothing."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING

import msgspec

from holdfast.cli.common.context import driving_engine, existing_store, wait_for
from holdfast.cli.output.format import count, json_line, one_line, strip_control_chars
from holdfast.core.lifecycle import ENDS
from holdfast.journal.store import Query

if TYPE_CHECKING:
    from holdfast.app import Engine
    from holdfast.engine.transfer.resume_check import Outlook
    from holdfast.settings import Settings

UNFINISHED = "unfinished"  # in place of an id: every execution that has not ended
CHECKED_MAX = 10_000
SHOWN_MAX = 3


def check_against(settings: Settings, which: list[str], *, as_json: bool) -> int:
    existing_store(settings)
    outlooks = wait_for(_outlooks(settings, which))
    bad = [one for one in outlooks if one.problems]
    if as_json:
        print(json_line({"ok": not bad, "executions": [msgspec.to_builtins(one) for one in outlooks]}))
    else:
        for one in outlooks:
            print(_told(one))
        print(f"{count(len(outlooks), 'execution')} checked, {len(bad)} would not go on")
    return 1 if bad else 0


async def _outlooks(settings: Settings, which: list[str]) -> list[Outlook]:
    async with driving_engine(settings, recover="nothing") as engine:
        ids: list[str] = []
        for one in which:
            ids += await _unfinished(engine) if one == UNFINISHED else [(await engine.find(one)).id]
        return [await engine.outlook(execution_id) for execution_id in dict.fromkeys(ids)]


async def _unfinished(engine: Engine) -> list[str]:
    heads = await engine.list(Query(limit=CHECKED_MAX))
    return [head.id for head in heads if head.status not in ENDS]


def _told(one: Outlook) -> str:
    what = f"{one.id} {one_line(strip_control_chars(one.name))}"
    if one.problems:
        return f"{what} would not go on:\n" + "\n".join(indent(problem, "  ") for problem in one.problems)
    if one.status in ENDS:
        return f"{what} is {one.status}"
    if not one.goes_on_with:
        return f"{what} goes on"
    shown = ", ".join(one.goes_on_with[:SHOWN_MAX])
    more = len(one.goes_on_with) - SHOWN_MAX
    return f"{what} goes on with {strip_control_chars(shown)}" + (f" and {more} more" if more > 0 else "")
