"""Which family of commands is in which file, so that only the one that is called is imported.

These tables are all that is known before: they are enough to find a command, to suggest one, to refuse one, and for
`holdfast --help`. A test compares them with what the families register.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from itertools import zip_longest
from typing import Any, cast

import typer
import typer.core
import typer.main

FAMILIES = {
    "run": ("run", "resume"),
    "submit": ("submit",),
    "retry_fork": ("retry", "fork"),
    "detach": ("drive",),
    "worker": ("worker",),
    "inspect": ("list", "show", "events", "watch"),
    "inbox_history_diff": ("inbox", "history", "diff"),
    "logs": ("logs",),
    "control": ("pause", "interrupt", "stop", "approve", "deny", "answer", "resolve", "send"),
    "budget": ("budget",),
    "transfer": ("checkpoint", "export", "import"),
    "rollback": ("rollback",),
    "authoring": ("init", "check", "graph", "schema"),
    "maintenance": ("prune", "delete", "hold"),
    "backup": ("backup",),
    "config": ("config",),
    "completion": ("completion", "complete"),
    "doctor": ("doctor",),
    "demo": ("demo",),
    "service": ("service",),
    "tools": ("tools",),
}
_HOME_OF = {name: family for family, names in FAMILIES.items() for name in names}

LINE_CHARS_MAX = 25  # of what is said about a command, so that two columns fit into 80 characters
# What `holdfast --help` shows. A command that stands in no group, such as `drive`, is not for people.
GROUPS = {
    "Run": {
        "run": "Run a plan or a function",
        "submit": "Hand it to the workers",
        "resume": "Go on with an execution",
        "retry": "Run again what failed",
        "fork": "Start anew from a step",
        "worker": "Drive all that can run",
    },
    "Look": {
        "list": "List executions",
        "show": "Show steps and failures",
        "watch": "Follow an execution live",
        "events": "Print the journal of one",
        "logs": "Print what tools said",
        "history": "See who ran what and when",
        "diff": "Compare two executions",
    },
    "Steer": {
        "pause": "Pause at the next step",
        "interrupt": "Cancel what runs now",
        "stop": "End it for good",
        "send": "Send an event to it",
        "budget": "Show or raise its budget",
        "rollback": "Undo what it changed",
    },
    "People": {
        "inbox": "List what waits for you",
        "approve": "Allow a step",
        "deny": "Refuse a step",
        "answer": "Answer a question",
        "resolve": "Settle a step in doubt",
    },
    "Carry": {
        "checkpoint": "Save it as files",
        "export": "Write it into one file",
        "import": "Read an exported file",
    },
    "Keep house": {
        "prune": "Delete old executions",
        "delete": "Delete one for ever",
        "hold": "Let no engine drive it",
        "backup": "Copy the store to a file",
        "doctor": "Find what is wrong",
    },
    "Write": {
        "init": "Make a small project",
        "check": "Find mistakes in plans",
        "graph": "Draw a plan",
        "schema": "Print the schema of plans",
        "tools": "List and try tools",
    },
    "Set up": {
        "config": "Show every setting",
        "service": "Keep a worker running",
        "completion": "Complete words with Tab",
        "demo": "Watch a crash and resume",
    },
}
_NAME_CHARS = 11  # of the column of names
_COLUMN_CHARS = 2 + _NAME_CHARS + LINE_CHARS_MAX + 2


def commands_of(family: str) -> dict[str, Any]:
    """The commands that a family registers, by their names."""
    registered = typer.Typer(rich_markup_mode=None)
    import_module(f"holdfast.cli.commands.{family}").register(registered)
    return dict(typer.main.get_group(registered).commands)


class _Commands(MutableMapping[str, Any]):
    """Every command by its name; a family is imported when the first of its commands is looked at."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known and name in _HOME_OF:
            self._known |= commands_of(_HOME_OF[name])
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_HOME_OF)

    def __len__(self) -> int:
        return len(_HOME_OF)

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError("a command is added to its family, and its name to the table")

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands are not taken away")


class Families(typer.core.TyperGroup):
    """The parser's group of commands, with those of the table."""

    def __init__(self, **told: Any) -> None:
        super().__init__(**told)
        self.commands = _Commands()

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The commands first, in their groups, and then the options. No family is imported for it."""
        columns: list[list[str]] = [[], []] if formatter.width >= 2 * _COLUMN_CHARS - 2 else [[]]
        for group, lines in GROUPS.items():
            column = min(columns, key=len)
            column += [group, *(f"  {name:<{_NAME_CHARS}}{line}" for name, line in lines.items())]
        formatter.write_paragraph()
        for row in zip_longest(*columns, fillvalue=""):
            formatter.write("".join(f"{cell:<{_COLUMN_CHARS}}" for cell in row).rstrip() + "\n")
        typer.core.TyperCommand.format_options(cast(Any, self), ctx, formatter)
