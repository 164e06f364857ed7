"""What a shell may offer for a word that is being typed: ids, step paths, statuses, programs, profiles.

Each answers from what lies on this disk, at once, and imports nobody's modules. A shared database is not asked: it may
be far away. Imports happen inside, because every command's options name these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from holdfast.settings import Settings

IDS_MAX = 100
FILES_MAX = 1000
MODULE_BYTES_MAX = 1024 * 1024
PLANS = (".yaml", ".yml", ".json")
# What a step must be asking for to be named in these commands; others take any step.
_ASKED = {"approve": {"approval"}, "deny": {"approval"}, "answer": {"question"}, "resolve": {"doubt", "correction"}}

Candidates = Iterator[tuple[str, str]]


def ids(context: typer.Context, incomplete: str) -> Candidates:
    """Whole ids; or their ends, which is what a list at the terminal shows."""
    from holdfast.journal.peek import recent_heads

    heads = recent_heads(_journal(context), IDS_MAX)
    described = {head.id: f"{head.status}  {head.title or head.name}" for head in heads}
    if "@last".startswith(incomplete) and heads:
        yield "@last", "the newest"
    for identity, text in described.items():
        if identity.startswith(incomplete):
            yield identity, text
        elif (end := identity.rpartition("-")[2]).startswith(incomplete):
            yield end, text


def steps(context: typer.Context, incomplete: str) -> Candidates:
    """The steps of the execution that was named before; only those that ask, where only they can be meant."""
    from holdfast.journal.peek import state_of

    state = state_of(_journal(context), str(context.params.get("execution") or "@last"))
    wanted = _ASKED.get(context.info_name or "")
    if state is None:
        return
    asking = {asked.request.path for asked in state.open_requests() if asked.request.kind in (wanted or ())}
    for path, step in state.steps.items():
        if path.startswith(incomplete) and (wanted is None or path in asking):
            yield path, step.status


def shells(incomplete: str) -> list[str]:
    return [shell for shell in ("bash", "zsh", "fish") if shell.startswith(incomplete)]


def statuses(incomplete: str) -> list[str]:
    from holdfast.cli.text import STATUS_COLOURS

    return [status for status in STATUS_COLOURS if status.startswith(incomplete)]


def profiles(context: typer.Context, incomplete: str) -> Candidates:
    from holdfast.settings.places import find_config

    _, table = find_config(Path(context.find_root().params.get("folder") or ".").resolve())
    for name in table.get("profiles", {}):
        if name.startswith(incomplete):
            yield name, "a profile of the settings file"


def programs(context: typer.Context, incomplete: str) -> Candidates:
    """Functions of the project's modules, plan files, and folders that may hold some."""
    for name, doc in _functions(_settings(context)):
        if name.startswith(incomplete):
            yield name, doc or "a function"
    folder, _, beginning = incomplete.rpartition("/")
    base = folder + "/" if folder or incomplete.startswith("/") else ""
    with os.scandir(base or ".") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name)[:FILES_MAX]:
            if not entry.name.startswith(beginning) or entry.name.startswith(".") > beginning.startswith("."):
                continue  # hidden ones only for those who begin with a dot
            if entry.is_dir():
                yield f"{base}{entry.name}/", "a folder"
            elif entry.name.endswith(PLANS):
                yield base + entry.name, "a plan"


def _functions(settings: Settings) -> Candidates:
    """Read off the text of the modules: running them may take long, or do something."""
    import ast

    for module in settings.modules:
        file = settings.root / (module if module.endswith(".py") else f"{module.replace('.', '/')}.py")
        try:
            text = file.read_bytes()[:MODULE_BYTES_MAX]
            found = [node for node in ast.parse(text).body if isinstance(node, ast.AsyncFunctionDef)]
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue
        for function in found:
            for name in filter(None, (_name_by(decorator, function.name) for decorator in function.decorator_list)):
                yield name, (ast.get_docstring(function) or "").partition("\n")[0]


def _name_by(decorator: Any, own: str) -> str:
    """What `@holdfast.function`, `@function` or `@function(name="…")` makes of a coroutine; "" for other decorators."""
    called = getattr(decorator, "func", decorator)
    if getattr(called, "attr", getattr(called, "id", "")) != "function":
        return ""
    named = [keyword.value.value for keyword in getattr(decorator, "keywords", ()) if keyword.arg == "name"]
    return str(named[0]) if named else own


def _settings(context: typer.Context) -> Settings:
    from holdfast.settings import load_settings

    shared = context.find_root().params
    flags = {"store": shared.get("store")}
    return load_settings(Path(shared.get("folder") or "."), os.environ, flags, shared.get("profile"))


def _journal(context: typer.Context) -> Path:
    file = _settings(context).store_file
    if file is None:
        raise FileNotFoundError("no journal on this disk")
    return file
