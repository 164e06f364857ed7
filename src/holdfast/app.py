"""Puts the rooms together: settings → store, tools, programs → an engine that can be used.

This is the `Engine` that applications import; the one in holdfast.engine knows nothing of files and settings.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core import events as ev
from holdfast.core.errors import Misconfigured
from holdfast.engine import engine as core_engine
from holdfast.engine.feed import Feed
from holdfast.engine.keeping import Recovery
from holdfast.engine.run import Run
from holdfast.engine.services import Limits, Services, SystemClock
from holdfast.journal.live import LiveRing
from holdfast.journal.liveness import InProcess, Liveness, LockFiles
from holdfast.journal.memory import MemoryStore
from holdfast.journal.postgres_address import is_postgres, open_postgres
from holdfast.journal.sqlite import SqliteStore
from holdfast.journal.store import Store
from holdfast.journal.writer import Writer
from holdfast.programs.function import Function
from holdfast.programs.prepare import Preparer, Subject
from holdfast.settings import Settings, ensure_data_folder, load_settings
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.registry import Registry
from holdfast.tools.tool import Tool
from holdfast.version import VERSION

_memory_liveness = InProcess()


class Engine(core_engine.Engine):
    """Runs tasks durably. Use it as `async with Engine() as engine`.

    Without a store it keeps its journal in `.holdfast/` of the project; `"memory:"` keeps nothing, and
    `"postgresql://…"` keeps it in a database that processes of several machines may share.
    """

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        folder: str | Path | None = None,
        settings: Settings | None = None,
        tools: Iterable[Tool[..., Any]] = (),
        functions: Iterable[Function[..., Any]] = (),
        recover: Recovery = "all",
        limits: Limits | None = None,
    ) -> None:
        flags = {"store": str(store)} if store is not None else {}
        self.settings = settings or load_settings(Path(folder or "."), os.environ, flags)
        registry = registry_of(self.settings, tools, functions)
        clock = SystemClock()
        self.preparer = Preparer(registry, self.settings.root, VERSION, clock.now_us)
        opened, liveness, ring = _open_store(self.settings)
        services = Services(
            store=opened,
            writer=Writer(opened),
            registry=registry,
            feed=Feed(ring),
            driver="",
            folder=self.settings.root,
            programs=self.preparer.kinds(),
            limits=limits or Limits(**dataclasses.asdict(self.settings.limits)),
            clock=clock,
            version=VERSION,
        )
        services.driver = services.new_id()
        super().__init__(services, liveness, recover=recover)

    async def __aenter__(self) -> Engine:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(
        self,
        program: Subject,
        *,
        inputs: Mapping[str, Any] | None = None,
        owner: str = "",
        key: str = "",
        title: str = "",
        labels: Mapping[str, str] | None = None,
        hold: bool = False,
    ) -> Run:
        """Hand a task in: a plan (a file or a mapping), or a function. When this returns, the task is on disk.

        `key` makes handing it in twice the same as once; `hold` hands it in without starting it.
        """
        created = self.preparer.prepare(
            program, inputs, owner=owner or self.settings.owner, key=key, title=title, labels=labels, hold=hold
        )
        unmet = self.preparer.unmet(program)
        if unmet:
            raise Misconfigured("\n".join(["nothing was started, because something is missing:", *unmet]))
        return await self.submit(created, program=self._open(created))

    def _open(self, created: ev.TaskCreated) -> Any:
        from holdfast.core.execution import Execution

        return self.services.programs[created.program.kind].open(created, Execution(id=""))

    async def check(self, program: Subject, *, inputs: Mapping[str, Any] | None = None) -> list[str]:
        """Check a task without starting it: raises for mistakes, returns what this machine lacks, as sentences."""
        self.preparer.prepare(program, inputs)
        return self.preparer.unmet(program)

    async def retry(
        self,
        execution_id: str,
        *,
        from_step: str = "",
        program: Subject | None = None,
        inputs: Mapping[str, Any] | None = None,
        by: str = "",
    ) -> Run:
        """Run again what did not complete, or everything from a step on; with another plan or other inputs if given."""
        replacing = None
        if program is not None or inputs:
            replacing = await self._replaced(execution_id, program, inputs or {})
        return await self.fork(execution_id, at=from_step, replacing=replacing, by=by)

    async def _replaced(self, execution_id: str, program: Subject | None, inputs: Mapping[str, Any]) -> ev.TaskCreated:
        created = (await self.get(execution_id).state()).facts()
        merged = {**msgspec.json.decode(created.inputs), **inputs}
        subject: Subject = program if program is not None else _subject_of(created)
        return self.preparer.prepare(subject, merged, owner=created.owner, labels=created.labels)


def _subject_of(created: ev.TaskCreated) -> Subject:
    if created.program.kind == "plan":
        return msgspec.json.decode(created.program.source)
    return created.program.name


def registry_of(
    settings: Settings, tools: Iterable[Tool[..., Any]] = (), functions: Iterable[Function[..., Any]] = ()
) -> Registry:
    """Every tool and function there is: built in, handed over, and named in the settings."""
    registry = Registry()
    for tool in (*builtin_tools(), *tools):
        registry.add(tool)
    for function in functions:
        registry.add_function(function)
    for module in settings.modules:
        registry.load_module(module, settings.root)
    return registry


def _open_store(settings: Settings) -> tuple[Store, Liveness, LiveRing | None]:
    if settings.store == "memory:":
        return MemoryStore(), _memory_liveness, None
    if is_postgres(settings.store):
        postgres = open_postgres(settings.store)
        return postgres, postgres.leases, None
    ensure_data_folder(settings)
    path = Path(settings.store)
    locks = LockFiles(path.parent / "drivers")
    store = SqliteStore(path, may_migrate=lambda: all(locks.is_dead(driver) for driver in locks.everybody()))
    return store, locks, LiveRing(path.with_name("live.db"))
