"""The files that make a system keep a worker running: a systemd user unit, or a launchd property list.

Pure texts: which file, what stands in it, what to type. Names are unique per project folder, and paths with spaces,
percent signs, quotes and dollars come out as they went in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["systemd", "launchd"]
NAME_CHARS_MAX = 40  # of the folder's own name within the service's
RESTART_AFTER_S = 5
STOP_EXTRA_S = 20  # beyond draining: the journal is written and everything is let go of


class Worker(NamedTuple):
    """What is to be kept running, and for which folder."""

    folder: Path
    command: Sequence[str]
    log: Path
    path: str
    drain_s: float


class Unit(NamedTuple):
    """`enable` and `disable` are what is typed to begin and to end; `ask` answers whether it runs."""

    name: str
    file: Path
    text: str
    enable: Sequence[Sequence[str]]
    disable: Sequence[Sequence[str]]
    ask: Sequence[str]


def unit_of(kind: Kind, worker: Worker, environ: Mapping[str, str]) -> Unit:
    home = Path(environ.get("HOME") or Path.home())
    name = service_name(worker.folder)
    if kind == "launchd":
        label = f"dev.holdfast.{name}"
        file = home / "Library" / "LaunchAgents" / f"{label}.plist"
        stop = ["launchctl", "unload", "-w", str(file)]
        load = ["launchctl", "load", "-w", str(file)]
        return Unit(label, file, launchd_text(label, worker), [load], [stop], ["launchctl", "list", label])
    folder = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "systemd" / "user"
    unit = f"{name}.service"
    reload = ["systemctl", "--user", "daemon-reload"]
    enable = ["systemctl", "--user", "enable", "--now", unit]
    disable = ["systemctl", "--user", "disable", "--now", unit]
    ask = ["systemctl", "--user", "is-active", unit]
    return Unit(unit, folder / unit, systemd_text(worker), [reload, enable], [disable], ask)


def service_name(folder: Path) -> str:
    """The folder's name for people, and a digest of its whole path."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.name).strip("-.")[:NAME_CHARS_MAX]
    digest = hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return "-".join(part for part in ("holdfast", readable, digest) if part)


def systemd_text(worker: Worker) -> str:
    """KillMode: only the worker is told to end, so that what it waits for while it drains is not killed under it."""
    # A name with quotes or dollars cannot be the program itself, but can be told to another one.
    needs_help = set(worker.command[0]) & set("\"'$\\")
    program, *arguments = [*(["/usr/bin/env"] if needs_help else []), *worker.command]
    command = " ".join([_quoted(program), *(_quoted(argument).replace("$", "$$") for argument in arguments)])
    return f"""\
# Written by `holdfast service install`; `holdfast service uninstall` removes it.
[Unit]
Description=Holdfast worker for {_one_line(str(worker.folder)).replace("%", "%%")}

[Service]
ExecStart={command}
Environment={_quoted(f"PATH={worker.path}")}
Restart=on-failure
RestartSec={RESTART_AFTER_S}
KillMode=mixed
TimeoutStopSec={worker.drain_s + STOP_EXTRA_S:g}

[Install]
WantedBy=default.target
"""


def _quoted(text: str) -> str:
    """One word of systemd's: C escapes within double quotes, and % doubled, which else begins a specifier."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'.replace("%", "%%")


def _one_line(text: str) -> str:
    """A backslash at the end of a line would join it with the next."""
    return " ".join(text.split()).rstrip("\\")


def launchd_text(label: str, worker: Worker) -> str:
    import plistlib

    described = {
        "Label": label,
        "ProgramArguments": [*worker.command, "--log", str(worker.log)],
        "EnvironmentVariables": {"PATH": worker.path},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_AFTER_S,
        "ExitTimeOut": int(worker.drain_s + STOP_EXTRA_S),
    }
    return plistlib.dumps(described).decode()
