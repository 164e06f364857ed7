"""Executions that are carried around: gathered into a bundle, saved as a checkpoint, restored from a file.

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
from holdfast.core.errors import BundleInvalid, ImportMismatch, NotFound, Refused, StoreCorrupted, UsageError
from holdfast.core.execution import Execution, steps_ended
from holdfast.core.lifecycle import ENDS
from holdfast.engine.compat import differences
from holdfast.engine.family import end_of_child, pass_down
from holdfast.engine.forks import is_retry, kept_events
from holdfast.engine.services import Services
from holdfast.engine.wire import planned_steps, wire_state
from holdfast.journal import checkpoints
from holdfast.journal.blobs import fetch_blob, large_values
from holdfast.journal.bundle import BUNDLE_BYTES_MAX, EXECUTIONS_MAX, Bundle, Carried, open_rows, wanted_blobs, write
from holdfast.journal.bundle_read import read
from holdfast.journal.codec import CHAIN_START, decode, verify
from holdfast.journal.log import head_of, read_state
from holdfast.journal.store import Head, NewExecution, Store

HELD = "it was imported, and the original may still run elsewhere"


# ---- taking along ------------------------------------------------------------------------------------------------


async def gather(store: Store, execution_id: str, through: int = 0) -> Bundle:
    """An execution up to event `through` (0: all that is durable), its descendants and their large values.

    Children are read after their parent, and so may know more than it does; what they tell it is told again by whoever
    restores them.
    """
    executions = [await _carry(store, execution_id, through)]
    await _check_origin(store, executions[0].state)
    for carried in executions:  # grows while it is walked
        for child in carried.state.children.values():
            if len(executions) >= EXECUTIONS_MAX:
                raise Refused(
                    f"execution {execution_id} has more than {EXECUTIONS_MAX - 1:,} descendants, which do not fit into "
                    "one file; export its children one by one"
                )
            try:
                executions.append(await _carry(store, child.id))
            except NotFound:
                if child.status not in ENDS:  # an end that is known needs nothing more of the child
                    raise
    wanted: dict[str, ev.Blob] = {}
    for carried in executions:
        wanted |= await asyncio.to_thread(wanted_blobs, carried.rows)
    return Bundle(executions, {digest: await fetch_blob(store, blob) for digest, blob in wanted.items()})


async def _check_origin(store: Store, state: Execution) -> None:
    """A retry looks up what its origin's children had done when it comes to start its own; elsewhere it could not."""
    origin = state.facts().forked_from
    if origin is None or not is_retry(state) or state.is_ended:
        return
    try:
        _, before, _ = await read_state(store, origin.id)
    except NotFound:
        return
    unmatched = [path for path in before.children if path not in state.children and path not in state.steps]
    if unmatched:
        raise Refused(
            f"execution {state.id} is a retry of {origin.id} and has still to start {unmatched[0]}, of which it would "
            "keep what was done there; that cannot be carried: export it when it has come further, or make a backup"
        )


async def _carry(store: Store, execution_id: str, through: int = 0) -> Carried:
    if through:
        _, rows = await store.events(execution_id, 0, through)
        return await asyncio.to_thread(open_rows, execution_id, rows)
    _, state, end = await read_state(store, execution_id)  # with the help of a snapshot, if there is one
    _, rows = await store.events(execution_id, 0, state.seq)
    if await asyncio.to_thread(verify, rows, 0, CHAIN_START) != end:
        raise StoreCorrupted(f"execution {execution_id}: its events are not those that its snapshot was made of")
    return Carried(rows, state)


async def save(services: Services, execution_id: str, through: int = 0) -> ev.CheckpointSaved:
    """Write a checkpoint, and return the event that says so once somebody journals it."""
    folder = services.data_folder
    if folder is None:
        raise Refused("this engine has no folder to save checkpoints in; export the execution instead")
    bundle = await gather(services.store, execution_id, through)
    state = bundle.root.state

    def write_it() -> checkpoints.Saved:
        return checkpoints.save(folder, state.id, state.seq, write(bundle, services.version))

    saved = await asyncio.to_thread(write_it)
    return ev.CheckpointSaved(
        at=state.last_at, file=str(saved.path), through=state.seq, bytes=saved.bytes, ended=steps_ended(state)
    )


# ---- bringing back -----------------------------------------------------------------------------------------------


class Restored(NamedTuple):
    """`differences` were accepted with force, and will be asked about once more when it is resumed."""

    id: str
    outcome: Literal["imported", "unchanged"]
    status: str
    executions: int
    differences: tuple[str, ...] = ()


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


