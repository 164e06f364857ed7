"""Which family of commands is in which file, so that only the one that is called is imported.

This table is all that is known before: names are enough to find a command, to suggest one and to refuse one. A test
compares it with what the families register.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
import typer.core
import typer.main

FAMILIES = {
    "running": ("run", "resume"),
    "anew": ("retry", "fork"),
    "detaching": ("drive",),
    "working": ("worker",),
    "looking": ("list", "show", "events", "watch"),
    "finding": ("inbox", "history", "diff"),
    "logs": ("logs",),
    "commanding": ("pause", "interrupt", "stop", "approve", "deny", "answer", "resolve", "send"),
    "budgeting": ("budget",),
    "carrying": ("checkpoint", "export", "import"),
    "rollback": ("rollback",),
    "writing": ("init", "check", "graph", "schema"),
    "tidying": ("prune", "delete", "hold"),
    "backing_up": ("backup",),
    "configuring": ("config",),
    "completing": ("completion", "complete"),
    "doctor": ("doctor",),
    "demo": ("demo",),
    "service": ("service",),
    "toolbox": ("tools",),
}
_HOME_OF = {name: family for family, names in FAMILIES.items() for name in names}


def commands_of(family: str) -> dict[str, Any]:
    """The commands that a family registers, by their names."""
    registered = typer.Typer(rich_markup_mode=None)
    import_module(f"holdfast.cli.{family}").register(registered)
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
