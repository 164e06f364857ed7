"""Finding text in files: plain text here, regular expressions in a child that is killed when its time is up.

Only this process opens files, by the same walk as everything else, and hands their content on in batches. Refuses to
be unbounded in any direction: files, bytes, matches, line lengths and time all have a limit.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple, TypedDict

from holdfast.core.errors import InvalidCall, ToolError
from holdfast.tools.allowed_roots import shown
from holdfast.tools.files.safe_path import SafePath
from holdfast.tools.files.walk import Tree, WalkEntry
from holdfast.tools.processes.regex import NoAnswer, Request, TooSlow, match
from holdfast.tools.processes.regex_child import lines_of

SEARCH_S = 20.0  # for one search, whatever it looks for
BATCH_BYTES = 8 * 1024 * 1024  # read at a time, and held in memory
SEARCHED_BYTES_MAX = 512 * 1024 * 1024
TEXT_CHARS_MAX = 1000  # of what is looked for
SHOWN_CHARS_MAX = 300  # of a line that matches
BINARY_LOOK_BYTES = 8192  # a NUL among the first bytes makes a file binary, as for git and grep


class Match(TypedDict):
    path: str
    line: int
    text: str


class Found(TypedDict):
    matches: list[Match]
    files: int
    skipped: int
    truncated: bool


class Wanted(NamedTuple):
    text: str
    regex: bool
    ignore_case: bool
    matches_max: int


Batch = list[tuple[str, bytes]]


class Reader:
    """The content of the text files of a tree, in batches; counts what it read and what it left out."""

    def __init__(self, tree: Tree, spot: SafePath, file_bytes_max: int) -> None:
        self.files = 0
        self.skipped = 0
        self.cut = False
        self._tree = tree
        self._spot = spot
        self._file_bytes_max = file_bytes_max
        self._read_bytes = 0

    def batches(self) -> Iterator[Batch]:
        batch: Batch = []
        size = 0
        for entry in self._tree:
            if entry.kind in ("folder", "link"):
                continue
            content = self._content(entry)
            if content is None:
                self.skipped += 1
                continue
            self.files += 1
            batch.append((shown(entry.names), content))
            size += len(content)
            self._read_bytes += len(content)
            if self._read_bytes > SEARCHED_BYTES_MAX:
                self.cut = True
                break
            if size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        self.cut = self.cut or self._tree.cut
        yield batch

    def _content(self, entry: WalkEntry) -> bytes | None:
        """None for what is not a text file that may be read."""
        if not stat.S_ISREG(entry.found.st_mode) or entry.found.st_size > self._file_bytes_max:
            return None
        try:
            self._spot.grounds.check_links(entry.found, shown(entry.names))
            opened = os.open(
                entry.names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=entry.folder
            )
        except (OSError, ToolError):
            return None
        with open(opened, "rb") as file:
            if not os.path.samestat(os.fstat(opened), entry.found):
                return None
            content = file.read(self._file_bytes_max)
        return None if b"\0" in content[:BINARY_LOOK_BYTES] else content


def search(reader: Reader, wanted: Wanted) -> Found:
    """Blocks until all is found or the time is up; in a thread of its own, like every `def` tool."""
    if not wanted.text or len(wanted.text) > TEXT_CHARS_MAX:
        raise InvalidCall(f"text: expected 1 to {TEXT_CHARS_MAX} characters, got {len(wanted.text)}")
    give_up = time.monotonic() + SEARCH_S
    matches: list[Match] = []
    truncated = False
    for batch in reader.batches():
        left = wanted._replace(matches_max=wanted.matches_max + 1 - len(matches))
        if wanted.regex:
            matches += _match_in_child(batch, left, give_up - time.monotonic())
        else:
            matches += _match_here(batch, left)
        if len(matches) > wanted.matches_max or time.monotonic() > give_up:
            truncated = True
            break
    return {
        "matches": matches[: wanted.matches_max],
        "files": reader.files,
        "skipped": reader.skipped,
        "truncated": truncated or reader.cut,
    }


def _match_here(batch: Batch, wanted: Wanted) -> list[Match]:
    needle = wanted.text.casefold() if wanted.ignore_case else wanted.text
    found: list[Match] = []
    for path, content in batch:
        if not wanted.ignore_case and needle.encode() not in content:
            continue
        for number, line in lines_of(content.decode(errors="replace")):
            if needle in (line.casefold() if wanted.ignore_case else line):
                found.append(_found(path, number, line))
                if len(found) >= wanted.matches_max:
                    return found
    return found


def _match_in_child(batch: Batch, wanted: Wanted, patience_s: float) -> list[Match]:
    texts = [content.decode(errors="replace") for _, content in batch]
    request = Request(wanted.text, wanted.ignore_case, by_line=True, found_max=wanted.matches_max)
    try:
        outcome = match(texts, [request], patience_s=patience_s)
    except TooSlow:
        raise InvalidCall(
            f"text: the expression {wanted.text!r} took longer than {SEARCH_S:g} s; "
            "simplify it (nested repetitions take for ever), or search fewer files"
        ) from None
    except NoAnswer:
        raise ToolError(
            f"text: the process that searched for the expression {wanted.text!r} ended before it had answered; "
            "simplify the expression, or try again",
            without_effect=True,
        ) from None
    if outcome.error:
        raise InvalidCall(f"text: {wanted.text!r} is not a regular expression: {outcome.error}")
    lines = {index: dict(lines_of(texts[index])) for index, _ in outcome.found}
    return [_found(batch[index][0], number, lines[index][number]) for index, number in outcome.found]


def _found(path: str, number: int, line: str) -> Match:
    return {"path": path, "line": number, "text": line[:SHOWN_CHARS_MAX]}
