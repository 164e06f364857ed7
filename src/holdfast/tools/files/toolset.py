"""The `files.*` tools, what their table in the settings may say, and those of them that only look.

Owns which tool has which effect. write_tools.py has those that change something.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import dropwhile
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from holdfast.core.errors import Misconfigured, ToolError
from holdfast.core.policy import VALUE_BYTES_MAX
from holdfast.tools.allowed_roots import AllowedRoots, checked_path, shown
from holdfast.tools.call import Call
from holdfast.tools.files import atomic_ops
from holdfast.tools.files import search as files_search
from holdfast.tools.files.os_errors import explained
from holdfast.tools.files.rollback import Rollback
from holdfast.tools.files.safe_path import DEPTH_MAX, SafePath
from holdfast.tools.files.text import named, read_bytes, read_text
from holdfast.tools.files.undo_store import BEFORE_FOLDER, SPACE_KEPT_BYTES, UndoStore
from holdfast.tools.files.walk import Tree
from holdfast.tools.files.write_tools import Changer, Count
from holdfast.tools.halved import halved
from holdfast.tools.tool import Tool, tool
from holdfast.tools.toolset import MEMORY, Adapter, ToolsetFolders

READ_BYTES_MAX = 1024 * 1024
BEFORE_BYTES_MAX = 1024 * 1024 * 1024
ENTRIES_MAX = 1000
MATCHES_MAX = 100

Depth = Annotated[int, Meta(ge=1, le=DEPTH_MAX)]
Many = Annotated[int, Meta(ge=1, le=100_000)]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Relative folders start at the execution's folder. `write` None means: wherever may be read."""

    roots: tuple[str, ...] = (".",)
    write: tuple[str, ...] | None = None
    hard_links: bool = False
    settings: bool = False  # whether the settings file may be changed, and with it what tools may do
    max_bytes: Annotated[int, Meta(ge=1, le=VALUE_BYTES_MAX)] = VALUE_BYTES_MAX
    before_bytes_max: Annotated[int, Meta(ge=0)] = BEFORE_BYTES_MAX
    free_bytes_min: Annotated[int, Meta(ge=0)] = SPACE_KEPT_BYTES


class Listed(TypedDict, total=False):
    path: str
    kind: str
    bytes: int
    digest: str


class Listing(TypedDict):
    entries: list[Listed]
    truncated: bool


