"""`--detach`: a background process of its own session that drives one execution until its end, and its log.

The task is on disk before the process is started, so nothing is lost if that fails. The process stays while the
execution waits, for people too, and ends when it has ended or a person holds it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from holdfast.cli.common.context import driving_engine, settings_of, wait_for
from holdfast.cli.common.invocation import call_as, holdfast
from holdfast.cli.common.options import Id
from holdfast.cli.output.format import aside, json_line
from holdfast.cli.output.rotating_log import take_over_output
from holdfast.core.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.app import Engine
    from holdfast.engine.run import Run
    from holdfast.settings import Settings

HELD = 3  # exit code: a person has to resume it first
LOGS_KEPT = 200
START_TIMEOUT_S = 20.0  # a machine under load takes seconds to start an interpreter; then it is left to itself
REASON_BYTES_MAX = 2000  # of its last words, should it not come up

Detach = Annotated[bool, typer.Option("--detach", "-d", help="Go on in the background and answer with the id.")]


def register(app: typer.Typer) -> None:
    app.command(hidden=True)(drive)


# ---- the process in front ------------------------------------------------------------------------------------------


class Started(NamedTuple):
    """`problem` says why there is no process."""

    log: Path
    pid: int | None = None
    problem: str = ""


def check_detachable(settings: Settings, *, starts: bool, asks: bool) -> None:
    if not starts:
        raise UsageError("--detach starts it, --hold and --check do not; give one of them")
    if asks:
        raise UsageError("--step asks at this terminal, and --detach leaves it; give one of them")
    if settings.store == "memory:":
        raise UsageError("--detach: a store in memory ends with its process; use a file")


async def detach(engine: Engine, run: Run, as_json: bool) -> int:
    """Hand an execution that is on disk over to a process of its own, and say which it is."""
    from holdfast.engine.at_rest import is_undriven
    from holdfast.engine.json_view import why_held

    head = await run.head()
    if head.ended_at:
        return _tell(run.id, head.status, None, f"it is {head.status} already", as_json)
    if held := why_held(head):
        _tell(run.id, head.status, None, f"it is held: {held}; go on with: holdfast resume {run.id} --detach", as_json)
        return HELD
    if not is_undriven(head, engine.is_dead):
        return _tell(run.id, head.status, None, "another process drives it already", as_json)
    started = start_process(engine.settings, run.id)
    if started.pid is None:
        onward = f"go on with: {holdfast()} resume {run.id}"
        said = f"it is on disk, but its process could not start ({started.problem}); {onward}"
        _tell(run.id, head.status, started, said, as_json)
        return 1
    said = f"process {started.pid} drives it; watch it: {holdfast()} watch {run.id}; its log: {started.log}"
    return _tell(run.id, head.status, started, said, as_json)


def _tell(execution_id: str, status: str, started: Started | None, said: str, as_json: bool) -> int:
    """The id alone goes to stdout, for `id=$(holdfast run -d …)`."""
    if as_json:
        process: dict[str, Any] = (
            {"pid": started.pid, "log": str(started.log)} if started else {"pid": None, "log": None}
        )
        print(json_line({"id": execution_id, "status": status, **process, "text": said}))
    else:
        print(execution_id, flush=True)
        aside(said, as_json=False)
    return 0


def start_process(settings: Settings, execution_id: str) -> Started:
    """Start it, and wait until it says that it drives, or ends."""
    log = settings.data_folder / "logs" / f"{execution_id}.log"
    command = [sys.executable, "-P", "-m", "holdfast.cli", "drive", execution_id, "--log", str(log)]
    command += ["--called", holdfast()]
    # The store may hold a password, which has no place among arguments that everybody can list.
    environ = {**os.environ, "HOLDFAST_STORE": settings.store, "HOLDFAST_PROFILE": settings.profile}
    environ.pop("HOLDFAST_FOLDER", None)  # this process has moved there already
    ready, tell_ready = os.pipe()
    try:
        handle = _open_log(settings, log)
        process = subprocess.Popen(
            [*command, "--ready", str(tell_ready)], env=environ, pass_fds=(tell_ready,), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=handle, stderr=handle,
        )  # fmt: skip
        os.close(handle)
    except (OSError, HoldfastError) as error:
        os.close(tell_ready)
        os.close(ready)
        return Started(log, problem=str(error))
    os.close(tell_ready)
    with os.fdopen(ready, "rb") as pipe:
        came_up = not select.select([pipe], [], [], START_TIMEOUT_S)[0] or pipe.read(1)
    if came_up:
        return Started(log, process.pid)
    process.wait()
    return Started(log, problem=_last_line(log) or f"exit code {process.returncode}")


def _open_log(settings: Settings, log: Path) -> int:
    from holdfast.settings import ensure_data_folder

    ensure_data_folder(settings)
    log.parent.mkdir(exist_ok=True)
    with suppress(OSError):
        for old in sorted(log.parent.iterdir(), key=lambda path: path.stat().st_mtime)[: -2 * LOGS_KEPT]:
            old.unlink()
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _last_line(log: Path) -> str:
    with suppress(OSError):
        text = log.read_bytes()[-REASON_BYTES_MAX:].decode(errors="replace").strip()
        return text.rpartition("\n")[2].removeprefix("holdfast: ")
    return ""


# ---- the process in the background ---------------------------------------------------------------------------------


def drive(
    context: typer.Context,
    execution: Id,
    log: Annotated[str, typer.Option(help="Where what it says goes.")],
    ready: Annotated[int, typer.Option(help="A descriptor to write to as soon as it drives.")],
    called: Annotated[str, typer.Option(help="How the commands that it prints begin.")] = "holdfast",
) -> int:
    """Drive one execution without a terminal; `--detach` starts this.

    \b
    Example:
      holdfast run report.yaml --detach
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    call_as(called)
    take_over_output(Path(log))
    settings = settings_of(context)

    async def work() -> int:
        from holdfast.cli.foreground.foreground import Foreground
        from holdfast.cli.output.views import PlainView

        async with driving_engine(settings) as engine:
            run = engine.get(execution)
            engine.drive(run.id)
            foreground = Foreground(engine, run, PlainView(), stays=True)
            os.write(ready, b"1")
            os.close(ready)
            return await foreground.drive()

    return wait_for(work())
