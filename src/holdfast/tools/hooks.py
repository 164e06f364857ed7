"""What a tool can do besides being called: check arguments, say how long it takes and how it is, verify, reduce, undo.

Every hook is optional, may be `def` or `async def`, and is declared with a decorator (`@fetch.verify`), an option of
`@tool`, or as a method of a class. Refuses what a hook may not return, naming the hook.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from holdfast.core.errors import ToolError, UsageError
from holdfast.core.failure import Category
from holdfast.tools.call import Call, DidNotHappen, Happened, Unknown, Verdict, running_call
from holdfast.tools.runtime.cancellation import NeverBegan, StillRunning
from holdfast.tools.runtime.thread_pool import pool

Hook = Callable[[Call, dict[str, Any]], Any]
HookT = TypeVar("HookT", bound=Hook)
UndoHook = Callable[[Call, dict[str, Any], Any], Any]
UndoHookT = TypeVar("UndoHookT", bound=UndoHook)
HealthHook = Callable[[], Any]
HealthHookT = TypeVar("HealthHookT", bound=HealthHook)
AboutHook = Callable[[dict[str, Any]], Any]
# What is known of the arguments when a plan is checked, and the names of those whose values come later.
JudgeHook = Callable[[dict[str, Any], frozenset[str]], Any]
AboutHookT = TypeVar("AboutHookT", bound=AboutHook)

HOOKS = ("validate", "judge", "estimate", "health", "verify", "reduce", "refresh", "undo")


class OutputInvalid(ToolError):
    """The tool returned something else than it declares. `output` is that value as JSON, if it can be kept."""

    category: Category = "logic"

    def __init__(self, message: str = "", output: bytes | None = None, *, todo: str = "") -> None:
        super().__init__(message, todo=todo)
        self.output = output
        self.has_returned = output is None


class OutputLost(ToolError):
    """The tool returned, and its answer cannot be kept."""

    category: Category = "logic"
    has_returned = True

    def __init__(self, why: str = "") -> None:
        super().__init__(f"it returned, but {why}")


class Hooked:
    """The hooks of one tool."""

    name: str

    def __init__(self) -> None:
        self._check: AboutHook | None = None
        self._judge: JudgeHook | None = None
        self._estimate: AboutHook | None = None
        self._health: HealthHook | None = None
        self._verify: Hook | None = None
        self._reduce: Hook | None = None
        self._refresh: Hook | None = None
        self._undo: UndoHook | None = None

    def declare(self, kind: str, hook: Any) -> None:
        """By the name it has as an option or as a method."""
        if not callable(hook):
            raise UsageError(f"{self.name}: {kind}: expected a function, got {hook!r}")
        setattr(self, "_check" if kind == "validate" else f"_{kind}", hook)

    # ---- declaring

    def verify(self, hook: HookT) -> HookT:
        """Declare the tool's own check: did the effect of this call happen? Returns a verdict."""
        self._verify = hook
        return hook

    def reduce(self, hook: HookT) -> HookT:
        """Declare how to ask for less when memory or disk ran short. Returns smaller arguments."""
        self._reduce = hook
        return hook

    def refresh(self, hook: HookT) -> HookT:
        """Declare how to renew credentials after a refusal."""
        self._refresh = hook
        return hook

    def undo(self, hook: UndoHookT) -> UndoHookT:
        """Declare how to take back what a call did. Gets its output, or None; may be called again after a crash."""
        self._undo = hook
        return hook

    def health(self, hook: HealthHookT) -> HealthHookT:
        """Declare how to find out whether the tool can work now: quick, harmless, and it raises if it cannot."""
        self._health = hook
        return hook

    def estimate(self, hook: AboutHookT) -> AboutHookT:
        """Declare how long a call with these arguments takes, in seconds; None if that cannot be told."""
        self._estimate = hook
        return hook

    @property
    def can_verify(self) -> bool:
        return self._verify is not None

    @property
    def can_reduce(self) -> bool:
        return self._reduce is not None

    @property
    def can_refresh(self) -> bool:
        return self._refresh is not None

    @property
    def can_undo(self) -> bool:
        return self._undo is not None

    @property
    def has_health(self) -> bool:
        return self._health is not None

    # ---- running

    async def run_verify(self, arguments: dict[str, Any], call: Call) -> Verdict:
        verdict = await self._run_hook(self._verify, "verify", arguments, call)
        if not isinstance(verdict, Happened | DidNotHappen | Unknown):
            raise OutputInvalid(
                f"{self.name}: its verify hook returned {verdict!r}; "
                "return Happened(output), DidNotHappen() or Unknown()"
            )
        return verdict

    async def run_reduce(self, arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        reduced = await self._run_hook(self._reduce, "reduce", arguments, call)
        if not isinstance(reduced, dict):
            raise OutputInvalid(
                f"{self.name}: its reduce hook returned {reduced!r}; return the smaller arguments as a dict"
            )
        return cast("dict[str, Any]", reduced)

    async def run_refresh(self, arguments: dict[str, Any], call: Call) -> None:
        await self._run_hook(self._refresh, "refresh", arguments, call)

    async def run_undo(self, arguments: dict[str, Any], output: Any, call: Call) -> None:
        undo = self._undo
        await self._run_hook(undo and _with_output(undo, output), "undo", arguments, call)

    async def run_health(self) -> None:
        """Raises what is wrong with it."""
        if self._health is not None:
            await _call(self._health)

    async def run_estimate(self, arguments: dict[str, Any]) -> float | None:
        """Seconds, by the tool's own word; None if it has none: then what its calls took so far is the best guess."""
        seconds = await _call(self._estimate, arguments) if self._estimate is not None else None
        if seconds is None:
            return None
        if not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
            raise OutputInvalid(f"{self.name}: its estimate hook returned {seconds!r}; return seconds, or None")
        return float(seconds)

    async def _run_hook(self, hook: Hook | None, kind: str, arguments: dict[str, Any], call: Call) -> Any:
        if hook is None:
            raise UsageError(f"{self.name} has no {kind} hook; declare one with @….{kind}")
        token = running_call.set(call)
        try:
            if not _is_async(hook):
                call.enter_thread(asyncio.get_running_loop())
            return await _call(hook, call, arguments)
        finally:
            running_call.reset(token)


def _is_async(hook: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(hook))


async def _call(hook: Callable[..., Any], *given: Any) -> Any:
    if _is_async(hook):
        return await hook(*given)
    try:
        return await pool.run(functools.partial(hook, *given))
    except (NeverBegan, StillRunning):
        raise asyncio.CancelledError from None


def _with_output(hook: UndoHook, output: Any) -> Hook:
    @functools.wraps(hook)
    def with_output(call: Call, arguments: dict[str, Any]) -> Any:
        return hook(call, arguments, output)

    return with_output
