"""A full-text index of the text files below a folder: what `search.web` asks when no provider is set up.

Owns one SQLite file with an FTS5 table, brought up to date before each search by looking at sizes and times. It can be
thrown away at any moment and is made anew, also when it is damaged. It holds what the files say, so nobody but its
owner may read it. Runs in a thread: nothing here is asynchronous.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.errors import Misconfigured, NotPermitted, ToolError, Transient
from holdfast.tools.allowed_roots import AllowedRoots, identity

FILE_BYTES_MAX = 1024 * 1024  # of one file; larger ones are not indexed
FILES_MAX = 20_000
SNIPPET_WORDS = 24
WORDS_MAX = 32  # of a query
BUSY_MS = 5000  # to wait for whoever else is at the index; what it does is not lost on us
NAMES_MAX = 1_000_000  # of one file, where hard links are allowed: as good as any number
_NO_PART_OF_WORDS = {ord('"'): " ", 0: " "}  # to FTS5, a word ends with either
_PASSED_OVER = frozenset({"node_modules", "__pycache__"})

_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, size INTEGER NOT NULL, changed INTEGER NOT NULL);
CREATE VIRTUAL TABLE IF NOT EXISTS pages USING fts5(
    path UNINDEXED, title, body, tokenize='unicode61 remove_diacritics 2'
);
"""
_KNOWN = "SELECT path, size, changed FROM files"
_FIND = """
SELECT path, title, snippet(pages, 2, '', '', '…', ?) FROM pages WHERE pages MATCH ?
ORDER BY bm25(pages, 0, 4, 1) LIMIT ?
"""


class FolderIndex:
    """`grounds` are the folders that may be read; what is outside them is passed over, as by `files.*`."""

    def __init__(self, folder: Path, file: Path, grounds: AllowedRoots | None = None) -> None:
        self.folder = folder
        self._file = file
        self._grounds = grounds

    def search(self, query: str, limit: int) -> list[dict[str, str]]:
        """Files that hold every word of the query, the best first."""
        if not self.folder.is_dir():
            raise Misconfigured(f"tools.search: there is no folder {self.folder} to search; correct the setting")
        if self._grounds is not None and not self._grounds.leads_to(str(self.folder)):
            raise NotPermitted(
                f"tools.search: {self.folder} is outside the folders that may be read; allow it in tools.files.roots"
            )
        words = " ".join(f'"{word}"' for word in query.translate(_NO_PART_OF_WORDS).split()[:WORDS_MAX])
        if not words:
            return []
        found = self._asked(words, limit)
        return [
            {"title": title, "url": (self.folder / path).as_uri(), "snippet": snippet} for path, title, snippet in found
        ]

    def _asked(self, words: str, limit: int) -> list[tuple[str, str, str]]:
        import apsw

        try:
            try:
                return self._found(words, limit)
            except (apsw.NotADBError, apsw.CorruptError):
                self._empty()
                return self._found(words, limit)
        except (apsw.BusyError, apsw.LockedError) as error:
            raise Transient(
                f"the index of {self.folder} is being brought up to date by somebody else; ask again",
                without_effect=True,
            ) from error
        except apsw.Error as error:
            raise ToolError(
                f"the index of {self.folder} cannot be used: {error}; remove {self._file}, it is made anew"
            ) from error

    def _found(self, words: str, limit: int) -> list[tuple[str, str, str]]:
        connection = self._opened()
        try:
            connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF")  # it can always be made anew
            connection.execute(_SCHEMA)
            self._bring_up_to_date(connection)
            return connection.execute(_FIND, (SNIPPET_WORDS, words, limit)).fetchall()
        finally:
            connection.close()

    def _empty(self) -> None:
        """In SQLite's own way, which others who have it open survive; to remove the file would damage theirs."""
        import apsw

        connection = self._opened()
        try:
            connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
            connection.execute("VACUUM")
        finally:
            connection.close()

    def _opened(self) -> Any:
        import apsw

        self._keep_private()
        connection: Any = apsw.Connection(str(self._file))
        connection.set_busy_timeout(BUSY_MS)
        return connection

    def _keep_private(self) -> None:
        """Also what an earlier version left open to others. SQLite gives the files beside it the rights of this one."""
        from holdfast.journal.sqlite.connection import ensure_private

        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        ensure_private(self._file)
        for path, mode in ((self._file.parent, 0o700), (self._file, 0o600)):
            with suppress(OSError):  # somebody else's: not ours to say
                if path.stat().st_mode & 0o077:
                    path.chmod(mode)

    def _bring_up_to_date(self, connection: Any) -> None:
        with connection:
            known = {path: (size, changed) for path, size, changed in connection.execute(_KNOWN)}
            for found in _files_below(self.folder, self._grounds):
                if known.pop(found.path, None) != (found.size, found.changed):
                    self._forget(connection, found.path)
                    self._learn(connection, found)
            for path in known:  # what is left was not found any more
                self._forget(connection, path)

    def _forget(self, connection: Any, path: str) -> None:
        connection.execute("DELETE FROM pages WHERE path = ?", (path,))
        connection.execute("DELETE FROM files WHERE path = ?", (path,))

    def _learn(self, connection: Any, found: _Found) -> None:
        text = _text_of(found)
        if text is not None:
            title = next((line.strip("# \t") for line in text.splitlines() if line.strip("# \t")), found.path)
            connection.execute("INSERT INTO pages VALUES (?, ?, ?)", (found.path, title[:200], text))
        connection.execute("INSERT INTO files VALUES (?, ?, ?)", (found.path, found.size, found.changed))


