"""The command that hands a task over: it writes the task durably and returns. Workers drive it."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.commands.run import known_by
from holdfast.cli.common import completions
from holdfast.cli.common.context import driving_engine, now_us, settings_of, wait_for
from holdfast.cli.common.invocation import holdfast
from holdfast.cli.common.options import AsJson, Inputs, UsedAtMost, dollars, pairs, read_inputs_file, resources_said
from holdfast.cli.common.program_args import locate, typed_inputs
from holdfast.cli.output.format import aside, json_line
from holdfast.core.errors import UsageError


def register(app: typer.Typer) -> None:
    app.command()(submit)


def submit(  # noqa: PLR0913, PLR0917 -- one parameter per option
    context: typer.Context,
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM", help="A plan file, or the name of a function.", autocompletion=completions.programs
        ),
    ],
    given: Inputs = None,
    inputs_file: Annotated[str, typer.Option("--inputs", metavar="FILE", help="Inputs as a JSON object.")] = "",
    key: Annotated[str, typer.Option(help="The same key again means the same execution.")] = "",
    owner: Annotated[str, typer.Option(help="Whom it belongs to.")] = "",
    title: Annotated[str, typer.Option(help="A title in place of the program's own.")] = "",
    label: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A label. Repeatable.")] = None,
    budget: Annotated[str | None, typer.Option(metavar="USD", help="What it may spend, in US dollars.")] = None,
    resource: UsedAtMost = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Ask every tool anew.")] = False,
    as_json: AsJson = False,
) -> int:
    """Hand a task over to the workers of this project, and return.

    The task is on disk when the command prints its id. A running `holdfast worker` or service drives it; without one it
    waits in the queue.

    \b
    Example:
      holdfast submit report.yaml -i topic=tides --key tides-today
    """
    settings = settings_of(context)
    if settings.store == "memory:":
        raise UsageError("submit: a store in memory ends with its process; use a file")
    labels, spendable, resources = pairs(label, "--label"), dollars(budget, "--budget"), resources_said(resource)
    subject = locate(program, settings)
    from_file = read_inputs_file(inputs_file) if inputs_file else {}

    async def work() -> int:
        async with driving_engine(settings, recover="nothing") as engine:
            found = engine.preparer.find(subject)
            inputs = {**from_file, **typed_inputs(engine.preparer, found, given, from_file)}
            began_at = now_us()
            run = await engine.submit(
                found, inputs=inputs, owner=owner, key=key, title=title, labels=labels, budget=spendable,
                resources=resources, cache=not no_cache,
            )  # fmt: skip
            head = await run.head()
        note = known_by(key, head, began_at) if key else ""
        said = note or f"in the queue; a worker drives it: holdfast worker; watch it: {holdfast()} watch {run.id}"
        if as_json:
            print(json_line({"id": run.id, "status": head.status, "text": said}))
        else:
            print(run.id, flush=True)
            aside(said, as_json=False)
        return 0

    return wait_for(work())
