"""Where in somebody's own code an error came from that no tool meant to raise.

A `ToolError` says what is wrong in words made for people; anything else is probably a bug, and is found by its line.
"""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import msgspec

from holdfast.core.errors import HoldfastError, RaisedApart, ToolError
from holdfast.core.failure import Failure, describe

FRAMES_MAX = 20  # the deepest
TRACE_CHARS_MAX = 16_000
_NOT_THEIRS = (str(Path(__file__).parents[2]) + "/", sysconfig.get_path("stdlib") + "/", "<")


def place_of_bug(error: BaseException) -> str:
    """File and line of the deepest frame that is neither ours, nor Python's, nor an installed package's."""
    if isinstance(error, RaisedApart):
        return error.failure.place
    return "" if isinstance(error, ToolError | HoldfastError) else place_in_their_code(error)


def located(error: BaseException) -> tuple[Failure, str]:
    """What a function raised in its own body, with its line and its trace, unless it was raised for people to read."""
    failure = describe(error)
    place = "" if isinstance(error, ToolError) else place_in_their_code(error)
    return (msgspec.structs.replace(failure, place=place), trace_of(error)) if place else (failure, "")


def place_in_their_code(error: BaseException) -> str:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_NOT_THEIRS) and "site-packages" not in frame.filename:
            return f"{frame.filename}:{frame.lineno}"
    return ""


def trace_of(error: BaseException) -> str:
    """As Python shows it, without our own frames above the tool."""
    if isinstance(error, RaisedApart):
        return error.trace
    inner = error.__traceback__
    while inner is not None and inner.tb_next is not None and _is_ours(inner.tb_frame.f_code.co_filename):
        inner = inner.tb_next
    lines = traceback.format_exception(type(error), error, inner, limit=-FRAMES_MAX)
    return "".join(lines)[-TRACE_CHARS_MAX:]


def _is_ours(file: str) -> bool:
    return file.startswith(_NOT_THEIRS)
