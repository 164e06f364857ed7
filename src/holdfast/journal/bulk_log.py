"""What a bulk means and how far it has come: one file for each, beside the store.

The first line says which verb, with what, for whom; it is on disk before anybody is touched. Each further line says
what became of one of them. These are written and not synced: a killed process loses none. After a power cut the last
few may be missing, and then it is the verb's own id or key for each execution that keeps it from being done twice.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from holdfast.core.error_text import quoted
from holdfast.core.errors import NotFound, Refused, StoreCorrupted, StoreUnavailable
from holdfast.journal.checkpoint_files import write_file

FOLDER = "bulks"
KNOWN_DAYS = 30  # a bulk can be gone on with for so long; who comes later looks anew
BULKS_MAX = 1000  # kept at most; the oldest go first
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Meant(msgspec.Struct, kw_only=True, frozen=True):
    """The choice: `verb` as it is typed, what was said with it, and the executions in the order they are dealt with."""

    verb: str
    said: dict[str, Any]
    filters: str  # as they were typed, for people
    executions: tuple[str, ...]


class BulkOutcome(msgspec.Struct, kw_only=True, frozen=True):
    id: str
    outcome: str


class Bulk:
    """A bulk that this process works on, and nobody else as long as it is open."""

    def __init__(self, bulk_id: str, meant: Meant, outcomes: dict[str, str], file: BinaryIO) -> None:
        self.id = bulk_id
        self.meant = meant
        self._outcomes = outcomes
        self._file = file

    def left(self) -> list[str]:
        """Who has not been dealt with. What was refused, or is queued, is not done yet."""
        return [one for one in self.meant.executions if self._outcomes.get(one) not in ("applied", "unchanged")]

    def note(self, execution_id: str, outcome: str) -> None:
        self._outcomes[execution_id] = outcome
        try:
            self._file.write(msgspec.json.encode(BulkOutcome(id=execution_id, outcome=outcome)) + b"\n")
        except OSError as error:
            raise StoreUnavailable(
                f"how far bulk {self.id} is cannot be written down: {error.strerror}; go on later with --id {self.id}"
            ) from error

    def close(self) -> None:
        self._file.close()


def begin(data_folder: Path, bulk_id: str, meant: Meant) -> Bulk:
    """Write down what is meant, and only then let it be done."""
    path = _path(data_folder, bulk_id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _tidy(path.parent)
    except OSError as error:
        raise StoreUnavailable(f"{path.parent} cannot be used: {error.strerror}; nothing was changed") from error
    write_file(path, [msgspec.json.encode(meant), b"\n"])
    return Bulk(bulk_id, meant, {}, _alone(path, bulk_id))


def go_on(data_folder: Path, bulk_id: str, verb: str) -> Bulk:
    """A bulk of this verb that was begun: a mistyped id must not begin a second one, which would do it all again."""
    path = _path(data_folder, bulk_id)
    meant = _choice(path) if _ID.fullmatch(bulk_id) and path.is_file() else None
    if meant is None or meant.verb != verb:
        raise NotFound(
            f"no such bulk: none of the last {KNOWN_DAYS} days with the id {quoted(bulk_id)} was begun here with "
            f"`holdfast {verb}`; nothing was changed. Give the id that was printed, or leave --id out to begin anew"
        )
    file = _alone(path, bulk_id)
    lines = path.read_bytes().split(b"\n")[1:]
    if lines[-1]:
        file.write(b"\n")  # a line that was cut short ends here
    return Bulk(bulk_id, meant, _outcomes(lines), file)


def _choice(path: Path) -> Meant:
    first, _, _ = path.read_bytes().partition(b"\n")
    try:
        return msgspec.json.decode(first, type=Meant)
    except msgspec.DecodeError as error:
        raise StoreCorrupted(f"{path} is damaged: {error}; nothing was changed; begin a new bulk") from error


def _outcomes(lines: Sequence[bytes]) -> dict[str, str]:
    """What is told of each, without what was cut short: that is as if it had not been told."""
    found: dict[str, str] = {}
    for line in lines:
        with suppress(msgspec.DecodeError):
            told = msgspec.json.decode(line, type=BulkOutcome)
            found[told.id] = told.outcome
    return found


def _alone(path: Path, bulk_id: str) -> BinaryIO:
    """The file, locked: a bulk that two go on with would be told twice, and some of it done twice."""
    file = open(os.open(path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)  # noqa: SIM115 -- closed with its bulk
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise Refused(f"another process goes on with bulk {bulk_id} now; nothing was changed") from None
    return file


def _path(data_folder: Path, bulk_id: str) -> Path:
    return data_folder / FOLDER / f"{bulk_id}.jsonl"


def _tidy(folder: Path) -> None:
    """Remove what nobody can go on with any more."""
    ages: list[tuple[float, Path]] = []
    for file in folder.glob("*.jsonl"):
        with suppress(FileNotFoundError):  # somebody else tidies up, too
            ages.append((time.time() - file.stat().st_mtime, file))
    for number, (age_s, file) in enumerate(sorted(ages)):
        if number >= BULKS_MAX - 1 or age_s > KNOWN_DAYS * 86400:
            file.unlink(missing_ok=True)
