"""What is not the same as when an execution was recorded: codes that are journaled and compared, and their sentences.

A `Difference` is data. A sentence is made from it when a person is told, and only here: rewording one changes no
execution that was resumed before.
"""

# old sentences: those of our own that are in journals

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

DifferenceCode = Literal[
    "engine_changed", "folder_changed", "tool_missing", "tool_changed", "effect_changed", "function_missing",
    "kind_unknown", "program_invalid",
]  # fmt: skip


class Difference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`name` is the tool, function or kind of program it is about; `was` and `now` are what was recorded and found."""

    code: DifferenceCode
    name: str = ""
    was: str = ""
    now: str = ""

    def __str__(self) -> str:
        return _SENTENCES[self.code].format(name=self.name, was=self.was, now=self.now)

    @property
    def is_of_folder(self) -> bool:
        return self.code == "folder_changed"


_SENTENCES: dict[DifferenceCode, str] = {
    "engine_changed": "it was started by Holdfast {was}, this is Holdfast {now}",
    "folder_changed": "it was started in {was}, this is {now}",
    "tool_missing": "its tool {name} is not here",
    "tool_changed": "its tool {name} has other parameters or another version now",
    "effect_changed": "its tool {name} had the effect {was} and has {now} now",
    "function_missing": "its function {name} is not here",
    "kind_unknown": "nothing here can run a program of kind {name}",
    "program_invalid": "{now}",
}

# What was journaled before there were codes, word for word. Never edit these.
_OLD_TEXTS: dict[DifferenceCode, str] = {
    "engine_changed": "it was started by Holdfast {was}, this is Holdfast {now}",
    "folder_changed": "it was started in {was}, this is {now}",
    "tool_missing": "its tool {name} is not here",
    "tool_changed": "its tool {name} has other parameters or another version now",
    "effect_changed": "its tool {name} had the effect {was} and has {now} now",
}


def not_accepted(
    found: Iterable[Difference], accepted: Collection[Difference], old_texts: Collection[str]
) -> list[Difference]:
    """Those that no person has accepted: as data, or in an older journal as a text."""
    return [one for one in found if one not in accepted and not (old_texts and _old_text(one) in old_texts)]


def _old_text(difference: Difference) -> str | None:
    text = _OLD_TEXTS.get(difference.code)
    return text and text.format(name=difference.name, was=difference.was, now=difference.now)
