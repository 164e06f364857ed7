"""`holdfast budget`: what an execution may spend, what it has spent, and how to let it spend more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from holdfast.cli.common.bulk import ONE, Selection
from holdfast.cli.common.context import bare_engine, settings_of, wait_for
from holdfast.cli.common.options import AsJson, MaybeId, dollars, spread
from holdfast.cli.common.send_command import give
from holdfast.cli.output.format import count, json_line, usd
from holdfast.core.errors import UsageError


def register(app: typer.Typer) -> None:
    app.command()(budget)


@spread
def budget(
    context: typer.Context,
    execution: MaybeId = "",
    add: Annotated[str | None, typer.Option(metavar="USD", help="Raise the limit by so much.")] = None,
    limit: Annotated[str | None, typer.Option(metavar="USD", help="Make this the limit.")] = None,
    selection: Selection = ONE,
    as_json: AsJson = False,
) -> int:
    """Show what an execution may spend and has spent, or raise its limit; steps that have room then go on.

    With filters, the limit of all that fit is raised.

    \b
    Example:
      holdfast budget @last
      holdfast budget @last --add 0.50
      holdfast budget --label team=harbour --add 0.50 --dry-run
    """
    if add is not None and limit is not None:
        raise UsageError("say either --add, by how much to raise the limit, or --limit, what to make it")
    more, most = dollars(add, "--add"), dollars(limit, "--limit")
    if more is not None or most is not None:
        return give(context, execution, selection, "budget", {"add": more, "limit": most}, as_json)
    if selection.is_meant(execution):
        raise UsageError("with filters say --add or --limit; what one has spent is shown by its ID")
    settings = settings_of(context)

    async def work() -> dict[str, Any]:
        async with bare_engine(settings) as engine:
            shown: dict[str, Any] = await (await engine.find(execution)).show()
            return {"id": shown["id"], **shown["spend"]}

    spend = wait_for(work())
    spend["room"] = None if spend["limit"] is None else _room(spend)
    print(json_line(spend) if as_json else "\n".join(_page(spend)))
    return 0


def _room(spend: Mapping[str, Any]) -> float:
    return round(spend["limit"] - (spend["usd"] or 0) - spend["reserved"], 6)


def _page(spend: Mapping[str, Any]) -> list[str]:
    """Nothing known is not nothing spent."""
    return [
        f"limit     {usd(spend['limit']) if spend['limit'] is not None else 'none'}",
        f"spent     {usd(spend['usd']) if spend['usd'] is not None else 'unknown: nothing that ran told a cost'}",
        f"unknown   {count(spend['unknown'], 'amount')} counted as estimated",
        f"reserved  {usd(spend['reserved'])}",
        f"room      {usd(spend['room']) if spend['room'] is not None else 'without a limit'}",
    ]
