"""The engine that applications use, made of given parts instead of from settings."""

from __future__ import annotations

from pathlib import Path
from random import Random

from holdfast.app import Engine
from holdfast.engine.services import Clock, Limits, Pace
from holdfast.journal.liveness import Liveness
from holdfast.journal.open import Journal
from holdfast.journal.store import DeletableStore
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
        rng: Random,
        limits: Limits,
        pace: Pace,
    ) -> None:
        settings = Settings(root=Path("."), store=MEMORY)
        preparer = Preparer(registry, settings.root, VERSION, clock.now_us)
        journal = Journal(store, liveness)
        self.assemble(settings, journal, registry, preparer, clock=clock, rng=rng, limits=limits, pace=pace)
