"""What is run, and with what: programs and inputs as somebody types them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.common.options import pairs
from holdfast.core.errors import InputInvalid

if TYPE_CHECKING:
    from holdfast.programs.prepare import Preparer, Subject
    from holdfast.settings import Settings

PLAN_ENDINGS = (".yaml", ".yml", ".json")


def locate(program: str, settings: Settings) -> str:
    """A plan file is meant from where the command was typed, and recorded from the project's folder."""
    if not program.endswith(PLAN_ENDINGS):
        return program
    path = (Path.cwd() / program).resolve()
    return str(path.relative_to(settings.root)) if path.is_relative_to(settings.root) else str(path)


def typed_inputs(
    preparer: Preparer, subject: Subject, given: list[str] | None, beside: Mapping[str, Any] | None
) -> dict[str, Any]:
    """`-i` texts as the types the program declares; every mistake at once. `beside`: see `parse_cli_inputs`."""
    from holdfast.core.inputs import parse_cli_inputs

    texts = pairs(given, "-i")
    if not texts:
        return {}
    found, problems = parse_cli_inputs(preparer.inputs_of(subject), texts, beside)
    if problems:
        raise InputInvalid("\n".join(["the inputs do not fit:", *(f"  {problem}" for problem in problems)]))
    return found
