"""The stores this user has used, so that `holdfast list --all` finds them: one small file in the user's state folder.

It is a convenience and never in the way: whatever keeps it from being read or written is passed over in silence. A
store that is gone is dropped, a password is never written down.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from holdfast.settings.schema import MEMORY, Settings

STORES_MAX = 1000  # the oldest are forgotten: nobody looks through more
FILE_BYTES_MAX = 4 * 1024 * 1024  # what is larger was not written by us


class KnownStore(NamedTuple):
    """`store` is a file, or an address without its password; `folder` is the project's."""

    store: str
    folder: str

    @property
    def is_gone(self) -> bool:
        """Of a database nobody knows without asking it."""
        return "://" not in self.store and not Path(self.store).exists()


def remember(settings: Settings, environ: Mapping[str, str] | None = None) -> None:
    """Written only when it is not known yet."""
    known = KnownStore(settings.store_shown, str(settings.root))
    if settings.store == MEMORY:
        return
    stores = read_known(environ)
    if known not in stores:
        others = [other for other in stores if other.store != known.store and not other.is_gone]
        _write([*others, known][-STORES_MAX:], environ)


def known_stores(environ: Mapping[str, str] | None = None) -> list[KnownStore]:
    """Those that are still there; the others are forgotten."""
    stores = read_known(environ)
    there = [store for store in stores if not store.is_gone]
    if there != stores:
        _write(there, environ)
    return there


def read_known(environ: Mapping[str, str] | None = None) -> list[KnownStore]:
    try:
        with _file(environ).open("rb") as file:
            found: Any = json.loads(file.read(FILE_BYTES_MAX))
        rows = cast("list[dict[str, Any]]", found["stores"])
        return [KnownStore(str(row["store"]), str(row["folder"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _write(stores: Sequence[KnownStore], environ: Mapping[str, str] | None) -> None:
    file = _file(environ)
    text = json.dumps({"stores": [store._asdict() for store in stores]}, indent=1)
    with suppress(OSError, ValueError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, fresh = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as written:
                written.write(text)
            os.replace(fresh, file)
        except BaseException:
            os.unlink(fresh)
            raise


def _file(environ: Mapping[str, str] | None) -> Path:
    environ = os.environ if environ is None else environ
    state = environ.get("XDG_STATE_HOME") or os.path.join(
        environ.get("HOME") or os.path.expanduser("~"), ".local/state"
    )
    return Path(state) / "holdfast" / "stores.json"
