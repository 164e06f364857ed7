"""Commands that ask something of an execution from any process: hold it, end it, or answer what it asks.

Each prints what became of it: applied as an event, unchanged, queued; or refused, with exit code 2.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import AnyStep, AsJson, Id, Step, Why, With, json_value, values
from holdfast.cli.place import bare_engine, is_left_alone, left_alone, settings_of, wait_for
from holdfast.cli.text import json_line, parse_value
from holdfast.core.errors import UsageError

if TYPE_CHECKING:
    from holdfast.core.commands import Answer
    from holdfast.engine.run import Run

Command = Callable[["Run"], Awaitable["Answer"]]


def register(app: typer.Typer) -> None:
    for command in (pause, interrupt, stop, approve, deny, answer, resolve, send):
        app.command()(command)


def pause(
    context: typer.Context,
    execution: Id,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for running steps: the same as interrupt.")] = False,
    why: Why = "",
    as_json: AsJson = False,
) -> int:
    """Hold an execution at the next step boundary; running steps finish first.

    \b
    Example:
      holdfast pause @last --why "let me look first"
    """
    work: Command = lambda run: run.interrupt(why=why) if now else run.pause(why=why)  # noqa: E731
    return _command(context, execution, work, as_json)


def interrupt(context: typer.Context, execution: Id, why: Why = "", as_json: AsJson = False) -> int:
    """Cancel what runs now, and stay so until a person resumes.

    \b
    Example:
      holdfast interrupt @last
    """
    return _command(context, execution, lambda run: run.interrupt(why=why), as_json)


def stop(context: typer.Context, execution: Id, why: Why = "", as_json: AsJson = False) -> int:
    """Cancel what runs now and end the execution for good.

    \b
    Example:
      holdfast stop @last --why "not needed any more"
    """
    return _command(context, execution, lambda run: run.stop(why=why), as_json)


def approve(  # noqa: PLR0917 -- one parameter per option
    context: typer.Context,
    execution: Id,
    step: AnyStep = "",
    changed: With = None,
    sticky: Annotated[bool, typer.Option("--sticky", help="Yes to this tool for the rest of the execution.")] = False,
    why: Why = "",
    as_json: AsJson = False,
) -> int:
    """Say yes to a step that asks for approval, with changed arguments if need be.

    \b
    Example:
      holdfast approve @last publish --with path=out/final.md
    """
    arguments = values(changed, "--with")
    work: Command = lambda run: run.approve(step, why=why, arguments=arguments, sticky=sticky)  # noqa: E731
    return _command(context, execution, work, as_json, wakes=True, checks=bool(arguments))


def deny(context: typer.Context, execution: Id, step: AnyStep = "", why: Why = "", as_json: AsJson = False) -> int:
    """Say no to a step that asks for approval.

    \b
    Example:
      holdfast deny @last publish --why "not on a Friday"
    """
    return _command(context, execution, lambda run: run.deny(step, why=why), as_json, wakes=True)


def answer(
    context: typer.Context,
    execution: Id,
    step: Step,
    said: Annotated[str, typer.Argument(metavar="ANSWER", help="JSON, or text.")],
    as_json: AsJson = False,
) -> int:
    """Answer a question that a step asks.

    \b
    Example:
      holdfast answer @last choose '{"colour": "blue"}'
    """
    return _command(context, execution, lambda run: run.answer(step, parse_value(said)), as_json, wakes=True)


def resolve(  # noqa: PLR0913, PLR0917 -- one parameter per option
    context: typer.Context,
    execution: Id,
    step: Step,
    done: Annotated[bool, typer.Option("--done", help="It did happen; go on.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Run it again.")] = False,
    skip: Annotated[bool, typer.Option("--skip", help="Go on without it.")] = False,
    fallback: Annotated[bool, typer.Option("--fallback", help="Run its fallback.")] = False,
    fail: Annotated[bool, typer.Option("--fail", help="Let it fail.")] = False,
    output: Annotated[str, typer.Option(metavar="JSON", help="With --done: what it gave.")] = "",
    changed: With = None,
    as_json: AsJson = False,
) -> int:
    """Settle a step that is in doubt, or that failed and waits for a correction.

    \b
    Example:
      holdfast resolve @last send_mail --done
      holdfast resolve @last fetch --again --with url=https://example.org
    """
    choices = {"done": done, "again": again, "skip": skip, "fallback": fallback, "fail": fail}
    chosen = [name for name, given in choices.items() if given]
    if len(chosen) != 1:
        raise UsageError(f"say how to resolve it, with exactly one of {', '.join(f'--{name}' for name in choices)}")
    if output and not done:
        raise UsageError("--output goes with --done: it is what the step gave")
    if changed and not again:
        raise UsageError("--with goes with --again: it changes what the step is called with")
    value: Any = json_value(output, "--output") if output else None
    arguments = values(changed, "--with")
    work: Command = lambda run: run.resolve(step, chosen[0], output=value, arguments=arguments)  # noqa: E731
    return _command(context, execution, work, as_json, wakes=True, checks=bool(changed or output))


def send(
    context: typer.Context,
    execution: Id,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The event's name.")],
    data: Annotated[str, typer.Argument(metavar="[DATA]", help="JSON, or text.")] = "null",
    as_json: AsJson = False,
) -> int:
    """Hand an event to an execution; it is kept if nobody waits for it yet.

    \b
    Example:
      holdfast send @last payment '{"amount": 12}'
    """
    return _command(context, execution, lambda run: run.send(name, parse_value(data)), as_json, wakes=True)


def _command(
    context: typer.Context, execution: str, give: Command, as_json: bool, *, wakes: bool = False, checks: bool = False
) -> int:
    """`wakes`: it may go on after this. `checks`: something is said that must fit a tool, so the tools are needed."""
    settings = settings_of(context)

    async def work() -> int:
        async with bare_engine(settings, with_tools=checks) as engine:
            run = await engine.find(execution)
            answer = await give(run)
            _tell(answer, run.id, as_json)
            if wakes and not as_json and is_left_alone(await run.head(), engine.is_dead):
                print(left_alone(run.id))
        return 0

    return wait_for(work())


def _tell(answer: Answer, execution_id: str, as_json: bool) -> None:
    if as_json:
        said = {"id": execution_id, "outcome": answer.outcome, "text": answer.text, "seq": answer.seq or None}
        print(json_line({**said, "command_id": answer.command_id}))
    elif answer.outcome == "applied":
        print(f"applied as event {answer.seq}: {answer.text}")
    elif answer.outcome == "queued":
        print(answer.text)
    else:
        print(f"{answer.outcome}: {answer.text}")
