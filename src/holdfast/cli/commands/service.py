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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from holdfast.cli.common.context import Flags, settings_of
from holdfast.cli.common.invocation import holdfast
from holdfast.cli.common.options import AsJson
from holdfast.cli.output.format import aside, json_line
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.cli.commands.service_units import Unit
    from holdfast.settings import Settings

Kind = Literal["systemd", "launchd"]
KINDS: tuple[Kind, ...] = ("systemd", "launchd")
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
    app.command("list")(list_)
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


def uninstall(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Its name; by default, this folder's service.")] = "",
    kind: OfKind = "",
    as_json: AsJson = False,
) -> int:
    """Stop the worker that the system keeps for a folder, and remove its file. Executions are left as they are.

    The folder may be gone: then name it with -C, or the service by its name.

    \b
    Example:
      holdfast service uninstall
      holdfast service uninstall holdfast-report-1f3a9c02
    """
    unit = _named(name, _kind(kind)) if name else _of_folder(context, kind)
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
        none = f"there is no service for this folder ({unit.file}); {holdfast()} service list shows all"
        print(f"removed {unit.file}" if was_there else none)
    return 0


def list_(kind: OfKind = "", as_json: AsJson = False) -> int:
    """List the services of this user, each with its folder, whether or not that is still there.

    \b
    Example:
      holdfast service list
    """
    from holdfast.cli.commands.service_units import installed

    found: list[dict[str, Any]] = [
        {**_wire(unit), "folder": folder or None, "folder_exists": os.path.isdir(folder), "runs": _runs(unit)}
        for unit, folder in installed(_kind(kind), os.environ)
    ]
    if as_json:
        print(json_line(found))
        return 0
    for one in found:
        gone = "" if one["folder_exists"] else f"; that is gone: {holdfast()} service uninstall {one['name']}"
        print(f"{one['name']}: {_RUNS[one['runs']]}, for {one['folder'] or 'an unknown folder'}{gone}")
    if not found:
        aside("there are no services; write one for a folder with: holdfast service install", as_json)
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
        print(f"there is no service for this folder; write one with: {holdfast()} service install")
        return 0
    print(f"{unit.name}: {_RUNS[found['runs']]}")
    print(
        unit.file if found["up_to_date"] else f"{unit.file} is out of date; write it anew: {holdfast()} service install"
    )
    return 0


_RUNS = {True: "it runs", False: "it does not run", None: "whether it runs cannot be asked here"}


# ---- the file and its keeper ---------------------------------------------------------------------------------------


def _kind(kind: str) -> Kind:
    wanted = kind or ("launchd" if sys.platform == "darwin" else "systemd")
    if wanted not in KINDS:
        raise UsageError(f'--kind: expected systemd or launchd, got "{kind}"')
    return wanted


def _named(name: str, kind: Kind) -> Unit:
    from holdfast.cli.commands.service_units import installed, plain_name

    known = {plain_name(one.unit.name): one.unit for one in installed(kind, os.environ)}
    try:
        return known[plain_name(name)]
    except KeyError:
        there = did_you_mean(plain_name(name), known) or "; `holdfast service list` shows what there is"
        raise UsageError(f"there is no service {name}{there}") from None


def _of_folder(context: typer.Context, kind: str) -> Unit:
    """The service of this folder, or of one that is gone, of which nothing but its name is left."""
    from holdfast.cli.commands.service_units import service_name, unit_named

    flags: Flags = context.obj
    try:
        folder = os.path.abspath(flags.folder or os.getcwd())
    except FileNotFoundError:
        folder = os.environ.get("PWD", "")
    if not folder or os.path.isdir(folder):
        return _unit(settings_of(context), flags, kind)
    return unit_named(_kind(kind), service_name(Path(folder)), os.environ)


def _unit(settings: Settings, flags: Flags, kind: str) -> Unit:
    from holdfast.cli.commands.service_units import Worker, unit_of

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
    return unit_of(_kind(kind), worker, os.environ)


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