class Files(Adapter):
    """Files below the allowed folders."""

    Config = Config
    config: Config

    def __init__(self, config: Config, place: ToolsetFolders) -> None:
        super().__init__(config, place)
        kept = place.data / BEFORE_FOLDER if place.store != MEMORY else None
        self.before = UndoStore(kept, config.before_bytes_max, config.free_bytes_min)
        self.changer = Changer(self.grounds, self.before, config.max_bytes)

    def tools(self) -> Sequence[Tool[..., Any]]:
        changer, undo = self.changer, self._undo
        # No breaker: a path that cannot be used is no reason to leave the disk alone.
        read: dict[str, Any] = {"effect": "read", "breaker": False, "judge": self._judge}
        once: dict[str, Any] = {
            "effect": "once", "in_doubt": "verify", "verify": changer.happened, "undo": undo, "breaker": False,
            "judge": self._judge,
        }  # fmt: skip
        deleting: dict[str, Any] = {**once, "verify": changer.deleted}
        return (
            tool(name="files.read", reduce=halved("max_bytes", READ_BYTES_MAX), **read)(self.read),
            tool(name="files.write", effect="idempotent", undo=undo, breaker=False, judge=self._judge)(changer.write),
            tool(name="files.edit", **once)(changer.edit),
            tool(name="files.move", **once)(changer.move),
            tool(name="files.delete", **deleting)(changer.delete),
            tool(name="files.list", reduce=halved("max_entries", ENTRIES_MAX), **read)(self.list_),
            tool(name="files.search", reduce=halved("max_matches", MATCHES_MAX), **read)(self.search),
        )

    def grounds(self, call: Call) -> AllowedRoots:
        return self.grounds_of(call.folder)

    def grounds_of(self, folder: Path) -> AllowedRoots:
        """What may be used, as seen from an execution's folder."""
        config = self.config
        return AllowedRoots(
            config.roots,
            config.write,
            folder,
            self.place,
            hard_links=config.hard_links,
            settings=config.settings,
        )

    def _judge(self, known: Mapping[str, Any], later: Collection[str]) -> None:
        """Paths that lead outside by their text alone. Where the others lead is known when a step walks them."""
        grounds = self.grounds_of(self.place.root)
        for name in ("path", "to"):
            if name not in known:
                continue
            path = os.path.join(grounds.folder, checked_path(known[name], name))
            after_the_first_name = dropwhile(lambda part: part in ("", ".", ".."), known[name].split("/"))
            # `..` after a name may come back from wherever a link leads, so its text says nothing.
            grounds.start(path if ".." in after_the_first_name else os.path.normpath(path), name)

    def rollback(self, call: Call, keys: Collection[str] | None = None) -> Rollback:
        """Of the call's whole execution, or of the steps with these keys."""
        return Rollback(self.before, self.grounds(call), call.execution_id, keys)

    def _undo(self, call: Call, arguments: dict[str, Any], output: Any) -> None:
        self.rollback(call, [call.key]).apply()

    def read(self, path: str, call: Call, max_bytes: Count = READ_BYTES_MAX) -> str:
        """Read a UTF-8 text file."""
        limit = min(max_bytes, self.config.max_bytes)
        with explained(named(call, path)), SafePath(self.grounds(call), checked_path(path)) as spot:
            return read_text(read_bytes(spot, limit), spot.path)

    def list_(
        self,
        call: Call,
        path: str = ".",
        pattern: str = "*",
        depth: Depth = 1,
        max_entries: Many = ENTRIES_MAX,
        digests: bool = False,
    ) -> Listing:
        """List a folder, sorted: names that fit a pattern, so many folders deep."""
        entries: list[Listed] = []
        with explained(named(call, path)), SafePath(self.grounds(call), checked_path(path)) as spot:
            if spot.stat() is None:
                raise Misconfigured(f"no folder at {spot.path}; correct the path")
            tree = Tree(spot, pattern, depth)
            for entry in tree:
                if len(entries) == max_entries:
                    return {"entries": entries, "truncated": True}
                listed: Listed = {"path": shown(entry.names), "kind": entry.kind}
                if entry.kind == "file":
                    listed["bytes"] = entry.found.st_size
                    if digests:
                        listed["digest"] = self._digest(call, os.path.join(path, *_below(spot, entry.names)))
                entries.append(listed)
        return {"entries": entries, "truncated": tree.cut}

    def _digest(self, call: Call, path: str) -> str:
        """Empty for a file that may not be read, or is gone meanwhile."""
        with suppress(OSError, ToolError), SafePath(self.grounds(call), path) as spot:
            return atomic_ops.look(spot)[0].digest
        return ""

    def search(  # noqa: PLR0917 -- one parameter per argument
        self,
        text: str,
        call: Call,
        path: str = ".",
        pattern: str = "*",
        regex: bool = False,
        ignore_case: bool = False,
        max_matches: Many = MATCHES_MAX,
    ) -> files_search.Found:
        """Find lines that hold a text, or fit a regular expression, in the text files below a folder."""
        with explained(named(call, path)), SafePath(self.grounds(call), checked_path(path)) as spot:
            if spot.stat() is None:
                raise Misconfigured(f"no file or folder at {spot.path}; correct the path")
            reader = files_search.Reader(Tree(spot, pattern, DEPTH_MAX), spot, self.config.max_bytes)
            return files_search.search(reader, files_search.Wanted(text, regex, ignore_case, max_matches))


def _below(spot: SafePath, names: tuple[str, ...]) -> tuple[str, ...]:
    found = spot.stat()
    return names if found is not None and stat.S_ISDIR(found.st_mode) else ()
