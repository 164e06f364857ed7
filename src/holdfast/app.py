"""Puts the rooms together: settings → store, tools, programs → an engine that can be used.

This is the `Engine` that applications import; the one in holdfast.engine knows nothing of files and settings.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from holdfast.core import events as ev
from holdfast.core.durations import parse_duration
from holdfast.core.errors import InputInvalid, Misconfigured, SettingsInvalid
from holdfast.core.policy import Checkpoints
from holdfast.core.pressure import PressureLimits
from holdfast.core.resources import Resources, parse_size
from holdfast.core.secret_refs import read_sources
from holdfast.engine import engine as core_engine
from holdfast.engine.commands.gateway import user
from holdfast.engine.drive.scheduler import Recovery
from holdfast.engine.feed import Feed
from holdfast.engine.limits.pressure import Pressure
from holdfast.engine.notifications import Notifier
from holdfast.engine.program import ProgramKind
from holdfast.engine.retention import Retention
from holdfast.engine.run import Run
from holdfast.engine.services import Limits, Services, SystemClock
from holdfast.engine.transfer.forks import check_retry
from holdfast.journal.open import Journal, open_journal
from holdfast.journal.writer import Writer
from holdfast.settings import Settings, ensure_data_folder, load_settings
from holdfast.settings.invocation import invocation
from holdfast.settings.known_stores import remember
from holdfast.tools.isolated.import_ref import refuse_while_loading
from holdfast.tools.registry import Registry
from holdfast.tools.secrets.vault import Vault
from holdfast.tools.tool import Tool
from holdfast.tools.toolset import Adapter, ToolsetFolders
from holdfast.version import VERSION

if TYPE_CHECKING:  # what reads plans and what sends is loaded when it is needed: commands that only look do without
    from holdfast.programs.function import Function
    from holdfast.programs.prepare import Found, Preparer, Subject

log = logging.getLogger("holdfast")


class TaskOptions(TypedDict, total=False):
    """What may be said about a task besides its program and inputs; `Engine.start` describes each."""

    owner: str
    key: str
    title: str
    labels: Mapping[str, str] | None
    budget: float | Mapping[str, float] | None
    resources: Resources | Mapping[str, Any] | None
    checkpoint: Checkpoints | Mapping[str, Any] | None
    cache: bool
    by: str
    pause_timeout: float | str | None
    on_pause_timeout: ev.OnTimeout | None


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
        refuse_while_loading()
        if not isinstance(store, str | Path | None):  # pyright: ignore[reportUnnecessaryIsInstance] -- not everybody checks types
            expected = 'a path, "memory:" or "postgresql://…"'
            raise InputInvalid(f"store: expected {expected}, got {type(store).__name__} {str(store)[:80]!r}")
        settings = settings or _settings_with_warnings(Path(folder or "."), store)
        secrets = vault_of(settings)
        secrets.cover()
        registry = registry_of(settings, tools, functions, secrets)
        self.assemble(
            settings,
            open_journal(settings.store, ensure_data_folder(settings)),
            registry,
            _preparer(settings, registry, secrets),
            recover=recover,
            limits=limits or Limits(**dataclasses.asdict(settings.limits)),
            resources=_resources_of(settings),
            pressure=_pressure_of(settings),
            retention=_retention_of(settings),
            data_folder=settings.data_folder,
            secrets=secrets,
        )
        remember(settings)
        self.services.notices = _notices_of(settings, self.services)

    def assemble(
        self,
        settings: Settings,
        journal: Journal,
        registry: Registry,
        preparer: Preparer,
        *,
        recover: Recovery = "all",
        **others: Any,
    ) -> None:
        """The last step of every way to make an engine: its parts are given. `others` are more fields of `Services`."""
        self.settings = settings
        self.preparer = preparer
        services = new_services(journal, registry, settings.root, programs=preparer.kinds(), **others)
        super().__init__(services, journal.liveness, recover=recover)

    async def __aenter__(self) -> Engine:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(  # noqa: PLR0913 -- what a task may be handed in with
        self,
        program: Subject,
        *,
        inputs: Mapping[str, Any] | None = None,
        owner: str = "",
        key: str = "",
        title: str = "",
        labels: Mapping[str, str] | None = None,
        hold: bool = False,
        budget: float | Mapping[str, float] | None = None,
        resources: Resources | Mapping[str, Any] | None = None,
        checkpoint: Checkpoints | Mapping[str, Any] | None = None,
        cache: bool = True,
        by: str = "",
        pause_timeout: float | str | None = None,
        on_pause_timeout: ev.OnTimeout | None = None,
    ) -> Run:
        """Hand a task in: a plan (a file, a mapping, a `Plan`) or a function. When this returns, the task is on disk.

        `key` makes handing it in twice the same as once; `hold` hands it in without starting it. `budget` is what it
        may spend, in US dollars, in place of what its plan says; `{"usd": 0.5, "warn_at": 0.8}` also says when to warn.
        `resources` is what each of its steps may use of the machine, and under `total` all of them together, where it
        says otherwise than its plan: `{"memory": "500MB", "total": {"cpu": "10m"}}`.
        `checkpoint` says when it saves itself to a file, in place of what the plan or the settings say. Without `cache`
        every tool is asked anew; what it answers is kept for others all the same. `by` says who hands it in, where that
        is not whoever runs this process. `pause_timeout` is how long a pause may last, and `on_pause_timeout` what
        happens then, "stop" or "resume", where it says otherwise than its plan or function.
        """
        found, created = self._described(
            program, inputs, owner=owner, key=key, title=title, labels=labels, hold=hold, budget=budget,
            resources=resources, checkpoint=checkpoint, cache=cache, by=by, pause_timeout=pause_timeout,
            on_pause_timeout=on_pause_timeout,
        )  # fmt: skip
        unmet = self.preparer.unmet(found)
        if unmet:
            raise Misconfigured("\n".join(["nothing was started, because something is missing:", *unmet]))
        return await self.create(created, program=self._open(created))

    async def submit(
        self, program: Subject, *, inputs: Mapping[str, Any] | None = None, **said: Unpack[TaskOptions]
    ) -> Run:
        """Hand a task over to the workers: when this returns, the task is on disk, and nothing of it has begun.

        It takes what `start` takes, but for `hold`. The next engine that recovers (`holdfast worker`, or
        `Engine(recover="all")`) drives it. It needs what the task requires; this process does not.
        """
        _, created = self._described(program, inputs, **said)
        return await self.create(created, drive=False)

    def _described(  # noqa: PLR0913 -- as `start`
        self,
        program: Subject,
        inputs: Mapping[str, Any] | None,
        *,
        owner: str = "",
        by: str = "",
        cache: bool = True,
        checkpoint: Checkpoints | Mapping[str, Any] | None = None,
        pause_timeout: float | str | None = None,
        on_pause_timeout: ev.OnTimeout | None = None,
        **said: Any,
    ) -> tuple[Found, ev.TaskCreated]:
        """The program that is meant, and the task with everything that was said about it, checked."""
        from holdfast.core.plan.checkpoints import checkpoints_of
        from holdfast.programs.function import pause_limit_of

        found = self.preparer.find(program)
        pause_timeout_s, then = pause_limit_of(pause_timeout, on_pause_timeout)
        created = self.preparer.prepare(
            found, inputs, owner=owner or self.settings.owner, fresh=not cache, by=by or user(),
            checkpoint=checkpoints_of(checkpoint) if checkpoint is not None else None,
            pause_timeout_s=pause_timeout_s, on_pause_timeout=then, **said,
        )  # fmt: skip
        if created.checkpoint is None:
            created = msgspec.structs.replace(created, checkpoint=self.settings.checkpoint)
        return found, created

    def _open(self, created: ev.TaskCreated) -> Any:
        from holdfast.core.execution import Execution

        return self.services.programs[created.program.kind].open(created, Execution(id=""))

    async def check(self, program: Subject, *, inputs: Mapping[str, Any] | None = None) -> list[str]:
        """Check a task without starting it: raises for mistakes, returns what this machine lacks, as sentences."""
        found = self.preparer.find(program)
        self.preparer.prepare(found, inputs)
        return self.preparer.unmet(found)

    async def retry(
        self,
        execution_id: str,
        *,
        from_step: str = "",
        program: Subject | None = None,
        inputs: Mapping[str, Any] | None = None,
        resources: Resources | Mapping[str, Any] | None = None,
        again: bool = False,
        by: str = "",
    ) -> Run:
        """Run again what did not complete, or everything from a step on; with another plan, other inputs or other
        `resources` if given.

        Refused before it has ended; and, unless a step is named or `again` says so, if that was done before.
        """
        from holdfast.programs.prepare import limited
        from holdfast.programs.retry import replaced

        await check_retry(self.services.store, execution_id, again=again or bool(from_step))
        replacing = None
        if program is not None or inputs or resources:
            created = (await self.get(execution_id).state()).facts()
            replacing = limited(replaced(self.preparer, created, program, inputs or {}), resources)
        return await self.fork(execution_id, at=from_step, replacing=replacing, by=by)


# ---- the composition root: from settings to the parts of an engine --------------------------------------------------
# A new kind of part (models, runners, a server) gets a function here, named after what it makes, and is handed over in
# `Engine.__init__`. Nothing else in the project puts an engine together.


def new_services(
    journal: Journal, registry: Registry, folder: Path, programs: Mapping[str, ProgramKind] | None = None, **others: Any
) -> Services:
    """What all parts of an engine share. `others` are more fields of `Services`."""
    services = Services(
        store=journal.store,
        writer=Writer(journal.store),
        registry=registry,
        feed=Feed(journal.ring),
        driver="",
        folder=folder,
        programs=dict(programs or {}),
        version=VERSION,
        **others,
    )
    services.driver = services.new_id()
    return services


def looking_engine(settings: Settings, *, with_tools: bool = False) -> core_engine.Engine:
    """An engine that looks and commands but drives nothing. It needs tools only if what is said must fit them."""
    registry = registry_of(settings) if with_tools else Registry()
    journal = open_journal(settings.store, ensure_data_folder(settings))
    services = new_services(journal, registry, settings.root, data_folder=settings.data_folder)
    return core_engine.Engine(services, journal.liveness, recover="none")


def preparer_of(settings: Settings) -> Preparer:
    """What finds, reads and checks programs here, without a journal."""
    registry = registry_of(settings)
    registry.learn()
    return _preparer(settings, registry, vault_of(settings))


def _preparer(settings: Settings, registry: Registry, secrets: Vault) -> Preparer:
    from holdfast.programs.prepare import Preparer

    return Preparer(registry, settings.root, VERSION, SystemClock().now_us, secrets)


def vault_of(settings: Settings) -> Vault:
    return Vault(read_sources(settings.secrets), settings.root)


def registry_of(
    settings: Settings, tools: Iterable[Tool[..., Any]] = (), functions: Iterable[Function[..., Any]] = (),
    secrets: Vault | None = None,
) -> Registry:  # fmt: skip
    """Every tool and function there is: built in, handed over, and named in the settings."""
    registry = Registry()
    add_builtin(registry, settings, secrets)
    for tool in tools:
        registry.add(tool)
    for function in functions:
        registry.add_function(function)
    for module in settings.modules:
        registry.load_module(module, settings.root)
    return registry


def add_builtin(registry: Registry, settings: Settings, secrets: Vault | None = None) -> None:
    for adapter in adapters_of(settings, secrets):
        registry.add_adapter(adapter)


def adapters_of(settings: Settings, secrets: Vault | None = None) -> list[Adapter]:
    """The families of built-in tools as the settings say, none of them opened."""
    from holdfast.tools.builtin import builtin_adapters

    file = str(settings.config_file or "")
    vault = secrets or vault_of(settings)
    place = ToolsetFolders(settings.root, settings.data_folder, settings.store, file, _resources_of(settings), vault)
    return builtin_adapters(settings.tools, place, file)


def _resources_of(settings: Settings) -> Resources:
    from holdfast.core.plan.resources import resources_of

    return resources_of(dataclasses.asdict(settings.resources))


def _pressure_of(settings: Settings) -> Pressure:
    from holdfast.tools.runtime.machine_stats import read_machine

    said = dataclasses.asdict(settings.pressure)
    watch = said.pop("watch")
    sizes = {f"{name}_bytes": parse_size(said.pop(name)) for name in ("disk_tight", "disk_severe")}
    folder = settings.data_folder if settings.data_folder.exists() else settings.root
    return Pressure(partial(read_machine, folder) if watch else None, PressureLimits(**said, **sizes))


def _notices_of(settings: Settings, services: Services) -> Notifier | None:
    from holdfast.tools.notify.tool import Notify

    said = settings.notify
    notify = services.registry.family(Notify)
    if not said.channels or notify is None:
        return None
    for trouble in channel_troubles(settings, services.registry):
        raise SettingsInvalid(trouble)
    return Notifier(services, notify.tell, said.channels, said.on, said.url, invocation(settings))


def channel_troubles(settings: Settings, registry: Registry) -> Iterator[str]:
    """Which channels nothing could be told through. With any of them no engine is made."""
    from holdfast.tools.notify.tool import Notify

    notify = registry.family(Notify)
    if notify is None:
        return
    for channel in settings.notify.channels:
        try:
            notify.check_channel(channel)
        except Misconfigured as error:
            where = settings.sources["notify.channels"]
            yield f"{where}: notify.channels: {error}"


def _retention_of(settings: Settings) -> Retention | None:
    kept = settings.retention
    if not kept.older_than:
        return None
    older_than_us = int(parse_duration(kept.older_than) * 1e6)
    return Retention(older_than_us=older_than_us, status=kept.status, data_folder=settings.data_folder)


def _settings_with_warnings(folder: Path, store: str | Path | None) -> Settings:
    settings = load_settings(folder, os.environ, {"store": str(store)} if store is not None else {})
    for warning in settings.warnings:
        log.warning("%s", warning)
    return settings
