"""Where the values of secrets come from: a variable, a file or a command, asked at the last moment before a call.

Whatever is fetched here is masked from then on (redaction.py), wherever Holdfast writes or shows something; variables
and files already when an engine is made. Refuses to keep a value anywhere else; a command's is asked for again after a
minute, the others for every attempt.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from holdfast.core.errors import Misconfigured, ToolError, Trouble
from holdfast.core.secret_refs import (
    SECRET_BYTES_MAX,
    SECRET_CHARS_MIN,
    SecretSource,
    not_declared,
    put_in,
    typed_references,
)
from holdfast.tools.processes.spawn import spawn
from holdfast.tools.secrets.redaction import masks

COMMAND_TIMEOUT_S = 30.0  # a password manager answers at once, or asks a person who is not there
COMMAND_KEPT_S = 60.0  # a hundred steps in a row should not start a hundred password managers
SAID_CHARS_SHOWN = 200
log = logging.getLogger("holdfast")


class Vault:
    """The secrets that one engine's settings declare. Holds where they are, and for a minute what a command said."""

    def __init__(self, sources: Mapping[str, SecretSource] | None = None, root: Path = Path()) -> None:
        self._sources = dict(sources or {})
        self._root = root
        self._said: dict[str, tuple[float, str]] = {}
        self._warned: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._sources)

    async def fetch(self, names: Iterable[str]) -> dict[str, str]:
        """Their values, masked from now on. Raises Misconfigured, and then nothing has been called."""
        return {name: await self._fetch(name) for name in names}

    async def _fetch(self, name: str) -> str:
        source = self._sources.get(name)
        if source is None:
            raise Misconfigured(not_declared(name, sorted(self._sources)))
        match source.kind:
            case "env":
                value = os.environ.get(source.where[0], "")
            case "file":
                value = self._read(name, source)
                if name not in self._warned and (warning := self._open_to_others(name, source)):
                    log.warning("%s", warning)
                self._warned.add(name)
            case "command":
                value = await self._ask(name, source)
        if not value:
            raise Misconfigured(str(self._empty(name, source)))
        if too_short := _too_short(name, value):
            raise Misconfigured(str(too_short))
        masks.add(name, value)
        return value

    def can_renew(self, names: Iterable[str]) -> bool:
        """Whether another value may be had than the last one: a file's or a command's may, a variable stays."""
        return any(name in self._sources and self._sources[name].kind != "env" for name in names)

    def forget(self, names: Iterable[str], older_than_s: float = 0.0) -> None:
        """Drop what commands said, so that they are asked again; not what was asked for later than so long ago, which
        another step may have done after the same refusal."""
        for name in names:
            until, _ = self._said.get(name, (0.0, ""))
            if until - COMMAND_KEPT_S <= time.monotonic() - older_than_s:
                self._said.pop(name, None)

    def cover(self) -> None:
        """Mask what can be read at once, before anybody has asked for it: a tool may come upon it in its own way.

        A command is not run for that: it may ask a person, and most executions need none.
        """
        for name, source in self._sources.items():
            with suppress(Misconfigured):
                value = os.environ.get(source.where[0], "") if source.kind == "env" else ""
                if source.kind == "file":
                    value = self._read(name, source)
                if len(value) >= SECRET_CHARS_MIN:
                    masks.add(name, value)

    # ---- before anything starts ---------------------------------------------------------------------------------

    def missing(self, name: str) -> Trouble | None:
        """What keeps a secret from being had, as far as that can be seen without asking a command."""
        source = self._sources.get(name)
        if source is None:
            return Trouble(not_declared(name, sorted(self._sources)))
        match source.kind:
            case "env":
                value = os.environ.get(source.where[0], "")
                return _too_short(name, value) if value else self._empty(name, source)
            case "file":
                try:
                    value = self._read(name, source)
                    return _too_short(name, value) if value else self._empty(name, source)
                except Misconfigured as error:
                    return Trouble.of(error)
            case "command":
                if (
                    shutil.which(source.where[0], path=os.environ.get("PATH"))
                    or (self._root / source.where[0]).exists()
                ):
                    return None
                what = f'the secret {name} needs the program "{source.where[0]}", which is not on PATH'
                return Trouble(what, "install it")

    def warnings(self) -> list[Trouble]:
        """Files that others may read."""
        found: list[Trouble] = []
        for name, source in self._sources.items():
            if source.kind == "file" and (warning := self._open_to_others(name, source)):
                found.append(warning)
        return found

    def _open_to_others(self, name: str, source: SecretSource) -> Trouble | None:
        with suppress(OSError, RuntimeError):
            path = self._path(source)
            if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                return Trouble(f"the file of the secret {name} can be read by others: {path}", f"run: chmod 600 {path}")
        return None

    def _empty(self, name: str, source: SecretSource) -> Trouble:
        match source.kind:
            case "env":
                return Trouble(f"the secret {name} needs the environment variable {source.where[0]}", "set it")
            case "file":
                return Trouble(f"the secret {name} is empty: nothing is in the file {self._path(source)}")
            case "command":
                return Trouble(f"the secret {name} is empty: its command {source.where[0]} printed nothing")

    # ---- where they are -----------------------------------------------------------------------------------------

    def _path(self, source: SecretSource) -> Path:
        return self._root / Path(source.where[0]).expanduser()

    def _read(self, name: str, source: SecretSource) -> str:
        path = Path(source.where[0])
        try:
            path = self._path(source)
            if not stat.S_ISREG(path.stat().st_mode):  # a pipe or a device would keep everybody waiting
                raise Misconfigured(f"the secret {name}: {path} is not a file")
            with path.open("rb") as file:
                body = file.read(SECRET_BYTES_MAX + 1)
        except RuntimeError:
            raise Misconfigured(f"the secret {name}: {source.where[0]} is in the home of nobody known here") from None
        except OSError as error:
            raise Misconfigured(f"the secret {name} cannot be read: {path}: {error.strerror}") from None
        return _text(name, body)

    async def _ask(self, name: str, source: SecretSource) -> str:
        async with self._locks.setdefault(name, asyncio.Lock()):
            until, value = self._said.get(name, (0.0, ""))
            if time.monotonic() < until:
                return value
            value = await self._run(name, source)
            if value:
                self._said[name] = (time.monotonic() + COMMAND_KEPT_S, value)
            return value

    async def _run(self, name: str, source: SecretSource) -> str:
        try:
            process = await spawn(source.where, cwd=self._root, env=os.environ, stdin=b"")
        except ToolError as error:
            raise Misconfigured(f"the secret {name}: {error}") from None
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                body, said = await asyncio.gather(_bounded(process.stdout), _bounded(process.stderr))
                end = await process.wait()
        except TimeoutError:
            raise Misconfigured(
                f"the secret {name}: its command {source.where[0]} did not answer within {COMMAND_TIMEOUT_S:g} s"
            ) from None
        except ToolError as error:
            raise Misconfigured(f"the secret {name}: {error}") from None
        finally:
            process.close()
        if end.code != 0:
            text = masks.beginning(" ".join(masks.text(said.decode("utf-8", "replace")).split()), SAID_CHARS_SHOWN)
            raise Misconfigured(
                f"the secret {name}: its command {source.where[0]} failed with exit code {end.code}"
                + (f": {text}" if text else "")
            )
        return _text(name, body)


