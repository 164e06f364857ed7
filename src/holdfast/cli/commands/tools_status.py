"""How tools are and have done: what the newest executions say, and what the engines that run now have posted.

Bounded on purpose: a journal may be large, and this is a glance. What nobody knows is None, and shown as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.cli.common.context import looked_into
from holdfast.core.errors import HoldfastError
from holdfast.core.tool_stats import Figures, count

if TYPE_CHECKING:
    from holdfast.journal.tool_status import EngineToolStates, ToolState
    from holdfast.settings import Settings

EXECUTIONS_MAX = 100  # the newest
EVENTS_MAX = 2_000  # of one of them
EVENTS_ALL_MAX = 20_000
_WORST = ("half_open", "open")  # of several engines or hosts, the worst is told


class Known(NamedTuple):
    """`notices` is None if no engine runs here that could have said anything."""

    figures: dict[str, Figures]
    notices: list[EngineToolStates] | None


async def known_of(settings: Settings) -> Known:
    figures: dict[str, Figures] = {}
    try:
        await _count(settings, figures)
    except HoldfastError:  # a journal that cannot be read is no reason not to list tools; `holdfast doctor` tells
        figures = {}
    return Known(figures, _notices(settings))


async def _count(settings: Settings, figures: dict[str, Figures]) -> None:
    from holdfast.journal.log import read_events
    from holdfast.journal.postgres.address import is_postgres
    from holdfast.journal.store import Query

    if settings.store_file is None and not is_postgres(settings.store):
        return
    async with looked_into(settings) as store:
        if store is None:
            return
        left = EVENTS_ALL_MAX
        for head in await store.heads(Query(limit=EXECUTIONS_MAX)):
            if left <= 0:
                break
            events = await read_events(store, head.id, 0, min(left, EVENTS_MAX))
            left -= len(events)
            count((event for _, event in events), figures)


def _notices(settings: Settings) -> list[EngineToolStates] | None:
    """Engines of other machines post nothing here, so of a shared database nobody knows."""
    from holdfast.journal.open import lock_files
    from holdfast.journal.tool_status import Board

    if settings.store_file is None:
        return None
    locks = lock_files(settings.data_folder)
    if all(locks.is_dead(driver) for driver in locks.everybody()):
        return None
    return Board(settings.data_folder).read(locks.is_dead)


def wire_figures(figures: Figures | None) -> dict[str, Any]:
    found = figures or Figures()
    return {
        "calls": found.calls,
        "failures": found.failures,
        "cached": found.cached,
        "median_s": found.quantile_s(0.5),
        "p90_s": found.quantile_s(0.9),
    }


def wire_state(tool: Any, notices: list[EngineToolStates] | None) -> dict[str, Any]:
    """`breaker` and `health` are null when nobody knows; a breaker that no engine has needed is closed."""
    said = [notice for posted in notices or () for notice in posted.tools if notice.tool == tool.name]
    open_ones = [notice for notice in said if notice.breaker in _WORST]
    worst = max(open_ones, key=lambda notice: _WORST.index(notice.breaker), default=None)
    ill = next((notice for notice in said if notice.health == "ill"), None)
    well = next((notice for notice in said if notice.health == "well"), None)
    health: ToolState | None = ill or well
    return {
        "breaker": _breaker(tool, notices, worst),
        "breaker_why": worst.why if worst is not None else None,
        "breaker_apart": worst.apart or None if worst is not None else None,
        "probe_at": _iso(worst.probe_at) if worst is not None else None,
        "health": health.health if health is not None else None,
        "health_why": ill.health_why if ill is not None else None,
        "health_at": _iso(health.health_at) if health is not None else None,
    }


def _breaker(tool: Any, notices: list[EngineToolStates] | None, worst: ToolState | None) -> str | None:
    if tool.breaker is None:
        return "none"
    if notices is None:
        return None
    return "closed" if worst is None else worst.breaker


def _iso(at: int | None) -> str | None:
    from holdfast.engine.json_view import iso

    return iso(at)
