"""Holdfast runs tasks for AI agents and never loses its grip on them.

This is the whole public face. Names are loaded when first used, so that `import holdfast` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.version import VERSION as __version__

if TYPE_CHECKING:
    from holdfast.app import Engine
    from holdfast.core.errors import (
        Cancelled,
        ExecutionFailed,
        ExecutionStopped,
        HoldfastError,
        InvalidCall,
        Misconfigured,
        NotPermitted,
        RateLimited,
        Refused,
        ResourceShort,
        StepFailed,
        ToolError,
        Transient,
    )
    from holdfast.core.policy import Approval, Breaker, Fallback, Retry, StepPolicy
    from holdfast.engine.run import Run
    from holdfast.engine.services import Limits
    from holdfast.journal.store import Query
    from holdfast.programs.context import Context
    from holdfast.programs.function import function
    from holdfast.programs.plan_builder import Plan
    from holdfast.tools.call import Call, DidNotHappen, Happened, Unknown, current_call
    from holdfast.tools.object_tools import toolset
    from holdfast.tools.parameter_types import Lenient
    from holdfast.tools.tool import tool

_HOMES = {
    "holdfast.app": ("Engine",),
    "holdfast.core.errors": (
        "Cancelled",
        "ExecutionFailed",
        "ExecutionStopped",
        "HoldfastError",
        "InvalidCall",
        "Misconfigured",
        "NotPermitted",
        "RateLimited",
        "Refused",
        "ResourceShort",
        "StepFailed",
        "ToolError",
        "Transient",
    ),
    "holdfast.core.policy": ("Approval", "Breaker", "Fallback", "Retry", "StepPolicy"),
    "holdfast.engine.run": ("Run",),
    "holdfast.engine.services": ("Limits",),
    "holdfast.journal.store": ("Query",),
    "holdfast.programs.plan_builder": ("Plan",),
    "holdfast.programs.context": ("Context",),
    "holdfast.programs.function": ("function",),
    "holdfast.tools.parameter_types": ("Lenient",),
    "holdfast.tools.call": ("Call", "DidNotHappen", "Happened", "Unknown", "current_call"),
    "holdfast.tools.tool": ("tool",),
    "holdfast.tools.object_tools": ("toolset",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Approval",
    "Breaker",
    "Call",
    "Cancelled",
    "Context",
    "DidNotHappen",
    "Engine",
    "ExecutionFailed",
    "ExecutionStopped",
    "Fallback",
    "Happened",
    "HoldfastError",
    "InvalidCall",
    "Lenient",
    "Limits",
    "Misconfigured",
    "NotPermitted",
    "Plan",
    "Query",
    "RateLimited",
    "Refused",
    "ResourceShort",
    "Retry",
    "Run",
    "StepFailed",
    "StepPolicy",
    "ToolError",
    "Transient",
    "Unknown",
    "__version__",
    "current_call",
    "function",
    "tool",
    "toolset",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(home), name)