class Referring:
    """Texts of the settings in which secrets are referred to, as in a plan: `${{ secrets.NAME }}`."""

    def __init__(self, texts: Mapping[str, str], vault: Vault) -> None:
        """Raises InputInvalid if there is any other expression in them."""
        marked, names = typed_references(dict(texts))
        self._texts = cast("dict[str, str]", marked)
        self._vault = vault
        self.names = frozenset(names)

    @property
    def can_renew(self) -> bool:
        return self._vault.can_renew(self.names)

    def missing(self) -> Trouble | None:
        """What keeps them from being had, as far as that can be seen without asking a command."""
        return next((said for name in sorted(self.names) if (said := self._vault.missing(name))), None)

    async def filled(self) -> dict[str, str]:
        """The texts with their secrets. Raises Misconfigured."""
        return cast("dict[str, str]", put_in(self._texts, await self._vault.fetch(sorted(self.names))))

    def forget(self) -> None:
        self._vault.forget(self.names)


async def _bounded(stream: asyncio.StreamReader) -> bytes:
    """One byte more than a secret may have tells that it has too many; the rest is not read."""
    body = b""
    while len(body) <= SECRET_BYTES_MAX and (piece := await stream.read(SECRET_BYTES_MAX + 1 - len(body))):
        body += piece
    return body


def _too_short(name: str, value: str) -> Trouble | None:
    if len(value) >= SECRET_CHARS_MIN:
        return None
    what = f"the secret {name} has {len(value)} characters, at least {SECRET_CHARS_MIN} are needed: "
    return Trouble(what + "anything shorter is found in every text and cannot be masked", "choose a longer one")


def _text(name: str, body: bytes) -> str:
    if len(body) > SECRET_BYTES_MAX:
        raise Misconfigured(
            f"the secret {name} has more than {SECRET_BYTES_MAX:,} bytes", todo="pass the path of the file instead"
        )
    try:
        return body.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise Misconfigured(f"the secret {name} is not text", todo="pass the path of the file instead") from None