def _read_file(path: Path) -> Bundle:
    try:
        with path.open("rb") as file:
            data = file.read(BUNDLE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:  # a name may hold what no file's name can
        raise BundleInvalid(f"{path} cannot be read: {getattr(error, 'strerror', '') or error}") from None
    return read(data, str(path))


async def restore(
    services: Services, bundle: Bundle, is_dead: Callable[[str], bool], *, force: bool = False
) -> Restored:
    """Write the executions of a bundle into the journal, all or none; those that have not ended are held."""
    state = bundle.root.state
    here = await _head(services.store, state.id)
    if here is not None:
        await _check_same(services.store, here, bundle.root, is_dead)
        return Restored(state.id, "unchanged", here.status, len(bundle.executions))
    found = unmet(services, [carried.state for carried in bundle.executions])
    if found and not force:
        raise ImportMismatch(found)
    new, *others = await asyncio.to_thread(_news, bundle)
    new.family = tuple(others)
    written = await services.writer.write(new)
    if not written.ok:
        raise Refused(await _clash(services.store, bundle, written.existing))
    return Restored(state.id, "imported", state.status, len(bundle.executions), tuple(found))


def unmet(services: Services, states: Sequence[Execution]) -> list[str]:
    """What those that have not ended would miss here, as sentences, each once."""
    found: dict[str, None] = {}
    for state in states:
        if not state.is_ended:
            found |= dict.fromkeys([*_program(services, state), *differences(state, services)])
    return list(found)


def _program(services: Services, state: Execution) -> list[str]:
    program = state.facts().program
    kind = services.programs.get(program.kind)
    if kind is None:
        return [f"nothing here can run a program of kind {program.kind}"]
    try:
        kind.open(state.facts(), state)
    except UsageError as error:
        return [" ".join(str(error).split())]
    return []


def _news(bundle: Bundle) -> list[NewExecution]:
    return [_new(bundle, carried) for carried in bundle.executions]


def _new(bundle: Bundle, carried: Carried) -> NewExecution:
    head = head_of(carried.state, carried.rows[-1].digest)
    head.held = "" if carried.state.is_ended else HELD
    posts = (*_untold_ends(bundle, carried.state), *_stop_on_its_way(bundle, carried.state))
    return NewExecution(head=head, rows=carried.rows, blobs=bundle.blobs_of(carried), posts=posts)


def _untold_ends(bundle: Bundle, parent: Execution) -> tuple[Command, ...]:
    """What children told this parent that it had not read yet: the inbox does not travel, so it is told again."""
    waited_for = {child.id for child in parent.children.values() if child.status not in ENDS}
    posts: list[Command] = []
    for carried in bundle.executions:
        if carried.state.id in waited_for and carried.state.is_ended:
            events = map(decode, reversed(carried.rows))
            end = next(event for event in events if isinstance(event, ev.TaskCompleted | ev.TaskError | ev.TaskStopped))
            posts.extend(end_of_child(carried.state, end))
    return tuple(posts)


def _stop_on_its_way(bundle: Bundle, child: Execution) -> Sequence[Command]:
    """A parent that was stopped, or failed, takes its children with it; this one had not heard of it yet."""
    above = child.facts().parent
    if child.is_ended or above is None:
        return ()
    for parent in (carried.state for carried in bundle.executions if carried.state.id == above.id):
        if parent.status in ("stopped", "failed"):
            at = parent.ended_at
            stop = Command(id=internal_id(f"{parent.id}:end"), execution_id=parent.id, verb="stop", at=at, by=parent.by)
            return [command for command in pass_down(parent, stop) if command.execution_id == child.id]
    return ()


async def _head(store: Store, execution_id: str) -> Head | None:
    try:
        return await store.head(execution_id)
    except NotFound:
        return None


async def _check_same(store: Store, here: Head, carried: Carried, is_dead: Callable[[str], bool]) -> None:
    """The execution is here already. History is never rewritten: only the very same one passes, and changes nothing."""
    seq, digest = carried.state.seq, carried.rows[-1].digest
    if here.driver and not is_dead(here.driver):
        raise Refused(
            f"execution {here.id} is here, and a process drives it now: the original runs; nothing was changed"
        )
    if here.seq == seq and here.digest == digest:
        return
    if here.seq > seq and (await store.events(here.id, seq, 0))[0] == digest:
        raise Refused(
            f"execution {here.id} is here, and further: it has {here.seq} events, the file has {seq}; "
            f"nothing was changed{'' if here.ended_at else f'; go on with: holdfast resume {here.id}'}"
        )
    goes_on = here.seq < seq and carried.rows[here.seq - 1].digest == here.digest
    way = "on" if goes_on else "another way"
    raise Refused(
        f"execution {here.id} is here with {here.seq} events, and the file has gone {way} to {seq}; nothing was "
        "changed; to have both, import the file under a new id with --as-new"
    )


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


def copy_of(services: Services, bundle: Bundle, *, force: bool = False) -> Copy:
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
        forked_from=ev.ForkedFrom(id=state.id),
    )
    fresh = Execution(id="", status="queued", created=created)
    found = unmet(services, [fresh])
    if found and not force:
        raise ImportMismatch(found)
    copied = kept_events(events, state.id, now)
    wanted = {blob.digest for event in [created, *copied] for blob in large_values(event)}
    return Copy(created, copied, [(digest, bundle.blobs[digest]) for digest in sorted(wanted)])


# ---- going on ----------------------------------------------------------------------------------------------------


async def differences_below(services: Services, state: Execution) -> list[str]:
    """What has changed for its descendants that have not ended: whoever accepts it for the parent means them, too."""
    found: list[str] = []
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
