"""What must be the same for an execution to go on: the engine's version, the tools, the folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.differences import Difference, not_accepted
from holdfast.core.events import TaskCreated
from holdfast.core.execution import Execution
from holdfast.engine.services import Services
from holdfast.tools.registry import Registry


def differences(state: Execution, services: Services) -> list[Difference]:
    """Those that no person has accepted yet."""
    created = state.facts()
    found = [*_version(created, services), *_folder(created, services), *tool_differences(created, services.registry)]
    return not_accepted(found, state.accepted_differences, state.accepted)


def differences_of_place(state: Execution, services: Services) -> list[Difference]:
    """Those that can be told without knowing the tools."""
    created = state.facts()
    found = [*_version(created, services), *_folder(created, services)]
    return not_accepted(found, state.accepted_differences, state.accepted)


def _version(created: TaskCreated, services: Services) -> list[Difference]:
    if created.engine and services.version and _release(created.engine) != _release(services.version):
        return [Difference(code="engine_changed", was=created.engine, now=services.version)]
    return []


def _release(version: str) -> list[str]:
    """What may change how things work: the first number, and the second, too, before there is a 1.0."""
    parts = version.split(".")
    return parts[:2] if parts[0] == "0" else parts[:1]


def unaccepted(found: Sequence[Difference], *, force: bool, other_folder: bool) -> list[Difference]:
    """What of these a person has still to accept: force is all of it, the folder is nearly always another elsewhere."""
    return [] if force else [one for one in found if not (other_folder and one.is_of_folder)]


def only_of_folder(found: Sequence[Difference]) -> bool:
    return all(one.is_of_folder for one in found)


def _folder(created: TaskCreated, services: Services) -> list[Difference]:
    if created.folder and created.folder != str(services.folder):
        return [Difference(code="folder_changed", was=created.folder, now=str(services.folder))]
    return []


def home_elsewhere(state: Execution, services: Services) -> str:
    """The folder it was started in, if that is another one and still there: a worktree's twin, or a moved copy's."""
    folder = state.facts().folder
    return folder if _folder(state.facts(), services) and Path(folder).is_dir() else ""


def tool_differences(created: TaskCreated, registry: Registry) -> list[Difference]:
    known = set(registry.names())
    found: list[Difference] = []
    for name, digest in sorted(created.tools.items()):
        if name not in known:
            found.append(Difference(code="tool_missing", name=name))
        elif digest:
            found += changes_of_tool(name, digest, registry.get(name).signature_digest)
    return found


def changes_of_tool(name: str, recorded: str, today: str) -> list[Difference]:
    """Between two digests of a tool; the effect counts if both tell it."""
    was, _, effect_was = recorded.partition(".")
    now, _, effect_now = today.partition(".")
    if was != now:
        return [Difference(code="tool_changed", name=name)]
    if effect_was and effect_now and effect_was != effect_now:
        return [Difference(code="effect_changed", name=name, was=effect_was, now=effect_now)]
    return []
