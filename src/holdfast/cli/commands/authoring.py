"""Commands for whoever writes plans: init, check, graph, schema. None of them starts anything or needs a journal."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common import completions
from holdfast.cli.common.context import Flags, bare_engine, enter_folder, settings_of, wait_for
from holdfast.cli.common.options import AsJson, Replace, check_new
from holdfast.cli.output.format import aside, count, json_line
from holdfast.core.errors import UsageError
from holdfast.settings.invocation import program

if TYPE_CHECKING:
    from holdfast.core.plan.model import Plan
    from holdfast.settings import Settings


LEFT_OUT_SHOWN = 10


def register(app: typer.Typer) -> None:
    for command in (init, check, graph, schema):
        app.command()(command)


def init(
    context: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="[FOLDER]", help="Where; it is created if need be.")] = ".",
    as_json: AsJson = False,
) -> int:
    """Write a small project that works: two tools, a plan, a function, a test, and a schema for the editor.

    \b
    Example:
      holdfast init tides
    """
    from holdfast.cli.commands.init import write_project

    enter_folder(context)
    written = write_project(Path(folder))
    if as_json:
        print(json_line({"folder": str(Path(folder).resolve()), "wrote": written}))
        return 0
    flags: Flags = context.obj
    there = Path(folder).resolve() if flags.folder is not None else Path(folder)
    enter = "" if there == Path() else f"  cd {shlex.quote(str(there))}\n"
    print(f"wrote {', '.join(written)}\nnow type:\n{enter}  {program()} check")
    print(f"  {program()} run report.yaml -i place=pier")
    print("and for its test:\n  pip install pytest\n  pytest")
    return 0


def check(
    context: typer.Context,
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH]…", help="Plans, or folders of them; this folder if none.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings fail the check as well.")] = False,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Instead: would this execution go on with today's code? `unfinished`: all of them. Repeatable.",
            autocompletion=completions.ids,
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check plans: every mistake at once, with file, line and place.

    A file that is named is a plan. In folders, a plan is a YAML or JSON file with a list of steps that say what to do,
    or with the schema's comment; other files are named and left out.
    Warnings name what is probably not meant and what this machine lacks. Exit codes: 0 in order, 1 mistakes (with
    --strict also warnings), 2 nothing to check.

    \b
    Example:
      holdfast check
      holdfast check plans/ report.yaml --strict
      holdfast check --against unfinished
    """
    from holdfast.app import preparer_of
    from holdfast.cli.commands.check import check_all

    if against:
        if paths or strict:
            raise UsageError("--against checks executions; say it without plans and without --strict")
        from holdfast.cli.commands.check_against import check_against

        return check_against(settings_of(context), against, as_json=as_json)
    checked = check_all(paths or ["."], preparer_of(settings_of(context)))
    errors, warnings = checked.count("error"), checked.count("warning")
    fails = bool(errors or (strict and warnings))
    if as_json:
        findings = [finding._asdict() for finding in checked.findings]
        told = {"ok": not fails, "files": checked.files, "findings": findings, "left_out": checked.left_out}
        print(json_line(told))
    else:
        for finding in checked.findings:
            print(finding)
        print(f"{count(checked.files, 'plan')}: {count(errors, 'mistake')}, {count(warnings, 'warning')}")
        if checked.left_out:
            more = len(checked.left_out) - LEFT_OUT_SHOWN
            names = ", ".join(checked.left_out[:LEFT_OUT_SHOWN]) + (f" and {more} more" if more > 0 else "")
            aside(f"no plans, and not checked: {names}; name a file to check it all the same", as_json)
    return 1 if fails else 0


def graph(
    context: typer.Context,
    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN",
            help="A plan file, or the id of an execution of a plan.",
            autocompletion=completions.plans_and_ids,
        ),
    ],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As Mermaid text, for a page.")] = False,
    as_json: AsJson = False,
) -> int:
    """Draw a plan as a tree, or an execution of one with the status of each step.

    \b
    Example:
      holdfast graph report.yaml
      holdfast graph @last --mermaid
    """
    from holdfast.cli.commands.graph import mermaid_lines, tree_lines, wired
    from holdfast.programs.plan_files import PLAN_ENDINGS

    settings = settings_of(context)
    statuses: dict[str, str] | None = None
    if plan.endswith(PLAN_ENDINGS):
        found = _plan_in_file(settings, plan)
    else:
        found, statuses = wait_for(_plan_of_execution(settings, plan))
    if as_json:
        text = "\n".join(mermaid_lines(found, statuses)) if mermaid else None
        print(json_line({**wired(found, statuses), **({"mermaid": text} if text else {})}))
        return 0
    draw = mermaid_lines if mermaid else tree_lines
    print("\n".join(draw(found, statuses)))
    return 0


def _plan_in_file(settings: Settings, file: str) -> Plan:
    from holdfast.app import preparer_of
    from holdfast.cli.common.program_args import locate
    from holdfast.programs.plan_files import named, read_document

    path = settings.root / locate(file, settings)
    return preparer_of(settings).read(named(read_document(path), path.stem), check_tools=True, name=path.stem)


async def _plan_of_execution(settings: Settings, execution: str) -> tuple[Plan, dict[str, str]]:
    """The plan as it is recorded, which needs none of its tools."""
    import msgspec

    from holdfast.core.plan.parse import read_extension, read_plan
    from holdfast.programs.cel import Cel

    async with bare_engine(settings) as engine:
        run = await engine.find(execution)
        state = await run.state()
        program = state.facts().program
        if program.kind != "plan":
            raise UsageError(f"{run.id} ran the function {program.name}; `holdfast show {run.id}` draws what it did")
        cel = Cel()
        plan = read_plan(msgspec.json.decode(program.source), expressions=cel)
        for added in state.extensions:
            more = read_extension(msgspec.json.decode(added), plan, expressions=cel)
            plan = dataclasses.replace(plan, steps=(*plan.steps, *more))
        return plan, {path: step.status for path, step in state.steps.items()}


def schema(
    context: typer.Context,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")] = "",
    force: Replace = False,
) -> int:
    """Print the JSON Schema of plans with the tools of this project, for editors.

    An editor that knows the YAML language server completes and checks a plan that begins with the line
    `# yaml-language-server: $schema=holdfast.schema.json`.

    \b
    Example:
      holdfast schema -o holdfast.schema.json
    """
    from holdfast.cli.commands.init import schema_text

    text = schema_text(settings_of(context))
    if not output:
        print(text, end="")
        return 0
    check_new(Path(output), force)
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {output} cannot be written: {error.strerror}") from None
    print(f"wrote {output}")
    return 0
