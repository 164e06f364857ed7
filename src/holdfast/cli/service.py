"""`holdfast service`: something that keeps a worker running for this folder, after a closed terminal and a reboot.

Writes a file into the user's own folders and says what to type; it runs that only when asked to.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import AsJson
from holdfast.cli.place import Flags, settings_of
from holdfast.cli.text import aside, json_line
from holdfast.core.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.cli.units import Unit
    from holdfast.settings import Settings

KINDS = ("systemd", "launchd")
CONTROL_TIMEOUT_S = 60.0  # stopping waits for the worker to drain

OfKind = Annotated[str, typer.Option("--kind", metavar="KIND", help="systemd or launchd; by default, this machine's.")]

app = typer.Typer(
    help="Keep a worker running for this folder: after a closed terminal, and after a reboot.\n\n"
    "\b\nExample:\n  holdfast service install --now\n  holdfast service status",
    rich_markup_mode=None,
)


def register(parent: typer.Typer) -> None:
    for command in (install, uninstall, status):
        app.command()(command)
    parent.add_typer(app, name="service")


def install(
    context: typer.Context,
    now: Annotated[bool, typer.Option("--now", help="Also start it, now and after every login.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the file.")] = False,
    kind: OfKind = "",
    as_json: AsJson = False,
) -> int:
    """Write a systemd user unit, or a launchd file, that runs `holdfast worker` for this folder.

    \b
    Example:
      holdfast service install --dry-run
      holdfast service install --now
    """
    settings = settings_of(context)
    unit = _unit(settings, context.obj, kind)
    if dry_run:
        print(json_line({**_wire(unit), "text": unit.text}) if as_json else unit.text, end="\n" if as_json else "")
        return 0
    _write(unit)
    for variable in sorted({source for source in settings.sources.values() if source.startswith("HOLDFAST_")}):
        aside(f"{variable} is set here and will not be there; write it into the settings file", as_json)
    if now:
        for command in unit.enable:
            try:
                _control(command)
            except UsageError as error:
                raise UsageError(f"{error}; {unit.file} was written, begin it with what you have") from None
            except _NoBus as error:
                raise HoldfastError(
                    f"{unit.file} was written, but {error}; log in to a session of your own, or "
                    "`loginctl enable-linger` as this user, and then type: "
                    + " && ".join(shlex.join(one) for one in unit.enable)
                ) from None
    if as_json:
        print(json_line({**_wire(unit), "started": now, "type": [shlex.join(command) for command in unit.enable]}))
    else:
        print(f"wrote {unit.file}")
        print("it runs now, and after every login" if now else _to_type(unit))
    return 0


def uninstall(context: typer.Context, kind: OfKind = "", as_json: AsJson = False) -> int:
    """Stop the worker that the system keeps for this folder, and remove its file. Executions are left as they are.

    \b
    Example:
      holdfast service uninstall
    """
    unit = _unit(settings_of(context), context.obj, kind)
    was_there = unit.file.exists()
    if was_there:
        for command in unit.disable if shutil.which(unit.disable[0][0]) else ():
            try:
                _control(command)
            except HoldfastError as error:
                aside(f"{error}; its file is removed all the same", as_json)
        try:
            unit.file.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{unit.file} cannot be removed: {error.strerror}") from None
    if as_json:
        print(json_line({**_wire(unit), "removed": was_there}))
    else:
        print(f"removed {unit.file}" if was_there else f"there is no service for this folder ({unit.file})")
    return 0


def status(context: typer.Context, kind: OfKind = "", as_json: AsJson = False) -> int:
    """Say whether this folder has a service, whether its file is up to date, and whether it runs.

    \b
    Example:
      holdfast service status --json
    """
    unit = _unit(settings_of(context), context.obj, kind)
    found = {**_wire(unit), "installed": unit.file.exists(), "up_to_date": _is_up_to_date(unit), "runs": _runs(unit)}
    if as_json:
        print(json_line(found))
        return 0
    if not found["installed"]:
        print("there is no service for this folder; write one with: holdfast service install")
        return 0
    print(f"{unit.name}: {_RUNS[found['runs']]}")
    print(unit.file if found["up_to_date"] else f"{unit.file} is out of date; write it anew: holdfast service install")
    return 0


_RUNS = {True: "it runs", False: "it does not run", None: "whether it runs cannot be asked here"}


# ---- the file and its keeper ---------------------------------------------------------------------------------------


def _unit(settings: Settings, flags: Flags, kind: str) -> Unit:
    from holdfast.cli.units import Worker, unit_of

    wanted = kind or ("launchd" if sys.platform == "darwin" else "systemd")
    if wanted not in KINDS:
        raise UsageError(f'--kind: expected systemd or launchd, got "{kind}"')
    command = [sys.executable, "-P", "-m", "holdfast.cli", "-C", str(settings.root)]
    if flags.store:
        if _has_password(settings.store):
            raise UsageError("--store: a password has no place in a service's file; put the address into holdfast.toml")
        command += ["--store", settings.store]
    if settings.profile:
        command += ["--profile", settings.profile]
    worker = Worker(
        folder=settings.root,
        command=[*command, "worker"],
        log=settings.data_folder / "logs" / "worker.log",
        path=os.environ.get("PATH", os.defpath),
        drain_s=settings.limits.drain_s,
    )
    return unit_of(wanted, worker, os.environ)


def _has_password(store: str) -> bool:
    from urllib.parse import parse_qs, urlsplit

    parts = urlsplit(store) if "://" in store else None
    return parts is not None and bool(parts.password or "password" in parse_qs(parts.query))


def _write(unit: Unit) -> None:
    """Whole or not at all."""
    fresh = unit.file.with_name(f"{unit.file.name}.new")
    try:
        unit.file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(unit.text, "utf-8")
        fresh.replace(unit.file)
    except (OSError, UnicodeEncodeError) as error:
        with suppress(OSError):
            fresh.unlink()
        why = error.strerror if isinstance(error, OSError) else "the folder's name is not UTF-8 text"
        raise UsageError(f"{unit.file} cannot be written: {why}; nothing was installed") from None


class _NoBus(HoldfastError):
    """systemd is not running for this user here."""


def _control(command: Sequence[str]) -> None:
    typed = shlex.join(command)
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]} is not on this machine")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CONTROL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise HoldfastError(f"`{typed}` did not end within {CONTROL_TIMEOUT_S:g} s") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().replace("\n", "; ")
        if command[0] == "systemctl" and "bus" in said:
            raise _NoBus(f"systemd is not running for this user here ({said})")
        raise HoldfastError(f"`{typed}` failed: {said or f'exit code {done.returncode}'}")


def _runs(unit: Unit) -> bool | None:
    """None if nobody here can tell."""
    if not unit.file.exists() or shutil.which(unit.ask[0]) is None:
        return None
    try:
        asked = subprocess.run(unit.ask, capture_output=True, text=True, timeout=CONTROL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if asked.returncode and "bus" in asked.stderr:
        return None  # systemd is not running for this user
    return asked.returncode == 0


def _is_up_to_date(unit: Unit) -> bool:
    try:
        return unit.file.read_text("utf-8") == unit.text
    except (OSError, UnicodeDecodeError):
        return False


def _to_type(unit: Unit) -> str:
    lines = ["begin it with:", *(f"  {shlex.join(command)}" for command in unit.enable)]
    if unit.enable[0][0] == "systemctl":
        lines += ["and, to keep it running while you are logged out:", "  loginctl enable-linger"]
    return "\n".join(lines)


def _wire(unit: Unit) -> dict[str, Any]:
    return {"name": unit.name, "file": str(unit.file)}
