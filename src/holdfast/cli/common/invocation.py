"""The commands that are printed work when they are pasted into the same terminal.

They name the folder, the store and the profile that were given, and the path of this program where its name is not
found. Sentences from other rooms know nothing of it and say `holdfast resume ID`: `pastable` puts that right.
"""

from __future__ import annotations

import re

from holdfast.cli.command_index import FAMILIES

_COMMAND = re.compile(rf"(?<![\w./-])holdfast (?=(?:{'|'.join(n for names in FAMILIES.values() for n in names)})\b)")
_called = "holdfast"


def call_as(called: str) -> None:
    """From now on: what stands before a command's name."""
    global _called  # noqa: PLW0603 -- one process is one command line
    _called = called


def holdfast() -> str:
    return _called


def pastable(text: str) -> str:
    """A sentence of Holdfast's own, with its commands as they have to be typed here. Not for what users wrote."""
    return text if _called == "holdfast" else _COMMAND.sub(lambda _: f"{_called} ", text)
