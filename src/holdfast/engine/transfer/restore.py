"""Executions that come from elsewhere: restored from a file that export.py made.

A restored execution is the same one, under its own id and with its own history. What cannot be seen from here is
whether the original goes on elsewhere; so nobody drives it before a person says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from holdfast.core import events as ev
from holdfast.core.commands import Command, internal_id
from holdfast.core.differences import Difference
from holdfast.core.errors import BundleInvalid, ImportMismatch, Refused, UsageError
from holdfast.core.execution import Execution
from holdfast.core.forms import check_schema
from holdfast.core.held import IMPORTED
from holdfast.core.lifecycle import ENDS
from holdfast.engine.commands.child_messages import end_of_child, pass_down
from holdfast.engine.json_view import planned_steps, wire_state
from holdfast.engine.notifications import count_as_told
from holdfast.engine.services import Services
from holdfast.engine.transfer.compatibility import differences, only_of_folder, unaccepted
from holdfast.engine.transfer.copies import kept_events
from holdfast.engine.transfer.forks import forked_from
from holdfast.engine.transfer.merge import Additions, Gap, catch_up, compare, has_news
from holdfast.engine.transfer.repair import is_damaged, merge, replace
from holdfast.journal.blobs import large_values
from holdfast.journal.bundle.read import read
from holdfast.journal.bundle.write import BUNDLE_BYTES_MAX, Bundle, ExportedExecution
from holdfast.journal.codec import decode
from holdfast.journal.log import head_of, read_state
from holdfast.journal.store import NewExecution, Store

# ---- bringing back -----------------------------------------------------------------------------------------------


class Restored(NamedTuple):
    """`differences` were accepted, and will be asked about once more when it is resumed.

    `continued` is what was here already, and to which `added` events were added that it has had elsewhere.
    """

    id: str
    outcome: Literal["imported", "continued", "repaired", "unchanged"]
    status: str
    executions: int
    differences: tuple[Difference, ...] = ()
    added: int = 0
    lost: int = 0  # events of a damaged one that the file does not have, either


async def read_bundle(source: str | Path | bytes) -> Bundle:
    """Whatever comes in whole can be looked at afterwards, with every command that looks.

    In a thread: the loop has others to look after, and a long history takes a second.
    """
    return await asyncio.to_thread(_read_and_rehearse, source)


def _read_and_rehearse(source: str | Path | bytes) -> Bundle:
    if isinstance(source, bytes):
        bundle, name = read(source), "the bundle"
    else:
        bundle, name = _read_file(Path(source)), str(source)
    for carried in bundle.executions:
        try:
            _rehearse_showing(carried.state)
        except Exception as error:
            raise BundleInvalid(
                f"{name} holds an execution {carried.state.id} that could not be shown: its plan or its events are not "
                f"as Holdfast writes them ({error!r}); nothing was changed"
            ) from error
    return bundle


def _rehearse_showing(state: Execution) -> None:
    wire_state(head_of(state, b""), state, lambda _: True)
    for path, step in planned_steps(state).items():
        if not isinstance(path, str) or not isinstance(step.get("tool", ""), str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the id or the tool of step {path!r} is no text")
    for asked in state.requests.values():
        if asked.request.kind == "question":
            check_schema(asked.request.schema)


def _read_file(path: Path) -> Bundle:
    try:
        with path.open("rb") as file:
            data = file.read(BUNDLE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:  # a name may hold what no file's name can
        raise BundleInvalid(f"{path} cannot be read: {getattr(error, 'strerror', '') or error}") from None
    return read(data, str(path))


async def restore(
    services: Services,
    bundle: Bundle,
    is_dead: Callable[[str], bool],
    *,
    force: bool = False,
    other_folder: bool = False,
) -> Restored:
    """Write the executions of a bundle into the journal, all or none; those that have not ended are held.

    What is here already is only ever added to.
    """
    state = bundle.root.state
    if await is_damaged(services.store, bundle):
        return await _repair(services, bundle, is_dead, force=force, other_folder=other_folder)
    gap = await compare(services.store, bundle, is_dead)
    if gap is not None and not gap.behind:
        return Restored(state.id, "unchanged", state.status, len(bundle.executions))
    found = unmet(services, [carried.state for carried in bundle.executions])
    check_accepted(found, force=force, other_folder=other_folder)
    if gap is not None:
        creates = await asyncio.to_thread(_news, bundle, gap.missing)
        await catch_up(services, bundle, gap, Additions(creates, _unheard(bundle, gap)), is_dead, IMPORTED)
        return Restored(state.id, "continued", state.status, len(bundle.executions), tuple(found), gap.events)
    new, *others = await asyncio.to_thread(_news, bundle, bundle.executions)
    new.family = tuple(others)
    await count_as_told(services, [carried.state for carried in bundle.executions])  # before anybody can see it
    written = await services.writer.write(new)
    if not written.ok:
        raise Refused(await _clash(services.store, bundle, written.existing))
    return Restored(state.id, "imported", state.status, len(bundle.executions), tuple(found))


async def _repair(
    services: Services, bundle: Bundle, is_dead: Callable[[str], bool], *, force: bool, other_folder: bool
) -> Restored:
    merged = await merge(services.store, bundle)
    states = [carried.state for carried in merged.bundle.executions]
    found = unmet(services, states)
    check_accepted(found, force=force, other_folder=other_folder)
    await count_as_told(services, states)  # before anybody can see it
    await replace(services, merged, is_dead, _news)
    root = merged.bundle.root.state
    return Restored(root.id, "repaired", root.status, len(states), tuple(found), lost=merged.lost)


def check_accepted(found: Sequence[Difference], *, force: bool, other_folder: bool) -> None:
    """Raises ImportMismatch with what a person has still to accept."""
    if left := unaccepted(found, force=force, other_folder=other_folder):
        raise ImportMismatch(left, only_folder=only_of_folder(left))


def unmet(services: Services, states: Sequence[Execution]) -> list[Difference]:
    """What those that have not ended would miss here, each once."""
    found: dict[Difference, None] = {}
    for state in states:
        if not state.is_ended:
            found |= dict.fromkeys([*_program(services, state), *differences(state, services)])
    return list(found)


def _program(services: Services, state: Execution) -> list[Difference]:
    program = state.facts().program
    kind = services.programs.get(program.kind)
    if kind is None:
        return [Difference(code="kind_unknown", name=program.kind)]
    try:
        kind.open(state.facts(), state)
    except UsageError as error:
        return [Difference(code="program_invalid", now=" ".join(str(error).split()))]
    return []


def _news(bundle: Bundle, executions: Sequence[ExportedExecution]) -> list[NewExecution]:
    return [_new(bundle, carried) for carried in executions]


def _new(bundle: Bundle, carried: ExportedExecution) -> NewExecution:
    head = head_of(carried.state, carried.rows[-1].digest)
    head.held = "" if carried.state.is_ended else IMPORTED
    if has_news(carried):
        head.wake_at = 0
    posts = (*_untold_ends(bundle, carried.state), *_stop_on_its_way(bundle, carried.state))
    return NewExecution(head=head, rows=carried.rows, blobs=bundle.blobs_of(carried), posts=posts)


def _unheard(bundle: Bundle, gap: Gap) -> list[Command]:
    """Of those that were here before: what was said among them there and not heard yet; and to a parent that stayed."""
    here = [carried for carried in bundle.executions if carried not in gap.missing]
    posts = [post for one in here for post in (*_untold_ends(bundle, one.state), *_stop_on_its_way(bundle, one.state))]
    return [*posts, *(_end_of(bundle.root) if bundle.root.state.is_ended else ())]


def _end_of(carried: ExportedExecution) -> list[Command]:
    """What an execution that has ended tells its parent, if it has one."""
    events = map(decode, reversed(carried.rows))
    end = next(event for event in events if isinstance(event, ev.TaskCompleted | ev.TaskError | ev.TaskStopped))
    return end_of_child(carried.state, end)


def _untold_ends(bundle: Bundle, parent: Execution) -> tuple[Command, ...]:
    """What children told this parent that it had not read yet: the inbox does not travel, so it is told again."""
    waited_for = {child.id for child in parent.children.values() if child.status not in ENDS}
    posts: list[Command] = []
    for carried in bundle.executions:
        if carried.state.id in waited_for and carried.state.is_ended:
            posts.extend(_end_of(carried))
    return tuple(posts)


def _stop_on_its_way(bundle: Bundle, child: Execution) -> Sequence[Command]:
    """A parent that has ended takes its children with it; this one had not heard of it yet."""
    above = child.facts().parent
    if child.is_ended or above is None:
        return ()
    for parent in (carried.state for carried in bundle.executions if carried.state.id == above.id):
        if parent.is_ended:
            at = parent.ended_at
            stop = Command(id=internal_id(f"{parent.id}:end"), execution_id=parent.id, verb="stop", at=at, by=parent.by)
            return [command for command in pass_down(parent, stop) if command.execution_id == child.id]
    return ()


async def _clash(store: Store, bundle: Bundle, existing: str) -> str:
    if any(carried.state.id == existing for carried in bundle.executions):
        return f"execution {existing}, which is in the file, is here already; nothing was changed"
    head = await store.head(existing)
    return f'the key "{head.key}" belongs to execution {existing} here; nothing was changed'


# ---- under a new id ----------------------------------------------------------------------------------------------


class Copy(NamedTuple):
    """A new task that keeps what was done, as a fork does."""

    created: ev.TaskCreated
    copied: list[ev.Event]
    blobs: list[tuple[str, bytes]]


def copy_of(services: Services, bundle: Bundle, *, force: bool = False, other_folder: bool = False) -> Copy:
    """Its children stay behind, so it may not need them any more: they would be started anew."""
    state = bundle.root.state
    taken = {path for path, step in state.steps.items() if step.status == "completed"}
    needed = [child.id for path, child in state.children.items() if path not in taken]
    if needed:
        raise Refused(
            f"execution {state.id} has a child that has not completed, or of whose end it has made nothing yet, "
            f"{needed[0]}; a copy under a new id would start it again; import it under its own id"
        )
    now = services.clock.now_us()
    events = [decode(row) for row in bundle.root.rows]
    created = msgspec.structs.replace(
        state.facts(),
        at=now,
        key="",
        hold=True,
        parent=None,
        folder=str(services.folder),
        engine=services.version,
        forked_from=forked_from(state.facts(), state.id),
    )
    fresh = Execution(id="", status="queued", created=created)
    check_accepted(unmet(services, [fresh]), force=force, other_folder=other_folder)
    copied = kept_events(events, state.id, now)
    wanted = {blob.digest for event in [created, *copied] for blob in large_values(event)}
    return Copy(created, copied, [(digest, bundle.blobs[digest]) for digest in sorted(wanted)])


# ---- going on ----------------------------------------------------------------------------------------------------


async def differences_below(services: Services, state: Execution) -> list[Difference]:
    """What has changed for its descendants that have not ended: whoever accepts it for the parent means them, too."""
    found: list[Difference] = []
    members, seen = [state], {state.id}
    for member in members:  # which grows meanwhile
        for child in member.children.values():
            if child.status not in ENDS and child.id not in seen:
                seen.add(child.id)
                _, below, _ = await read_state(services.store, child.id)
                if not below.is_ended:
                    found += differences(below, services)
                    members.append(below)
    return found
