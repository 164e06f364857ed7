"""The `holdfast` command: its families of commands, the options they share, and how errors become words and exit codes.

Heavy imports happen inside the commands, so that `holdfast --help` answers at once. Nothing of Holdfast's own making is
ever shown as a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated

import typer

from holdfast.cli import commanding, demo, doctor, looking, running, toolbox
from holdfast.cli.place import Flags
from holdfast.cli.text import json_line, silence
from holdfast.core.errors import HoldfastError, UsageError

_SHARED = ("--store", "--folder", "-C")

app = typer.Typer(
    name="holdfast",
    help="Run tasks durably: every step is journaled, and a killed task goes on where it was.\n\n"
    "\b\nExample:\n  holdfast run report.yaml -i topic=tides\n  holdfast list\n  holdfast show @last",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from holdfast.version import VERSION

        print(f"holdfast {VERSION}")
        raise typer.Exit


@app.callback()
def shared(
    context: typer.Context,
    store: Annotated[
        str | None, typer.Option(help="The journal's file or postgresql:// address; also HOLDFAST_STORE.")
    ] = None,
    folder: Annotated[
        str | None, typer.Option("--folder", "-C", envvar="HOLDFAST_FOLDER", help="Work as if started in this folder.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    context.obj = Flags(store=store, folder=folder)


for family in (running, looking, commanding, toolbox, doctor, demo):
    family.register(app)


def main() -> None:
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    as_json = "--json" in takewhile(lambda argument: argument != "--", arguments)
    try:
        _check_text(arguments)
        code = app(args=_shared_first(arguments), prog_name="holdfast", standalone_mode=False)
    except HoldfastError as error:
        _tell(str(error), type(error).__name__, as_json)
        return 2 if isinstance(error, UsageError) else 1
    except SystemExit as left:
        if not isinstance(left.__context__, BrokenPipeError):
            raise
        silence()  # the parser calls it a failure, but whoever read this has only seen enough
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "holdfast")
        said = message().rstrip(".")
        joint = " " if said.endswith("?") else "; "
        _tell(f"{said}{joint}`{command} --help` shows how", UsageError.__name__, as_json)
        return 2
    return code if isinstance(code, int) else 0


def _check_text(arguments: Sequence[str]) -> None:
    """What is typed may end up in the journal, which holds nothing but text."""
    for argument in arguments:
        if "\0" in argument or any("\ud800" <= character <= "\udfff" for character in argument):
            raise UsageError(f"{argument!a} is not UTF-8 text; type it in another way, or rename the file")


def _tell(error: str, kind: str, as_json: bool) -> None:
    print(json_line({"error": error, "type": kind}) if as_json else f"holdfast: {error}", file=sys.stderr)


def _shared_first(arguments: Sequence[str]) -> list[str]:
    """The shared options may be given anywhere; the parser wants them before the command."""
    first: list[str] = []
    rest: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument == "--":
            rest += [argument, *given]
        elif argument in _SHARED:
            first += [argument, *(value for value in [next(given, None)] if value is not None)]
        elif argument.startswith(("--store=", "--folder=")):
            first.append(argument)
        else:
            rest.append(argument)
    return first + _with_help_last(rest)


def _with_help_last(arguments: list[str]) -> list[str]:
    """`holdfast`, `holdfast help` and `holdfast help run` mean what `--help` means in their place."""
    if not arguments or arguments[0] == "help":
        return [*arguments[1:], "--help"]
    return arguments