class _Found(NamedTuple):
    """A file, by its name in a folder that is open as long as it is looked at."""

    path: str
    size: int
    changed: int
    folder: int
    name: str
    names_max: int  # that a file may have: one with a second name may be a file outside


def _files_below(folder: Path, grounds: AllowedRoots | None) -> Iterator[_Found]:
    """Each file that can be indexed; hidden ones and links are passed over, and no folder is reached through one."""
    seen = 0
    names_max = NAMES_MAX if grounds is not None and grounds.hard_links else 1
    for here, folders, files, opened in os.fwalk(folder, follow_symlinks=False):
        visible = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        folders[:] = sorted(name for name in visible if _may_enter(grounds, here, opened, name))
        for name in sorted(files) if grounds is None or grounds.holds(here) else ():
            path = os.path.relpath(os.path.join(here, name), folder)
            if name.startswith(".") or not _is_text(path):
                continue
            try:
                facts = os.stat(name, dir_fd=opened, follow_symlinks=False)
            except OSError:
                continue  # taken away meanwhile
            if stat.S_ISREG(facts.st_mode) and facts.st_size <= FILE_BYTES_MAX and facts.st_nlink <= names_max:
                yield _Found(path, facts.st_size, facts.st_mtime_ns, opened, name, names_max)
                seen += 1
                if seen >= FILES_MAX:
                    return


def _may_enter(grounds: AllowedRoots | None, here: str, opened: int, name: str) -> bool:
    """Whether there is something to be read in a folder, and it is not Holdfast's own."""
    if grounds is None:
        return True
    try:
        grounds.check_name(identity(os.fstat(opened)), name, name)
    except NotPermitted:
        return False
    return grounds.leads_to(os.path.join(here, name))


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:  # a name that is not UTF-8 can be neither kept nor shown
        return False
    return True


def _text_of(found: _Found) -> str | None:
    """The file's text, or None if it is not text, or something else by now: a link, a pipe, nothing."""
    try:
        opened = os.open(found.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=found.folder)
        with open(opened, "rb") as file:
            facts = os.fstat(opened)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > found.names_max:
                return None
            data = file.read(FILE_BYTES_MAX + 1)
        return None if b"\0" in data else data.decode()
    except (OSError, UnicodeDecodeError):
        return None
