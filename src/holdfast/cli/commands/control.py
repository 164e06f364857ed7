"""Commands that ask something of executions from any process: hold them, end them, or answer what they ask.

Here are their options and what they mean; `give` does the rest, for one execution or for many.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.common import completions
from holdfast.cli.common.bulk import ONE, Selection
from holdfast.cli.common.options import AnyStep, AsJson, MaybeId, Why, With, json_value, not_empty, spread, values
from holdfast.cli.common.send_command import give
from holdfast.cli.output.format import parse_value
from holdfast.core.errors import UsageError

StepOfMany = Annotated[
    str,
    typer.Option(
        "--step",
        metavar="STEP",
        help="The step, where filters take the ID's place.",
        autocompletion=completions.asking_steps,
        callback=not_empty,
    ),
]
AnyAnswer = Annotated[
    list[str] | None, typer.Argument(metavar="[ANSWER]", help="JSON, text, or field=value for each field.")
]


def register(app: typer.Typer) -> None:
    for each in (pause, interrupt, stop, approve, deny, answer, resolve, send):
        app.command()(each)


@spread
def pause(
    context: typer.Context,
    execution: MaybeId = "",
    now: Annotated[bool, typer.Option("--now", help="Do not wait for running steps: the same as interrupt.")] = False,
    why: Why = "",
    selection: Selection = ONE,
    as_json: AsJson = False,
) -> int:
    """Hold an execution, or all that fit the filters, at the next step boundary; running steps finish first.

    \b
    Example:
      holdfast pause @last --why "let me look first"
      holdfast pause --name report --dry-run
    """
    return give(context, execution, selection, "interrupt" if now else "pause", {"why": why}, as_json)


@spread
def interrupt(
    context: typer.Context,
    execution: MaybeId = "",
    why: Why = "",
    selection: Selection = ONE,
    as_json: AsJson = False,
) -> int:
    """Cancel what runs now, of one execution or of all that fit, and stay so until a person resumes.

    \b
    Example:
      holdfast interrupt @last
      holdfast interrupt --label team=harbour --why "a storm is coming"
    """
    return give(context, execution, selection, "interrupt", {"why": why}, as_json)


@spread
def stop(
    context: typer.Context,
    execution: MaybeId = "",
    why: Why = "",
    selection: Selection = ONE,
    as_json: AsJson = False,
) -> int:
    """Cancel what runs now and end the execution, or all that fit, for good.

    \b
    Example:
      holdfast stop @last --why "not needed any more"
      holdfast stop --status waiting --label team=harbour --dry-run
    """
    return give(context, execution, selection, "stop", {"why": why}, as_json)


@spread
def approve(  # noqa: PLR0913, PLR0917 -- one parameter per option
    context: typer.Context,
    execution: MaybeId = "",
    step: AnyStep = "",
    changed: With = None,
    sticky: Annotated[bool, typer.Option("--sticky", help="Yes to this tool for the rest of the execution.")] = False,
    why: Why = "",
    step_of_many: StepOfMany = "",
    selection: Selection = ONE,
    as_json: AsJson = False,
) -> int:
    """Say yes to a step that asks for approval, with changed arguments if need be; or to all that fit the filters.

    \b
    Example:
      holdfast approve @last publish --with path=out/final.md
      holdfast approve --name report --step publish --since 1d
    """
    said = {"step": step or step_of_many, "why": why, "arguments": values(changed, "--with"), "sticky": sticky}
    return give(context, execution, selection, "approve", said, as_json)


@spread
def deny(  # noqa: PLR0917 -- one parameter per option
    context: typer.Context,
    execution: MaybeId = "",
    step: AnyStep = "",
    why: Why = "",
    step_of_many: StepOfMany = "",
    selection: Selection = ONE,
    as_json: AsJson = False,
) -> int:
    """Say no to a step that asks for approval, or to all that fit the filters.

    \b
    Example:
      holdfast deny @last publish --why "not on a Friday"
      holdfast deny --name report --step publish --why "not on a Friday"
    """
    return give(context, execution, selection, "deny", {"step": step or step_of_many, "why": why}, as_json)


@spread
def answer(  # noqa: PLR0913, PLR0917 -- one parameter per option
    context: typer.Context,
    execution: MaybeId = "",
    step: AnyStep = "",
    said: AnyAnswer = None,
    step_of_many: StepOfMany = "",
    said_to_many: Annotated[
        str | None, typer.Option("--answer", metavar="ANSWER", help="The answer, where filters take the ID's place.")
    ] = None,
    selection: Selection = ONE,
    as_json: AsJson = False,
) -> int:
    """Answer a question that a step asks, or the same question of all that fit the filters.

    \b
    Example:
      holdfast answer @last choose colour=blue count=2
      holdfast answer @last choose '{"colour": "blue"}'
      holdfast answer --name paint --step choose --answer blue
    """
    from holdfast.cli.foreground.answer_parsing import answer_with

    words = said or ([said_to_many] if said_to_many is not None else [])
    if not words:
        raise UsageError("say what the answer is: holdfast answer ID STEP ANSWER, or with filters --answer ANSWER")
    asked = step or step_of_many
    value = {"step": asked, "value": parse_value(words[0])}
    return give(
        context, execution, selection, "answer", value, as_json, to_one=lambda run: answer_with(run, asked, words)
    )


@spread
def resolve(  # noqa: PLR0913, PLR0917 -- one parameter per option
    context: typer.Context,
    execution: MaybeId = "",
    step: AnyStep = "",
    done: Annotated[bool, typer.Option("--done", help="It did happen; go on.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Run it again.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Ask the tool's own check whether it happened.")] = False,
    skip: Annotated[bool, typer.Option("--skip", help="Go on without it.")] = False,
    fallback: Annotated[bool, typer.Option("--fallback", help="Run its fallback.")] = False,
    fail: Annotated[bool, typer.Option("--fail", help="Let it fail.")] = False,
    output: Annotated[str, typer.Option(metavar="JSON", help="With --done: what it gave.")] = "",
    changed: With = None,
    step_of_many: StepOfMany = "",
    selection: Selection = ONE,
    as_json: AsJson = False,
) -> int:
    """Settle a step that is in doubt, that failed and waits for a correction, or that has no budget left.

    \b
    Example:
      holdfast resolve @last send_mail --done --output '"sent"'
      holdfast resolve @last fetch --again --with url=https://example.org
      holdfast resolve --name report --step fetch --skip --dry-run
    """
    choices = {"done": done, "again": again, "verify": verify, "skip": skip, "fallback": fallback, "fail": fail}
    chosen = [name for name, given in choices.items() if given]
    if len(chosen) != 1:
        raise UsageError(f"say how to resolve it, with exactly one of {', '.join(f'--{name}' for name in choices)}")
    if output and not done:
        raise UsageError("--output goes with --done: it is what the step gave")
    if changed and not again:
        raise UsageError("--with goes with --again: it changes what the step is called with")
    said: dict[str, Any] = {
        "step": step or step_of_many,
        "remedy": chosen[0],
        "output": json_value(output, "--output") if output else None,
        "arguments": values(changed, "--with"),
    }
    return give(context, execution, selection, "resolve", said, as_json)


@spread
def send(  # noqa: PLR0913, PLR0917 -- one parameter per option
    context: typer.Context,
    execution: MaybeId = "",
    name_of_event: Annotated[str, typer.Argument(metavar="[NAME]", help="The event's name.")] = "",
    data: Annotated[str | None, typer.Argument(metavar="[DATA]", help="JSON, or text.")] = None,
    event: Annotated[
        str, typer.Option("--event", metavar="NAME", help="The event's name, where filters take the ID's place.")
    ] = "",
    data_for_many: Annotated[
        str | None, typer.Option("--data", metavar="DATA", help="Its data, where filters take the ID's place.")
    ] = None,
    selection: Selection = ONE,
    as_json: AsJson = False,
) -> int:
    """Hand an event to an execution, or to all that fit; it is kept if nobody waits for it yet.

    \b
    Example:
      holdfast send @last payment '{"amount": 12}'
      holdfast send --status waiting --name order --event payment --data '{"amount": 12}'
    """
    called = name_of_event or event
    if not called:
        raise UsageError("name the event: holdfast send ID NAME [DATA], or with filters --event NAME")
    words = data if data is not None else data_for_many
    said = {"name": called, "data": None if words is None else parse_value(words)}
    return give(context, execution, selection, "send", said, as_json)
