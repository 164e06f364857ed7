"""What must be the same for an execution to go on: the engine's version, the tools, the folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.events import TaskCreated
from holdfast.core.execution import Execution
from holdfast.engine.services import Services

_ELSEWHERE = "it was started in "


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
    if created.engine and services.version and _release(created.engine) != _release(services.version):
        return [f"it was started by Holdfast {created.engine}, this is Holdfast {services.version}"]
    return []


def _release(version: str) -> list[str]:
    """What may change how things work: the first number, and the second, too, before there is a 1.0."""
    parts = version.split(".")
    return parts[:2] if parts[0] == "0" else parts[:1]


def unaccepted(found: Sequence[str], *, force: bool, other_folder: bool) -> list[str]:
    """What of these a person has still to accept: force is all of it, the folder is nearly always another elsewhere."""
    return [] if force else [one for one in found if not (other_folder and is_of_folder(one))]


def is_of_folder(sentence: str) -> bool:
    return sentence.startswith(_ELSEWHERE)


def _folder(created: TaskCreated, services: Services) -> list[str]:
    if created.folder and created.folder != str(services.folder):
        return [f"{_ELSEWHERE}{created.folder}, this is {services.folder}"]
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
        elif digest and (change := change_of_tool(digest, services.registry.get(name).signature_digest)):
            sentences.append(f"its tool {name} {change}")
    return sentences


def change_of_tool(recorded: str, today: str) -> str:
    """Between two digests of a tool; the effect counts if both tell it."""
    was, _, effect_was = recorded.partition(".")
    now, _, effect_now = today.partition(".")
    if was != now:
        return "has other parameters or another version now"
    if effect_was and effect_now and effect_was != effect_now:
        return f"had the effect {effect_was} and has {effect_now} now"
    return ""
