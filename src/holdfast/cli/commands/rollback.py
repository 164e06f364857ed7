"""`holdfast rollback`: take back what an execution, or one step of it, did to files; and what other tools can undo.

The journal says what happened, and undoing does not make that untrue: it is told which steps were undone, so that a
retry runs them again. Refuses to work beside a
driver, which could change the same files at the same moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from holdfast.cli.common import completions
from holdfast.cli.common.context import bare_engine, settings_of, wait_for
from holdfast.cli.common.invocation import holdfast
from holdfast.cli.common.options import AsJson, Id, not_empty
from holdfast.cli.output.format import json_line
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import NotFound, Refused

if TYPE_CHECKING:
    from holdfast.core.execution import Execution, Step
    from holdfast.engine.engine import Engine
    from holdfast.settings import Settings
    from holdfast.tools.call import Call
    from holdfast.tools.files.rollback import Rollback, Undoing
    from holdfast.tools.registry import Registry
    from holdfast.tools.secrets.vault import Vault
    from holdfast.tools.tool import Tool

FAMILY = "files."
_DONE = {"restore": "restored", "remove": "removed", "move_back": "moved back", "nothing": "is as it was"}


ALREADY = "already undone: every file is as it was before"


def register(app: typer.Typer) -> None:
    app.command()(rollback)


def rollback(
    context: typer.Context,
    execution: Id,
    step: Annotated[
        str,
        typer.Argument(
            metavar="[STEP]",
            help="Only this step, and the steps inside it.",
            autocompletion=completions.steps,
            callback=not_empty,
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also where somebody changed a file since.")] = False,
    as_json: AsJson = False,
) -> int:
    """Undo what an execution changed, newest first: files, and what other tools know how to undo.

    \b
    Example:
      holdfast rollback @last --dry-run
      holdfast rollback @last publish
    """
    settings = settings_of(context)

    async def work() -> tuple[list[dict[str, Any]], str]:
        async with bare_engine(settings) as engine:
            run = await engine.find(execution)
            state = await run.state()
            await _check_at_rest(engine, state)
            work = await _gather(engine, settings, state, step)
            why = ALREADY if work.files.was_undone else _why_nothing(state, step)
            done = await work.do(dry_run=dry_run, force=force)
            if not dry_run:
                await _tell(engine, state, work.files.undone_keys(), _undone_by_hooks(done))
            return done, why

    done, why = wait_for(work())
    if as_json:
        print(json_line(done))
    else:
        lines = [_line(item, dry_run) for item in done]
        if not any(item["path"] for item in done):
            lines += [why] if why else [] if lines else ["nothing to undo"]
        print("\n".join(lines))
    return 1 if any(item["problem"] for item in done) and not dry_run else 0


async def _tell(engine: Engine, state: Execution, keys: frozenset[str], paths: set[str]) -> None:
    """A retry runs again what was undone; also what another rollback, which was killed, could not say any more."""
    for step in state.steps.values():
        if not step.undone and (step.path in paths or _key_of(state, step) in keys):
            await engine.command(state.id, "undone", step=step.path)


def _undone_by_hooks(done: list[dict[str, Any]]) -> set[str]:
    return {item["step"] for item in done if item["action"] == "undo" and not item["problem"]}


def _key_of(state: Execution, step: Step) -> str:
    """The idempotency key of its calls, which may have come from another execution."""
    from holdfast.core.execution import call_key

    return step.call_key or call_key(state.id, step.path)


async def _check_at_rest(engine: Engine, state: Execution) -> None:
    from holdfast.engine.at_rest import is_undriven

    head = await engine.get(state.id).head()
    await engine.services.store.drivers()  # which lets a database say who of them is alive
    if is_undriven(head, engine.is_dead):
        return
    if head.status in ("queued", "running") or any(found.status == "running" for found in state.steps.values()):
        raise Refused(
            f"{state.id} is being driven and may change files at any moment; nothing was undone. "
            f"Hold it first, with: {holdfast()} pause {state.id}"
        )


def _why_nothing(state: Execution, step: str) -> str:
    """Files were changed, but what they were before is not here: it does not travel, and does not stay for ever."""
    changing = [found for found in _within(state, step) if found.tool.startswith(FAMILY) and found.effect != "read"]
    changed = [found.path for found in changing if found.failure is None or found.failure.happened != "nothing"]
    if not changed:
        return ""
    return (
        f"nothing to undo: {changed[0]} has changed files, but what they were before is not kept here; it stays on the "
        "machine where it ran, is not in exported files or backups, and goes when its space is used up or it is deleted"
    )


class Hook(NamedTuple):
    """A step whose tool is not of the files family, and what it was called with."""

    step: Step
    tool: Tool[..., Any] | None
    call: Call
    arguments: bytes
    output: bytes


class RollbackWork(NamedTuple):
    """Everything that is to be undone."""

    files: Rollback
    hooks: list[Hook]
    secrets: Vault

    async def do(self, *, dry_run: bool, force: bool) -> list[dict[str, Any]]:
        planned = self.files.plan() if dry_run else self.files.checked(force=force)
        done: list[dict[str, Any]] = []
        for item in _newest_first(planned, self.hooks):
            if isinstance(item, Hook):
                done.append(_wire_hook(item))
                if item.tool is not None and item.tool.can_undo and not dry_run:
                    await _run_hook(item, self.secrets)
            else:
                if not dry_run:
                    self.files.undo(item)
                done.append(_wire_undoing(item, dry_run or not item.forcible))
        return done


async def _gather(engine: Engine, settings: Settings, state: Execution, step: str) -> RollbackWork:
    from holdfast.app import adapters_of, vault_of
    from holdfast.tools.files import Files

    (files,) = [adapter for adapter in adapters_of(settings) if isinstance(adapter, Files)]
    if not files.before.keeps:
        raise Refused("nothing is kept to undo changes: tools.files.before_bytes_max is 0")
    steps = _within(state, step)
    keys = {_key_of(state, found) for found in steps}
    calls = files.rollback(_call(state, "", settings), keys if step else None)
    others = [found for found in steps if found.attempt and found.tool and not found.tool.startswith(FAMILY)]
    return RollbackWork(calls, await _hooks(engine, settings, state, others), vault_of(settings))


def _within(state: Execution, step: str) -> list[Step]:
    if not step:
        return list(state.steps.values())
    if step not in state.steps:
        known = did_you_mean(step, state.steps) or f"; `holdfast show {state.id}` lists them"
        raise NotFound(f'{state.id} has no step "{step}"{known}')
    inside = (f"{step}/", f"{step}[")
    return [found for path, found in state.steps.items() if path == step or path.startswith(inside)]


def _call(state: Execution, path: str, settings: Settings, attempt: int = 1) -> Call:
    from pathlib import Path

    from holdfast.tools.call import Call, task_of

    folder = Path(state.facts().folder or settings.root)
    call = Call(state.id, path, attempt, f"{state.id}:{path}", folder)
    call.task = task_of(state.facts(), state.id)
    return call


async def _hooks(engine: Engine, settings: Settings, state: Execution, steps: list[Step]) -> list[Hook]:
    """Only what has an effect, which is what a person may wish undone."""
    acting = [step for step in steps if step.effect != "read" and not step.cached]
    if not acting:
        return []
    registry = _registry(settings, {step.tool for step in acting})
    arguments = await _arguments(engine, state.id)
    return [
        Hook(
            step,
            registry.get(step.tool) if step.tool in registry.names() else None,
            _call(state, step.path, settings, step.attempt),
            arguments.get(step.path, b"{}"),
            await _value(engine, step.output),
        )
        for step in acting
    ]


def _registry(settings: Settings, wanted: set[str]) -> Registry:
    """The user's modules are loaded only if they are needed: a broken one must not stand in the way of files."""
    from holdfast.app import registry_of
    from holdfast.cli.commands.tools import builtin_registry

    registry = builtin_registry(settings)
    return registry if wanted <= set(registry.names()) else registry_of(settings)


