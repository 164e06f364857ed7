"""`pyproject.toml`, a file of many programs: it may be changed as long as no settings of Holdfast are in it.

Refuses a change of one that has them, and one that would put them there, be it by a new content or by a new name.
"""

from __future__ import annotations

import os
import stat
import tomllib
from typing import Any, cast

from holdfast.tools.allowed_roots import holds_settings
from holdfast.tools.files.safe_path import SafePath
from holdfast.tools.files.text import read_bytes

TABLE = b"tool.holdfast"


def check_replacing(spot: SafePath, found: os.stat_result | None, data: bytes, bytes_max: int) -> None:
    """Before a file, if there is one, gets new content."""
    if not spot.grounds.may_hold_settings(spot.path):
        return
    if _has_settings(data) or (found is not None and _has_settings(read_bytes(spot, bytes_max))):
        raise holds_settings(spot.path, "holds, or would hold,")


def check_taking(spot: SafePath, found: os.stat_result, bytes_max: int, to: str = "") -> None:
    """Before a name is deleted, or becomes the name `to`. A folder of such a name holds no settings."""
    name = next((path for path in (spot.path, to) if path and spot.grounds.may_hold_settings(path)), "")
    if not name or stat.S_ISDIR(found.st_mode):
        return
    if stat.S_ISLNK(found.st_mode):  # what it leads to may become anything
        raise holds_settings(name, "is a link, or would be, that may lead to")
    if _has_settings(read_bytes(spot, bytes_max)):
        raise holds_settings(name, "holds, or would hold,")


def _has_settings(data: bytes) -> bool:
    """Also of a text that cannot be read as it is, if it names the table: no command works beside it."""
    try:
        tools: Any = tomllib.loads(data.decode()).get("tool")
    except (ValueError, RecursionError):  # the parser also lets a number too long or brackets too deep escape
        return TABLE in data
    return isinstance(tools, dict) and "holdfast" in cast("dict[str, Any]", tools)
