"""The `holdfast` command: its families of commands, the options they share, and how errors become words and exit codes.

Heavy imports happen inside the commands, so that `holdfast --help` answers at once. Nothing of Holdfast's own making is
ever shown as a traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated, Any

import typer

from holdfast.cli.command_index import Families
from holdfast.cli.common import completions
from holdfast.cli.common.context import Flags
from holdfast.cli.common.invocation import call_as, pastable
from holdfast.cli.output.format import fill_descriptors, json_line, silence
from holdfast.cli.output.log_output import tell_warnings
from holdfast.core.errors import HoldfastError, UsageError

OUTPUT_LOST = 74  # the exit code when what was to be printed could not be; the same number as EX_IOERR of sysexits.h
UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
SHARED = ("--store", "--folder", "-C", "--profile")

app = typer.Typer(
    name="holdfast",
    cls=Families,
    help="\b\nRun tasks durably: each step is journaled; a killed task goes on where it was.\n"
    "Begin: holdfast run report.yaml -i topic=tides  More: holdfast COMMAND --help",
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
    store: Annotated[str | None, typer.Option(help="Journal file or postgresql:// address (HOLDFAST_STORE).")] = None,
    folder: Annotated[
        str | None,
        typer.Option(
            "--folder",
            "-C",
            envvar="HOLDFAST_FOLDER",
            show_envvar=False,
            help="Work as if started in this folder (HOLDFAST_FOLDER).",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A profile of the settings file (HOLDFAST_PROFILE).",
            autocompletion=completions.profiles,
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    from holdfast.settings.invocation import program, with_options

    call_as(with_options(program(), folder=folder, store=store or os.environ.get("HOLDFAST_STORE"), profile=profile))
    context.obj = Flags(store=store, folder=folder, profile=profile)


def main() -> None:
    fill_descriptors()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence()
    except OSError as error:
        code = _unwritten(error, as_json=_wants_json(sys.argv[1:]))
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    as_json = _wants_json(arguments)
    tell_warnings(as_json)
    try:
        _check_text(arguments)
        first, rest = split_shared(arguments)
        code = app(args=first + _with_help_last(rest), prog_name="holdfast", standalone_mode=False)
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
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITTEN:
            raise
        return _unwritten(error, as_json=as_json)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        _tell(_words_of(error), UsageError.__name__, as_json)
        return 2
    return code if isinstance(code, int) else 0


def _wants_json(arguments: Sequence[str]) -> bool:
    return "--json" in takewhile(lambda argument: argument != "--", arguments)


def _unwritten(error: OSError, *, as_json: bool) -> int:
    """The answer found no room, as in `holdfast list > file` on a full disk. What is journaled is not touched by it."""
    silence()
    _tell(f"the output cannot be written: {error.strerror}; nothing in the journal is lost", "OutputError", as_json)
    return OUTPUT_LOST


def _words_of(error: Any) -> str:
    """What the parser says about a command line, with what was probably meant and where to look."""
    said: str = error.format_message().rstrip(".")
    if possible := getattr(error, "possibilities", None):
        said = f"{said.partition(' (')[0]}. Did you mean '{sorted(possible)[0]}'?"
    command = getattr(getattr(error, "ctx", None), "command_path", "holdfast")
    return f"{said}{' ' if said.endswith('?') else '; '}`{command} --help` shows how"


def _check_text(arguments: Sequence[str]) -> None:
    """What is typed may end up in the journal, which holds nothing but text."""
    for argument in arguments:
        if "\0" in argument or any("\ud800" <= character <= "\udfff" for character in argument):
            raise UsageError(f"{argument!a} is not UTF-8 text; type it in another way, or rename the file")


def _tell(error: str, kind: str, as_json: bool) -> None:
    print(json_line({"error": error, "type": kind}) if as_json else f"holdfast: {pastable(error)}", file=sys.stderr)


def split_shared(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The shared options may be given anywhere; the parser wants them before the command and the rest."""
    first: list[str] = []
    rest: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument == "--":
            rest += [argument, *given]
        elif argument in SHARED:
            first += [argument, *(value for value in [next(given, None)] if value is not None)]
        elif argument.startswith(("--store=", "--folder=", "--profile=")):
            first.append(argument)
        else:
            rest.append(argument)
    return first, rest


def _with_help_last(arguments: list[str]) -> list[str]:
    """`holdfast`, `holdfast help` and `holdfast help run` mean what `--help` means in their place."""
    if not arguments or arguments[0] == "help":
        return [*arguments[1:], "--help"]
    return arguments
