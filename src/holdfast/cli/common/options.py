"""The options and arguments that several commands share, and how their texts become values."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints

import typer

from holdfast.cli.common import completions
from holdfast.cli.output.format import parse_value
from holdfast.core.errors import InputInvalid, UsageError


def not_empty(context: typer.Context, parameter: typer.CallbackParam, given: str) -> str:
    """Left out is not the same as empty: `stop "$ID" --status waiting` with no such variable must not mean them all."""
    source: Any = context.get_parameter_source(parameter.name or "")
    if getattr(source, "name", "") == "COMMANDLINE" and not given.strip():
        called = parameter.opts[0] if parameter.opts[0].startswith("-") else str(parameter.metavar).strip("[]")
        raise UsageError(f"{called} is empty; give it a value, or leave it out")
    return given


MaybeId = Annotated[
    str,
    typer.Argument(
        metavar="[ID]",
        help="An execution, as elsewhere; or none, and filters for many.",
        autocompletion=completions.ids,
        callback=not_empty,
    ),
]
Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="An execution: any unambiguous part at either end, or @last.",
        autocompletion=completions.ids,
        callback=not_empty,
    ),
]
Step = Annotated[
    str,
    typer.Argument(
        metavar="STEP",
        help="The step's path, as `holdfast show` prints it.",
        autocompletion=completions.steps,
        callback=not_empty,
    ),
]
AnyStep = Annotated[
    str,
    typer.Argument(
        metavar="[STEP]",
        help="The step's path; may be left out when only one asks.",
        autocompletion=completions.steps,
        callback=not_empty,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
NoAsk = Annotated[bool, typer.Option("--no-ask", help="Do not ask at the terminal; exit 3 when a person is needed.")]
UsedAtMost = Annotated[
    list[str] | None,
    typer.Option(
        "--resource",
        metavar="K=V",
        help="What each step may use, such as memory=500MB, or all together, such as total.cpu=10m. Repeatable.",
    ),
]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, kept in the journal.")]
With = Annotated[
    list[str] | None, typer.Option("--with", metavar="K=V", help="Change an argument; V is JSON or text. Repeatable.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="K=V",
        help="An input of the program. Repeatable.",
        autocompletion=completions.inputs,
    ),
]

LIMIT_MAX = 100_000
Limit = Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="At most so many, the newest first.")]


OtherFolder = Annotated[bool, typer.Option("--other-folder", help="Though it was started in another folder.")]
Replace = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]


def check_new(path: Path, force: bool) -> None:
    """Nothing of the user's is overwritten by a slip of the pen."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it")
    if path.exists() and not force:
        raise UsageError(f"{path} exists; name another file, or replace it with --force")


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """`k=v` texts as a mapping."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, separator, said = text.partition("=")
        if not separator or not name:
            raise InputInvalid(f"{option} {text}: expected NAME=VALUE, such as {option} topic=tides")
        found[name] = said
    return found


def resources_said(texts: Sequence[str] | None) -> dict[str, Any] | None:
    """`memory=500MB` and `total.cpu=10m` as a plan writes them; None if nothing was given."""
    found: dict[str, Any] = {}
    for text in texts or ():
        name, separator, said = text.partition("=")
        outer, dot, inner = name.partition(".")
        if not (separator and outer) or (dot and not inner):
            raise InputInvalid(f"--resource {text}: expected NAME=VALUE, such as --resource memory=500MB")
        place: Any = found.setdefault(outer, {}) if dot else found
        if not isinstance(place, dict):
            raise InputInvalid(f"--resource {name}: {outer} was given a value of its own; say one or the other")
        if (inner or outer) in place:
            raise InputInvalid(f"--resource {name} is given twice; say it once")
        place[inner or outer] = parse_value(said)
    if not found:
        return None
    from holdfast.core.plan.resources import task_resources_of

    task_resources_of(found)  # a mistake is told before anything is opened
    return found


def values(texts: Sequence[str] | None, option: str) -> dict[str, Any] | None:
    """`k=v` texts whose values are JSON, or text if they are not; None if nothing was given."""
    found = pairs(texts, option)
    return {name: parse_value(text) for name, text in found.items()} or None


def dollars(text: str | None, option: str) -> float | None:
    """An amount as somebody typed it; None if nothing was given."""
    if text is None:
        return None
    from holdfast.core.budget import in_usd, read_usd

    try:
        return in_usd(read_usd(text.removeprefix("$")))
    except InputInvalid as error:
        raise InputInvalid(f"{option}: {error}") from None


def json_value(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputInvalid(f"{option}: expected JSON, got {text!r} ({error}); quote it for the shell") from None


def read_inputs_file(path: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--inputs {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputInvalid(f"--inputs {path} is not JSON: {error}") from None
    if not isinstance(found, Mapping):
        raise InputInvalid(f"--inputs {path}: expected a JSON object of names and values")
    return dict(cast("Mapping[str, Any]", found))


def spread(command: Callable[..., int]) -> Callable[..., int]:
    """Let a command take a noun: each field of a parameter that is a dataclass becomes an option of its own."""
    hints = get_type_hints(command, include_extras=True)
    nouns: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in nouns:
            parameters += _options_of(nouns[parameter.name])
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))

    def spread_command(**given: Any) -> int:
        made: dict[str, Any] = {
            name: noun(**{field.name: given.pop(field.name) for field in dataclasses.fields(noun)})
            for name, noun in nouns.items()
        }
        return command(**given, **made)

    spread_command.__name__, spread_command.__doc__ = command.__name__, command.__doc__
    spread_command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    setattr(spread_command, "__signature__", inspect.Signature(parameters))  # noqa: B010 -- no attribute of functions
    return spread_command


def _options_of(noun: Any) -> list[inspect.Parameter]:
    types = get_type_hints(noun, include_extras=True)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        inspect.Parameter(field.name, kind, default=field.default, annotation=types[field.name])
        for field in dataclasses.fields(noun)
    ]
