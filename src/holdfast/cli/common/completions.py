"""What a shell may offer for a word that is being typed: ids, step paths, labels, programs, tools, profiles.

Each answers from what lies on this disk, at once, and imports nobody's modules. A shared database is not asked: it may
be far away. Imports happen inside, because every command's options name these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from holdfast.journal.store import Head
    from holdfast.settings import Settings

IDS_MAX = 100
FILES_MAX = 1000
# What a step must be asking for to be named in these commands; others take any step.
_ASKED = {"approve": {"approval"}, "deny": {"approval"}, "answer": {"question"}, "resolve": {"doubt", "correction"}}

Candidates = Iterator[tuple[str, str]]


# ---- of the journal ------------------------------------------------------------------------------------------------


def ids(context: typer.Context, incomplete: str) -> Candidates:
    """Whole ids; or their ends, which is what a list at the terminal shows."""
    heads = _heads(context)
    if "@last".startswith(incomplete) and heads:
        yield "@last", "the newest"
    yield from _ids_of(heads, incomplete)


def parts_of_ids(context: typer.Context, incomplete: str) -> Candidates:
    """For filters, to which `@last` is no part of an id."""
    yield from _ids_of(_heads(context), incomplete)


def set_aside(context: typer.Context, incomplete: str) -> Candidates:
    yield from _ids_of([head for head in _heads(context) if head.quarantined], incomplete)


def steps(context: typer.Context, incomplete: str) -> Candidates:
    """The steps of the execution that was named before; only those that ask, where only they can be meant."""
    from holdfast.journal.readonly import state_of

    named = context.params.get("execution")
    state = state_of(_journal(context), str(named)) if named else None
    wanted = _ASKED.get(context.info_name or "")
    if state is None:
        return
    asking = {asked.request.path for asked in state.open_requests() if asked.request.kind in (wanted or ())}
    for path, step in state.steps.items():
        if path.startswith(incomplete) and (wanted is None or path in asking):
            yield path, step.status


def asking_steps(context: typer.Context, incomplete: str) -> Candidates:
    """Where filters take the ID's place: the steps at which anybody waits."""
    yield from _said(context, incomplete, lambda head: (reason.path for reason in head.reasons), "asks now")


def failed_steps(context: typer.Context, incomplete: str) -> Candidates:
    yield from _said(context, incomplete, lambda head: [head.failed_path], "failed")


def names(context: typer.Context, incomplete: str) -> Candidates:
    yield from _said(context, incomplete, lambda head: [head.name], "a program that ran")


def owners(context: typer.Context, incomplete: str) -> Candidates:
    yield from _said(context, incomplete, lambda head: [head.owner], "an owner")


def labels(context: typer.Context, incomplete: str) -> Candidates:
    """Names first; with the `=`, the values that this label has."""
    if "=" in incomplete:
        yield from _said(context, incomplete, lambda head: (f"{k}={v}" for k, v in head.labels.items()), "a label")
    else:
        yield from _said(context, incomplete, lambda head: (f"{k}=" for k in head.labels), "a label")


def statuses(incomplete: str) -> list[str]:
    from holdfast.cli.output.format import STATUS_COLOURS

    return [status for status in (*STATUS_COLOURS, "held") if status.startswith(incomplete)]


def _heads(context: typer.Context) -> list[Head]:
    from holdfast.journal.readonly import recent_heads

    return recent_heads(_journal(context), IDS_MAX)


def _ids_of(heads: Iterable[Head], incomplete: str) -> Candidates:
    for head in heads:
        text = f"{head.status}  {head.title or head.name}"
        if head.id.startswith(incomplete):
            yield head.id, text
        elif (end := head.id.rpartition("-")[2]).startswith(incomplete):
            yield end, text


def _said(context: typer.Context, incomplete: str, of: Callable[[Head], Iterable[str]], about: str) -> Candidates:
    """What the newest executions say of themselves, each word once."""
    found = dict.fromkeys(word for head in _heads(context) for word in of(head))
    yield from ((word, about) for word in found if word and word.startswith(incomplete))


# ---- of the project ------------------------------------------------------------------------------------------------


def shells(incomplete: str) -> list[str]:
    return [shell for shell in ("bash", "zsh", "fish") if shell.startswith(incomplete)]


def profiles(context: typer.Context, incomplete: str) -> Candidates:
    from holdfast.settings.discovery import find_config

    _, table = find_config(Path(context.find_root().params.get("folder") or ".").resolve())
    for name in table.get("profiles", {}):
        if name.startswith(incomplete):
            yield name, "a profile of the settings file"


def programs(context: typer.Context, incomplete: str) -> Candidates:
    """Functions of the project's modules, plan files, and folders that may hold some."""
    from holdfast.cli.common.project_index import functions_of

    for function in functions_of(_settings(context)):
        if function.name.startswith(incomplete):
            yield function.name, function.doc or "a function"
    yield from plans(incomplete)


def plans(incomplete: str) -> Candidates:
    from holdfast.programs.plan_files import NO_PLAN_ENDINGS, PLAN_ENDINGS

    folder, _, beginning = incomplete.rpartition("/")
    base = folder + "/" if folder or incomplete.startswith("/") else ""
    with os.scandir(base or ".") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name)[:FILES_MAX]:
            if not entry.name.startswith(beginning) or entry.name.startswith(".") > beginning.startswith("."):
                continue  # hidden ones only for those who begin with a dot
            if entry.is_dir():
                yield f"{base}{entry.name}/", "a folder"
            elif entry.name.endswith(PLAN_ENDINGS) and not entry.name.endswith(NO_PLAN_ENDINGS):
                yield base + entry.name, "a plan"


def plans_and_ids(context: typer.Context, incomplete: str) -> Candidates:
    """Files even where there is no journal yet."""
    yield from plans(incomplete)
    if "/" not in incomplete:
        yield from ids(context, incomplete)


def inputs(context: typer.Context, incomplete: str) -> Candidates:
    """What the program that was named before can be given."""
    from holdfast.cli.common.project_index import inputs_of

    for name, about in inputs_of(_settings(context), str(context.params.get("program") or "")):
        if name.startswith(incomplete):
            yield f"{name}=", about


def tools(context: typer.Context, incomplete: str) -> Candidates:
    """Built in, and those of the project's modules; MCP servers are not asked."""
    from dataclasses import replace

    from holdfast.app import registry_of
    from holdfast.cli.common.project_index import tools_of

    settings = _settings(context)
    for tool in tools_of(settings):
        if tool.name.startswith(incomplete):
            yield tool.name, tool.doc or "a tool"
    registry = registry_of(replace(settings, modules=()))
    for name in registry.names():
        if name.startswith(incomplete):
            yield name, registry.get(name).description.partition("\n")[0]


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
