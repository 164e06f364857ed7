"""The options and arguments that several commands share, and how their texts become values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from holdfast.cli.text import parse_value
from holdfast.core.errors import InputInvalid, UsageError

Id = Annotated[str, typer.Argument(metavar="ID", help="An execution: any unambiguous part at either end, or @last.")]
Step = Annotated[str, typer.Argument(metavar="STEP", help="The step's path, as `holdfast show` prints it.")]
AnyStep = Annotated[str, typer.Argument(metavar="[STEP]", help="The step's path; may be left out when only one asks.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, kept in the journal.")]
With = Annotated[
    list[str] | None, typer.Option("--with", metavar="K=V", help="Change an argument; V is JSON or text. Repeatable.")
]
Inputs = Annotated[
    list[str] | None, typer.Option("--input", "-i", metavar="K=V", help="An input of the program. Repeatable.")
]


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """`k=v` texts as a mapping."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, separator, said = text.partition("=")
        if not separator or not name:
            raise InputInvalid(f"{option} {text}: expected NAME=VALUE, such as {option} topic=tides")
        found[name] = said
    return found


def values(texts: Sequence[str] | None, option: str) -> dict[str, Any] | None:
    """`k=v` texts whose values are JSON, or text if they are not; None if nothing was given."""
    found = pairs(texts, option)
    return {name: parse_value(text) for name, text in found.items()} or None


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
