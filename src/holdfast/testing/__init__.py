"""Shipped to users' tests: a lab for plans and functions, the replay of recorded executions, the contract of stores.

Names are loaded when first used: pytest imports this package for its plugin, whether a test needs it or not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.lab.errors import LabError, NotCrashSafe
    from holdfast.testing.lab.lab import Lab
    from holdfast.testing.lab.outcome import Outcome
    from holdfast.testing.recordings.recording import Replayed, record, replay
    from holdfast.testing.store_contract.contract import StoreContract

_HOME_OF = {
    "Lab": "lab.lab",
    "LabError": "lab.errors",
    "NotCrashSafe": "lab.errors",
    "Outcome": "lab.outcome",
    "Replayed": "recordings.recording",
    "StoreContract": "store_contract.contract",
    "record": "recordings.recording",
    "replay": "recordings.recording",
}

__all__ = ["Lab", "LabError", "NotCrashSafe", "Outcome", "Replayed", "StoreContract", "record", "replay"]


def __dir__() -> list[str]:
    return [*__all__]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    return getattr(import_module(f"holdfast.testing.{home}"), name)
