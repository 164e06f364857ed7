"""What must be the same for an execution to go on: the engine's version, the tools, the folder."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.events import TaskCreated
from holdfast.core.execution import Execution
from holdfast.engine.services import Services


def differences(state: Execution, services: Services) -> list[str]:
    """Sentences, one per difference that nobody has accepted yet."""
    created = state.facts()
    found = [*_version(created, services), *_folder(created, services), *_tools(created, services)]
    return [sentence for sentence in found if sentence not in state.accepted]


def differences_of_place(state: Execution, services: Services) -> list[str]:
    """Those that can be told without knowing the tools."""
    created = state.facts()
    found = [*_version(created, services), *_folder(created, services)]
    return [sentence for sentence in found if sentence not in state.accepted]


def _version(created: TaskCreated, services: Services) -> list[str]:
    recorded, ours = created.engine.split(".")[:1], services.version.split(".")[:1]
    if created.engine and services.version and recorded != ours:
        return [f"it was started by Holdfast {created.engine}, this is Holdfast {services.version}"]
    return []


def _folder(created: TaskCreated, services: Services) -> list[str]:
    if created.folder and created.folder != str(services.folder):
        return [f"it was started in {created.folder}, this is {services.folder}"]
    return []


def home_elsewhere(state: Execution, services: Services) -> str:
    """The folder it was started in, if that is another one and still there: a worktree's twin, or a moved copy's."""
    folder = state.facts().folder
    return folder if _folder(state.facts(), services) and Path(folder).is_dir() else ""


def _tools(created: TaskCreated, services: Services) -> list[str]:
    known = set(services.registry.names())
    sentences: list[str] = []
    for name, digest in sorted(created.tools.items()):
        if name not in known:
            sentences.append(f"its tool {name} is not here")
        elif digest and services.registry.get(name).signature_digest != digest:
            sentences.append(f"its tool {name} has other parameters or another version now")
    return sentences