async def _arguments(engine: Engine, execution_id: str) -> dict[str, bytes]:
    from holdfast.core import events as ev
    from holdfast.journal.log import read_events

    return {
        event.path: await _value(engine, event.arguments)
        for _, event in await read_events(engine.services.store, execution_id, 0)
        if isinstance(event, ev.StepStarted) and event.arguments
    }


async def _value(engine: Engine, value: Any) -> bytes:
    from holdfast.journal.blobs import fetch_value

    return await fetch_value(engine.services.store, value)


async def _run_hook(hook: Hook, secrets: Vault) -> None:
    import msgspec

    from holdfast.core.secret_refs import put_in

    assert hook.tool is not None
    given = msgspec.json.decode(hook.arguments)
    if hook.step.secrets:
        given = put_in(given, await secrets.fetch(hook.step.secrets))
    arguments = hook.tool.validate(given)
    await hook.tool.run_undo(arguments, msgspec.json.decode(hook.output), hook.call)


def _newest_first(undoings: list[Undoing], hooks: list[Hook]) -> list[Undoing | Hook]:
    """Both by time; changes of files keep their order even if the clock went back between them."""
    timed: list[tuple[int, Undoing | Hook]] = [(hook.step.started_at, hook) for hook in hooks]
    at = 0
    for undoing in reversed(undoings):
        at = max(at, undoing.change.at)
        timed.append((at, undoing))
    order = sorted(range(len(timed)), key=lambda index: (timed[index][0], index), reverse=True)
    return [timed[index][1] for index in order]


# ---- for people and programs


def _wire_undoing(undoing: Undoing, shows_problem: bool) -> dict[str, Any]:
    change = undoing.change
    return {
        "step": change.step,
        "tool": change.tool,
        "path": change.path,
        "from": change.to or None,
        "action": undoing.action,
        "problem": undoing.problem if shows_problem else "",
    }


def _wire_hook(hook: Hook) -> dict[str, Any]:
    able = hook.tool is not None and hook.tool.can_undo
    return {
        "step": hook.step.path, "tool": hook.step.tool, "path": None, "from": None,
        "action": "undo" if able else "leave", "problem": "",
    }  # fmt: skip


def _line(item: dict[str, Any], dry_run: bool) -> str:
    if item["problem"]:
        return f"{item['step']}: {item['problem']}"
    if item["action"] == "leave":
        return f"{item['step']}: left as it is; {item['tool']} cannot be undone"
    if item["path"] is None:
        return f"{item['step']}: {'would be undone' if dry_run else 'undone'} by {item['tool']}"
    source = f" from {item['from']}" if item["from"] else ""
    done = f"would {item['action']}" if dry_run and item["action"] != "nothing" else _DONE[item["action"]]
    return f"{item['step']}: {done} {item['path']}{source}"
