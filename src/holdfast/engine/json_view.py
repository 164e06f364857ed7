"""Events and states as the world outside sees them: plain dictionaries with fixed keys (docs/reference/events.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core import held
from holdfast.core.budget import Spend, in_usd
from holdfast.core.cards import card_of_failure, card_of_request
from holdfast.core.errors import StoreCorrupted
from holdfast.core.execution import Asked, Execution, Step, percent
from holdfast.core.failed_steps import failures_by_name, failures_in_words
from holdfast.core.resources import all_used
from holdfast.engine.at_rest import is_held_from_start
from holdfast.journal.blobs import fetch_blob, reference
from holdfast.journal.store import Head, Store

_EPOCH = datetime(1970, 1, 1)  # in UTC: a moment without a zone is written twice as fast
_MICROSECOND = timedelta(microseconds=1)
SHOWN_VALUE_BYTES_MAX = 1024 * 1024  # of one large value that is shown whole
SHOWN_BYTES_MAX = 16 * 1024 * 1024  # of all of them in one answer


class BlobReference(dict[str, object]):
    """Stands for a large value: {"holdfast": "blob", "digest": …, "bytes": …}.

    A type of its own, so that a value of the user's that looks the same is never taken for one.
    """


async def resolved(store: Store, wired: dict[str, object]) -> dict[str, object]:
    """The same, with large values in the place of their references; what is too large, or lost, stays a reference."""
    room = SHOWN_BYTES_MAX
    for holder, key, blob in _references(wired):
        size = cast(int, blob["bytes"])
        if size > min(room, SHOWN_VALUE_BYTES_MAX):
            continue
        try:
            body = await fetch_blob(store, ev.Blob(digest=str(blob["digest"]), bytes=size))
        except StoreCorrupted:
            continue  # it is the doctor who names it; the rest can be looked at
        holder[key] = msgspec.json.decode(body)
        room -= size
    return wired


def _references(wired: dict[str, object]) -> list[tuple[Any, Any, BlobReference]]:
    """Where large values are missing: what holds each, under which key."""
    found: list[tuple[Any, Any, BlobReference]] = []
    holders: list[Any] = [wired]
    while holders:
        holder = holders.pop()
        items = holder.items() if hasattr(holder, "items") else enumerate(holder)
        for key, value in cast("Iterable[tuple[Any, Any]]", items):
            if isinstance(value, BlobReference):
                found.append((holder, key, value))
            elif isinstance(value, dict | list):
                holders.append(value)
    return found


def iso(at_us: int | None) -> str | None:
    """Microseconds since 1970 as ISO 8601 in UTC; 0 and None are unknown."""
    if not at_us:
        return None
    return f"{(_EPOCH + at_us * _MICROSECOND).isoformat()}Z"


def seconds(duration_us: int | None) -> float | None:
    return None if duration_us is None else duration_us / 1e6


_TIMES = frozenset({"due_at", "until", "expires_at"})
_MICROS = "_micros"


def wire_event(task_id: str, seq: int, event: Any) -> dict[str, object]:
    wired: dict[str, object] = {
        "seq": seq,
        "at": iso(event.at),
        "type": ev.name_of(event),
        "task_id": task_id,
    }
    for name in event.__struct_fields__:
        if name not in ("at", "started_at", "duration_us"):
            key, value = _field(name, getattr(event, name))
            wired[key] = value
    if isinstance(event, ev.StepCompleted | ev.StepFailed | ev.StepRetrying | ev.StepInterrupted):
        wired["started"] = iso(event.started_at)
        wired["completed"] = iso(event.at)
        wired["duration_s"] = seconds(event.duration_us) if event.started_at else None
    failure = getattr(event, "failure", None)
    if failure is not None:
        wired["error"] = failure.message
        wired["category"] = failure.category
    return wired


def wire_frame(task_id: str, frame: Any) -> dict[str, object]:
    wired: dict[str, object] = {"seq": None, "at": iso(frame.at), "type": ev.name_of(frame), "task_id": task_id}
    for name in frame.__struct_fields__:
        if name not in ("at", "after"):
            wired[name] = plain(getattr(frame, name))
    return wired


def _field(name: str, value: Any) -> tuple[str, object]:
    """Times are told as ISO 8601, and amounts in dollars."""
    if name in _TIMES:
        return name, iso(value)
    if name.endswith(_MICROS):
        return f"{name.removesuffix(_MICROS)}_usd", None if value is None else in_usd(value)
    return name, plain(value)


def plain(value: Any) -> object:
    """Structs and raw JSON as dictionaries, lists and scalars."""
    if value is msgspec.UNSET:
        return None
    if isinstance(value, msgspec.Raw):
        if not bytes(value):
            return None
        decoded = msgspec.json.decode(value)
        return decoded if reference(value) is None else BlobReference(decoded)
    if isinstance(value, msgspec.Struct):
        return dict(_field(name, getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, tuple | list):
        return [plain(item) for item in cast("tuple[Any, ...]", value)]
    return value


def wire_head(head: Head, is_dead: Callable[[str], bool]) -> dict[str, object]:
    """One row of a list. `is_dead` tells of a driver whether its process is gone."""
    return {
        "id": head.id,
        "name": head.name,
        "title": head.title,
        "kind": head.kind,
        "status": head.status,
        "waiting_for": [reason.kind for reason in head.reasons],
        "owner": head.owner,
        "labels": head.labels,
        "parent_id": head.parent_id or None,
        "created_at": iso(head.created_at),
        "updated_at": iso(head.updated_at),
        "ended_at": iso(head.ended_at),
        "steps_ended": head.ended,
        "steps_total": max(head.total, head.ended) if head.total else None,  # `on_failure` was not counted in advance
        "error": (head.error or None) if head.status != "completed" else None,
        "failures": (head.error or None) if head.status == "completed" else None,
        "failed_step": head.failed_path or None,
        "driven": bool(head.driver) and not is_dead(head.driver),
        "quarantined": head.quarantined or None,
        "held": why_held(head) or None,
    }


def why_held(head: Head) -> str:
    """Why nobody drives it before a person says so; "" if that is not so."""
    return held.why_held(head.held or (held.HANDED_IN if is_held_from_start(head) else ""))


def wire_state(head: Head, state: Execution, is_dead: Callable[[str], bool]) -> dict[str, object]:
    """One execution, whole."""
    from holdfast.core.plan.resources import limits_of  # reads plans, which lists need not

    created = state.facts()
    limits = limits_of(created)
    return {
        **wire_head(head, is_dead),
        "status": state.status,
        "inputs": plain(created.inputs),
        "percent": round(percent(state), 1),
        "failures": state.failures or failures_in_words(state) or None,
        "failed": list(failures_by_name(state)),
        "started_at": iso(state.started_at),
        "by": state.by or None,
        "why": state.why or None,
        "paused_until": iso(state.pause_until),
        "on_pause_timeout": state.on_pause_timeout if state.status == "paused" else None,
        "stopping": state.stopping and not state.is_ended,
        "reasons": plain(state.reasons),
        "requests": [wire_request(asked, state) for asked in state.open_requests()],
        "steps": [*(wire_step(step) for step in state.steps.values()), *pending_steps(state)],
        "children": [plain(child) for child in state.children.values()],
        "output": plain(state.output),
        "failure": plain(state.failure),
        "card": _card_of(state),
        "forked_from": plain(created.forked_from),
        "folder": created.folder,
        "engine": created.engine,
        "recoveries": state.recoveries,
        "spend": wire_spend(state.spend),
        "used": plain(all_used(step.used for step in state.steps.values())),
        "resources": plain(limits.each),
        "resources_total": plain(limits.total),
        "events": state.seq,
    }


def wire_spend(spend: Spend) -> dict[str, object]:
    """`usd` is null when nothing that ran told a cost: unknown is not zero."""
    return {
        "usd": in_usd(spend.settled_micros) if spend.amounts else None,
        "unknown": spend.unknown,
        "limit": None if spend.limit_micros is None else in_usd(spend.limit_micros),
        "reserved": in_usd(sum(spend.reserved.values())),
    }


def wire_request(asked: Asked, state: Execution) -> dict[str, object]:
    """As it was asked; but what is left of a budget is told as it is now, since the limit may have changed."""
    request, spend = asked.request, state.spend
    if request.kind == "budget" and request.path in spend.wanted:
        message = spend.shortage(request.tool, spend.wanted[request.path])
        request = msgspec.structs.replace(request, message=message)
    wired = cast("dict[str, object]", plain(request))
    return {**wired, "opened_at": iso(asked.opened_at), "card": plain(card_of_request(state.id, request))}


def _card_of(state: Execution) -> object:
    """What a person is told of an execution that has failed."""
    if state.failure is None:
        return None
    return plain(card_of_failure(state.id, state.failure, state.failed_path, state.facts().program.kind))


def wire_step(step: Step) -> dict[str, object]:
    return {
        "path": step.path,
        "tool": step.tool,
        "kind": step.kind,
        "title": step.title or None,
        "status": step.status,
        "effect": step.effect if step.kind in ("tool", "code") else None,
        "attempts": step.attempt,
        "history": [_wire_attempt(attempt) for attempt in step.attempts],
        "started_at": iso(step.started_at),
        "ended_at": iso(step.ended_at),
        "duration_s": (step.ended_at - step.started_at) / 1e6 if step.ended_at and step.started_at else None,
        "output": plain(step.output),
        "failure": plain(step.failure),
        "critical": step.critical,
        "reason": step.reason or None,
        "due_at": iso(step.due_at),
        "cached": step.cached,
        "fallback": step.fallback,
        "reduced": step.reduced,
        "refreshed": step.refreshed,
        "by": step.by or None,
        "diverged": step.diverged,
        "used": plain(step.used),
        "warning": step.warning or None,
        "percent": round(100.0 * min(1.0, step.ended / step.total), 1) if step.total else None,
    }


_KINDS: tuple[tuple[str, ev.StepKind], ...] = (
    ("for_each", "for_each"), ("tool", "tool"), ("steps", "plan"), ("wait", "wait"), ("start", "child"),
)  # fmt: skip


def pending_steps(state: Execution) -> list[dict[str, object]]:
    """The steps that a plan names and that have not begun, as steps about which nothing else is known yet."""
    return [
        {**wire_step(_planned(path, step)), "effect": None}
        for path, step in planned_steps(state).items()
        if path not in state.steps
    ]


def _planned(path: str, step: dict[str, Any]) -> Step:
    critical = bool(step.get("critical", not step.get("optional", False)))
    return Step(path=path, tool=step.get("tool", ""), kind=_kind_of(step), critical=critical)


def planned_steps(state: Execution) -> dict[str, dict[str, Any]]:
    """What a plan says about each of its outermost steps, in its order; nothing for other kinds of program."""
    created = state.created
    if created is None or created.program.kind != "plan":
        return {}
    document: dict[str, Any] = msgspec.json.decode(created.program.source)
    added: list[Any] = [step for raw in state.extensions for step in msgspec.json.decode(raw)]
    steps: list[dict[str, Any]] = [*document["steps"], *added, *document.get("finally", ())]
    return {step["id"]: step for step in steps}


def _kind_of(step: dict[str, Any]) -> ev.StepKind:
    for key, kind in _KINDS:
        if key in step:
            return kind
    return "approval"


def _wire_attempt(attempt: Any) -> dict[str, object]:
    return {
        "number": attempt.number,
        "tool": attempt.tool,
        "outcome": attempt.outcome or "running",
        "started": iso(attempt.started_at),
        "completed": iso(attempt.ended_at),
        "duration_s": seconds(attempt.duration_us) if attempt.ended_at else None,
        "category": attempt.category,
        "error": attempt.message or None,
    }
