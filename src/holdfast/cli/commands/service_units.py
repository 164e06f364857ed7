"""The files that make a system keep a worker running: a systemd user unit, or a launchd property list.

Pure texts: which file, what stands in it, what to type. Names are unique per project folder, and paths with spaces,
percent signs, quotes and dollars come out as they went in.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["systemd", "launchd"]
NAME_CHARS_MAX = 40  # of the folder's own name within the service's
RESTART_AFTER_S = 5
MISTAKE = 2  # the exit code of a worker whose settings or folder are wrong: trying again would not mend them
_LABEL = "dev.holdfast."
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


class Installed(NamedTuple):
    """A service that is there, whether or not its folder still is; "" is a folder that its file does not tell."""

    unit: Unit
    folder: str


def unit_of(kind: Kind, worker: Worker, environ: Mapping[str, str]) -> Unit:
    unit = unit_named(kind, service_name(worker.folder), environ)
    return unit._replace(text=launchd_text(unit.name, worker) if kind == "launchd" else systemd_text(worker))


def unit_named(kind: Kind, name: str, environ: Mapping[str, str]) -> Unit:
    """All that is known of a service by its name alone: everything but the text."""
    folder = _folder_of_units(kind, environ)
    if kind == "launchd":
        label = f"{_LABEL}{name}"
        file = folder / f"{label}.plist"
        stop = ["launchctl", "unload", "-w", str(file)]
        load = ["launchctl", "load", "-w", str(file)]
        return Unit(label, file, "", [load], [stop], ["launchctl", "list", label])
    unit = f"{name}.service"
    reload = ["systemctl", "--user", "daemon-reload"]
    enable = ["systemctl", "--user", "enable", "--now", unit]
    disable = ["systemctl", "--user", "disable", "--now", unit]
    ask = ["systemctl", "--user", "is-active", unit]
    return Unit(unit, folder / unit, "", [reload, enable], [disable], ask)


def _folder_of_units(kind: Kind, environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME") or Path.home())
    if kind == "launchd":
        return home / "Library" / "LaunchAgents"
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "systemd" / "user"


def installed(kind: Kind, environ: Mapping[str, str]) -> list[Installed]:
    """Every service of ours that this user has, by name."""
    pattern = f"{_LABEL}holdfast-*.plist" if kind == "launchd" else "holdfast-*.service"
    found: list[Installed] = []
    for file in sorted(_folder_of_units(kind, environ).glob(pattern)):
        with suppress(OSError):
            folder = _folder_in(kind, file.read_bytes())
            found.append(Installed(unit_named(kind, plain_name(file.name), environ), folder))
    return found


def plain_name(name: str) -> str:
    """As people may call it: with or without what the system puts around it."""
    return name.removeprefix(_LABEL).removesuffix(".service").removesuffix(".plist")


def _folder_in(kind: Kind, text: bytes) -> str:
    try:
        if kind == "launchd":
            import plistlib

            typed = plistlib.loads(text)["ProgramArguments"]
            return str(typed[typed.index("-C") + 1])
        told = re.search(rb"^# folder: (.*)$", text, re.MULTILINE)
        return str(json.loads(told[1])) if told else ""
    except Exception:  # whatever somebody made of it: it can still be removed by its name
        return ""


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
# folder: {json.dumps(str(worker.folder))}
[Unit]
Description=Holdfast worker for {_one_line(str(worker.folder)).replace("%", "%%")}

[Service]
ExecStart={command}
Environment={_quoted(f"PATH={worker.path}")}
Restart=on-failure
RestartPreventExitStatus={MISTAKE}
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
