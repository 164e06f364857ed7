"""The engine that applications use, put together from given parts instead of from settings."""

from __future__ import annotations

from pathlib import Path
from random import Random

from holdfast.app import Engine
from holdfast.engine import engine as core_engine
from holdfast.engine.feed import Feed
from holdfast.engine.services import Clock, Limits, Pace, Services
from holdfast.journal.liveness import Liveness
from holdfast.journal.store import DeletableStore
from holdfast.journal.writer import Writer
from holdfast.programs.prepare import Preparer
from holdfast.settings import MEMORY, Settings
from holdfast.tools.registry import Registry
from holdfast.version import VERSION


class AssembledEngine(Engine):
    def __init__(
        self,
        *,
        store: DeletableStore,
        liveness: Liveness,
        registry: Registry,
        clock: Clock,
        dice: Random,
        limits: Limits,
        pace: Pace,
    ) -> None:
        self.settings = Settings(root=Path("."), store=MEMORY)
        self.preparer = Preparer(registry, self.settings.root, VERSION, clock.now_us)
        services = Services(
            store=store,
            writer=Writer(store),
            registry=registry,
            feed=Feed(),
            driver="",
            folder=self.settings.root,
            programs=self.preparer.kinds(),
            limits=limits,
            pace=pace,
            clock=clock,
            dice=dice,
            version=VERSION,
        )
        services.driver = services.new_id()
        core_engine.Engine.__init__(self, services, liveness)
