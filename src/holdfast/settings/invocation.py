"""How this `holdfast` is called from any folder: what stands before the name of a command that somebody is to paste."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from holdfast.core.errors import SettingsInvalid
from holdfast.journal.postgres.address import is_postgres, parse_address
from holdfast.settings.schema import MEMORY, Settings

NAME = "holdfast"


def program() -> str:
    """`holdfast`, or its path where the name alone would start another one or none."""
    own = Path(sys.argv[0])
    if own.name != NAME:  # `python -m holdfast.cli`, or an application that has an engine of its own
        own = Path(sys.executable).with_name(NAME)
    if not own.exists():
        return f"{shlex.quote(sys.executable)} -m holdfast.cli"
    found = shutil.which(NAME)
    if found is not None and os.path.samefile(found, own):
        return NAME
    return shlex.quote(os.path.abspath(own))


def with_options(
    called: str, *, folder: str | None = None, store: str | None = None, profile: str | None = None
) -> str:
    """With the shared options, for a shell in another folder."""
    words = [called]
    if folder is not None:
        words += ["-C", shlex.quote(os.path.abspath(folder))]
    if store is not None:
        words += ["--store", shlex.quote(_store_from_anywhere(store, folder))]
    if profile is not None:
        words += ["--profile", shlex.quote(profile)]
    return " ".join(words)


def invocation(settings: Settings) -> str:
    """For a reader who may be in any folder, such as of a message that was sent."""
    said = settings.sources["store"] in ("--store", "HOLDFAST_STORE")
    return with_options(
        program(),
        folder=str(settings.root),
        store=settings.store if said else None,
        profile=settings.profile or None,
    )


def _store_from_anywhere(store: str, folder: str | None) -> str:
    """No password is shown: where there is one, libpq's own ways (PGPASSWORD, .pgpass) have to provide it."""
    if is_postgres(store):
        try:
            return parse_address(store).shown
        except SettingsInvalid:
            return "postgresql://…"
    return store if store == MEMORY else os.path.abspath(os.path.join(folder or "", store))
