"""The engine of one process: start, watch, command, resume, fork, close.

Here is what others may ask of it. What runs here, and what must be looked for, is kept in keeping.py; everything else
that it knows is in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.commands import Answer, Verb
from holdfast.core.differences import Difference
from holdfast.core.errors import JournalError, NotFound, Refused, ResumeMismatch, StoreCorrupted
from holdfast.core.held import by_person, is_imported
from holdfast.engine.commands.builders import CommandRequest
from holdfast.engine.commands.gateway import CommandGateway, user
from holdfast.engine.commands.hold import hold, let_go
from holdfast.engine.drive.claims import look, open_state
from holdfast.engine.drive.driver import Driver
from holdfast.engine.drive.scheduler import DriverObserver, Recovery, Scheduler
from holdfast.engine.drive.slots import Slot
from holdfast.engine.limits.health_checks import HealthWatch
from holdfast.engine.program import Program
from holdfast.engine.run import Run
from holdfast.engine.services import Services
from holdfast.engine.transfer import export as transfer_export
from holdfast.engine.transfer import repair
from holdfast.engine.transfer import restore as transfer_restore
from holdfast.engine.transfer.auto_checkpoint import DeferredCheckpoints
from holdfast.engine.transfer.compatibility import differences, home_elsewhere, only_of_folder, unaccepted
from holdfast.engine.transfer.forks import blobs_of, copied_events, forked_from, looked_up_later, suited, task_of
from holdfast.engine.transfer.restore import Restored, differences_below
from holdfast.engine.transfer.resume_check import Outlook, check_prerequisites, check_replay, outlook
from holdfast.journal import deletion
from holdfast.journal.bundle.write import write
from holdfast.journal.liveness import Liveness
from holdfast.journal.log import new_execution
from holdfast.journal.store import Head, Microseconds, Query
from holdfast.tools.tool import Tool

FITTING_NAMED = 5  # of the executions that a piece of an id fits
FITTING_COUNTED = 100


class Engine:
    """`recover`: "all" takes up every execution it can run, "family" its own and their children, "none" only
    what is started here, "nothing" not even that: it is left to another process.
    """

    def __init__(self, services: Services, liveness: Liveness, *, recover: Recovery = "all") -> None:
        self.services = services
        self._liveness = liveness
        self._keeper = Scheduler(services, liveness, recover)
        self._commands = CommandGateway(services, liveness, self._keeper.drivers.get, self._keeper.look)
        self.health = HealthWatch(services, liveness.is_dead)
        self._creating: set[asyncio.Future[Run]] = set()
        self._closing = False
        self._owed = DeferredCheckpoints(self)
        services.on_child = self._child_was_born
        services.owe_checkpoint = self._owed.remember

    async def open(self) -> None:
        self._liveness.register(self.services.driver)
        try:
            self._liveness.tidy(await self.services.store.drivers())
            await self.services.registry.open()
        except BaseException:
            await self.close()  # whoever could not come in leaves nothing behind either
            raise
        self._keeper.start()
        if self._keeper.drives_anything:
            self.health.start()
        if self.services.notices is not None and self._keeper.drives_anything:
            self.services.notices.catch_up()

    # ---- starting -----------------------------------------------------------------------------------------------

    async def create(
        self,
        created: ev.TaskCreated,
        blobs: Sequence[tuple[str, bytes]] = (),
        copied: Sequence[ev.Event] = (),
        program: Program | None = None,
        needs: tuple[str, ...] = (),
        *,
        drive: bool = True,
    ) -> Run:
        """Write a new execution. When this returns it is on disk, and will be driven to its end.

        With `program` it begins here at once, if there is room. Without `drive` it belongs to no engine: one that
        recovers takes it up.
        """
        if self._closing:
            raise Refused("the engine is closing; start the task with another one")
        # Shielded: whoever asked may be cancelled, but what was written must be driven. A closing engine waits for it.
        creating = asyncio.ensure_future(self._create(created, blobs, copied, program, needs, drive))
        self._creating.add(creating)
        creating.add_done_callback(self._creating.discard)
        return await asyncio.shield(creating)

    async def _create(
        self,
        created: ev.TaskCreated,
        blobs: Sequence[tuple[str, bytes]],
        copied: Sequence[ev.Event],
        program: Program | None,
        needs: tuple[str, ...],
        drive: bool,
    ) -> Run:
        execution_id = self.services.new_id()
        if drive:
            self._keeper.family.add(execution_id)
        slot = Slot(self._keeper.slots, held=False)
        at_once = (
            program is not None
            and drive
            and self._keeper.drives_anything
            and not created.hold
            and created.concurrency is None
            and self._keeper.slots.free > 0
        )
        events: list[ev.Event] = [created, *copied]
        if at_once:
            await slot.acquire()
            events.append(ev.TaskStarted(at=created.at, because="created", driver=self.services.driver))
        driver = self.services.driver if at_once else ""
        new, state = new_execution(execution_id, events, driver=driver, blobs=blobs)
        new.needs = needs
        with self.services.in_hand(execution_id):
            try:
                written = await self.services.writer.write(new)
            except BaseException:
                self._keeper.strays_possible = True
                slot.release()
                raise
            if not written.ok:
                slot.release()
                if not written.existing:
                    raise Refused("what it is made from was deleted in this moment; nothing was started")
                return await self._same_key(created, written.existing, drive)
            if at_once and program is not None:
                journal = self.services.open_log(state, new.head.digest, new.head.epoch)
                self._keeper.drive(Driver(self.services, journal, program, slot))
        if not at_once:
            self._keeper.some_wait = True
            self._keeper.look()
        return Run(self, execution_id)

    async def _same_key(self, created: ev.TaskCreated, existing: str, drive: bool) -> Run:
        """The key was used before: the same task is answered with the same execution, another one is refused."""
        _, state, _ = await open_state(self.services, existing)
        other = state.facts()
        if task_of(other) != task_of(created):
            raise Refused(
                f'the key "{created.key}" belongs to execution {existing}, a different task '
                f"({other.program.name}); use another key"
            )
        if drive:
            self._keeper.family.add(existing)
        return Run(self, existing)

    def _child_was_born(self, execution_id: str) -> None:
        self._keeper.family.add(execution_id)
        self._keeper.look()

    # ---- looking ------------------------------------------------------------------------------------------------

    def get(self, execution_id: str) -> Run:
        return Run(self, execution_id)

    async def find(self, fragment: str) -> Run:
        """By id, by any unambiguous beginning or end of it, or `@last`."""
        if fragment == "@last":
            newest = await self.services.store.heads(Query(limit=1, parent_id=""))
            if not newest:
                raise NotFound("there is no execution yet; start one with `holdfast run PLAN`")
            return Run(self, newest[0].id)
        found = await self.services.store.find(fragment, FITTING_COUNTED + 1) if fragment else []
        if not found:
            raise NotFound(f'there is no execution "{fragment}"; `holdfast list` shows them')
        if len(found) > 1:
            raise NotFound(f'"{fragment}" fits more than one execution: {_some(found)}; give more of the id')
        return Run(self, found[0])

    async def list(self, query: Query | None = None) -> list[Head]:
        return await self.services.store.heads(query or Query())

    def is_dead(self, driver: str) -> bool:
        """Whether the process of a driver is gone."""
        return self._liveness.is_dead(driver)

    def driver(self, execution_id: str) -> Driver | None:
        """The driver of an execution, if it runs here."""
        return self._keeper.drivers.get(execution_id)

    def drives(self, execution_id: str) -> bool:
        return execution_id in self._keeper.drivers

    def driven(self) -> list[str]:
        """The executions that run here."""
        return list(self._keeper.drivers)

    async def due(self, until: Microseconds, limit: int) -> list[Head]:
        """What should be driven by then, is driven by nobody, and could be driven here."""
        return await self._keeper.due(until, limit)

    def tell(self, onlooker: DriverObserver) -> None:
        """Tell somebody, from now on, what this process drives."""
        self._keeper.onlooker = onlooker

    def raise_problem(self, execution_id: str) -> None:
        """What kept this process from driving it, if it is still so."""
        problem = self._keeper.problems.get(execution_id)
        if problem is not None and not self.drives(execution_id):
            raise problem

    def known_tool(self, name: str) -> Tool[..., Any] | None:
        return self.services.known_tool(name)

    def holdings(self) -> dict[str, int]:
        """Everything held for executions right now; all zero when nothing runs."""
        return {
            "drivers": len(self._keeper.drivers),
            "tasks": len(self._keeper.driving),
            "slots": self._keeper.slots.used,
            "watchers": self.services.feed.watchers,
            "left_behind": len(self.services.left_behind),
        }

    # ---- commanding ---------------------------------------------------------------------------------------------

    async def give(self, execution_id: str, order: CommandRequest, *, by: str = "", command_id: str = "") -> Answer:
        return await self._commands.give(execution_id, order, by=by, command_id=command_id)

    async def command(
        self, execution_id: str, verb: Verb, *, by: str = "", command_id: str = "", **arguments: Any
    ) -> Answer:
        return await self.give(execution_id, CommandRequest(verb, arguments), by=by, command_id=command_id)

    def command_many(
        self, execution_ids: Sequence[str], verb: Verb, *, bulk_id: str, by: str = "", **arguments: Any
    ) -> AsyncIterator[tuple[str, Answer]]:
        """The same command for many executions; see `CommandGateway.give_many`."""
        return self._commands.give_many(execution_ids, CommandRequest(verb, arguments), bulk_id=bulk_id, by=by)

    async def resume(
        self, execution_id: str, *, by: str = "", why: str = "", force: bool = False, other_folder: bool = False
    ) -> Answer:
        """Validate, then go on: what was paused or interrupted is resumed, what nobody drives is driven here.

        `force` accepts whatever has changed since it was recorded, `other_folder` only that it is in another folder.
        """
        head, state, _ = await open_state(self.services, execution_id)
        accepted: tuple[Difference, ...] = ()
        if not state.is_ended:
            found = differences(state, self.services)
            if left := unaccepted(found, force=force, other_folder=other_folder):
                imported = is_imported(head.held)
                home = "" if imported else home_elsewhere(state, self.services)
                raise ResumeMismatch(left, home, imported=imported, only_folder=only_of_folder(left))
            if force or other_folder:
                found += await differences_below(self.services, state)
            accepted = tuple(dict.fromkeys(one for one in found if force or one.is_of_folder))
            if not force:
                await look(self.services, execution_id, accepting=accepted)
                await check_prerequisites(self.services, state)
            await check_replay(self.services, head, self._liveness.is_dead)
        answer = await self.command(execution_id, "resume", by=by, why=why, accepted=accepted)
        if answer.outcome != "refused":
            await let_go(self.services.store, execution_id)
        self.drive(execution_id)  # only now: until its differences are accepted, it may be left once more
        if answer.outcome == "refused":
            raise Refused(answer.text)
        return answer

    async def outlook(self, execution_id: str) -> Outlook:
        """Whether an execution would go on here with today's code, tools and folder. Changes nothing."""
        return await outlook(self.services, execution_id)

    def drive(self, execution_id: str) -> None:
        """From now on this process looks after it: it drives it as soon as it is due and nobody else does."""
        self._keeper.family.add(execution_id)
        self._keeper.left.pop(execution_id, None)
        self._keeper.problems.pop(execution_id, None)
        self._keeper.look()

    async def fork(
        self,
        execution_id: str,
        *,
        at: str = "",
        replacing: ev.TaskCreated | None = None,
        by: str = "",
        key: str = "",
        drive: bool = True,
    ) -> Run:
        """A new execution that keeps what was done before step `at`, or, without it, all that completed.

        `key` makes forking twice the same as once; without `drive` it is left to an engine that recovers.
        """
        now = self.services.clock.now_us()
        program = replacing.program if replacing is not None else None
        created, copied = await copied_events(self.services.store, execution_id, at, now, program)
        base = replacing or created
        fresh = msgspec.structs.replace(
            base,
            at=now,
            key=key,
            hold=False,
            parent=None,
            owner=by or created.owner,
            by=by or user(),
            forked_from=forked_from(created, execution_id, at),
        )
        copied = copied if replacing is None else suited(self.services, fresh, copied)
        blobs = await blobs_of(self.services.store, [fresh, *copied])
        needs = await looked_up_later(self.services.store, execution_id, copied)
        if not drive:
            return await self.create(fresh, blobs, copied, needs=needs, drive=False)
        kind = self.services.programs.get(fresh.program.kind)
        if kind is None:
            raise NotFound(f"nothing here can run a program of kind {fresh.program.kind}")
        _, state = new_execution("preview", [fresh, *copied])
        return await self.create(fresh, blobs, copied, kind.open(fresh, state), needs)

    # ---- carrying -----------------------------------------------------------------------------------------------

    async def export(self, execution_id: str) -> bytes:
        """An execution as one portable JSON file, with its descendants: what is durable now."""
        bundle = await transfer_export.gather(self.services.store, execution_id)
        return b"".join(await asyncio.to_thread(write, bundle, self.services.version))

    async def checkpoint(
        self, execution_id: str, *, by: str = "", command_id: str = ""
    ) -> tuple[ev.CheckpointSaved, Answer]:
        """Save it in the data folder, whoever drives it. The file is whole before the journal speaks of it."""
        saved = await transfer_export.save(self.services, execution_id)
        said = Raw(msgspec.json.encode(saved))
        return saved, await self.command(execution_id, "checkpoint", by=by, command_id=command_id, data=said)

    async def restore(
        self, source: str | Path | bytes, *, force: bool = False, other_folder: bool = False, as_new: bool = False
    ) -> Restored:
        """Bring an exported execution into this journal: under its own id, or as a copy with a new one.

        Nobody drives it before it is resumed. `force` takes it in though tools, folder or version are others,
        `other_folder` only though the folder is. What is here already is added to, if it is how the file begins.
        """
        bundle = await transfer_restore.read_bundle(source)
        if not as_new:
            restored = await transfer_restore.restore(
                self.services, bundle, self._liveness.is_dead, force=force, other_folder=other_folder
            )
            await self._commands.tend_children(restored.id)
            repair.finished(self.services.data_folder, source)
            return restored
        copy = transfer_restore.copy_of(self.services, bundle, force=force, other_folder=other_folder)
        run = await self.create(copy.created, copy.blobs, copy.copied)
        return Restored(run.id, "imported", "queued", 1)

    # ---- tidying ------------------------------------------------------------------------------------------------

    async def hold(self, execution_ids: Sequence[str], why: str) -> dict[str, str]:
        """Nobody drives them, or their children, before a person resumes them. Who is left as it was, and why."""
        return await hold(self.services.store, self._liveness.is_dead, execution_ids, by_person(why))

    async def delete(
        self, execution_ids: Sequence[str], *, force: bool = False, rehearse: bool = False
    ) -> tuple[list[str], dict[str, str]]:
        """Delete what has ended, with its children and its files: who is gone, and who stays for which reason.

        `force` deletes what was set aside, too, which can never end. To rehearse is to say only who would be gone and
        who would stay.
        """
        store = self.services.store
        heads: list[Head] = []
        stays: dict[str, str] = {}
        there = {head.id: head for head in await store.heads(Query(ids=tuple(execution_ids), limit=len(execution_ids)))}
        for one in execution_ids:
            try:
                head = there.get(one)
                if head is None or head.quarantined:
                    head = await store.head(one)  # which says what is wrong
                if why := deletion.why_spared(head, self._liveness.is_dead, force=force):
                    stays[one] = why
                else:
                    heads.append(head)
            except (NotFound, StoreCorrupted) as error:  # of one, which must not keep the others from going
                stays[one] = str(error)
        bite = await deletion.delete(store, heads, self.services.data_folder, rehearse=rehearse)
        return bite.gone, stays | {head.id: await deletion.why_kept(store, head) for head in bite.kept}

    def prune(self, query: Query, *, rehearse: bool = False) -> AsyncGenerator[deletion.DeletedPage]:
        """Delete all that fit and have ended, in small bites; or only say who would go."""
        return deletion.prune(self.services.store, query, self.services.data_folder, rehearse=rehearse)

    # ---- closing ------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let running steps finish for a while, release every execution, and leave nothing behind."""
        if self._closing:
            return
        self._closing = True
        await self._keeper.stop()
        await self._owed.close()
        if self._creating:
            await asyncio.wait(set(self._creating))
        await self._keeper.shut()
        self.services.pressure.close()
        if self.services.notices is not None:
            await self.services.notices.close()
        with suppress(JournalError):
            await self.services.writer.close()
        await self.health.stop()
        await self.services.registry.close()
        self._liveness.release(self.services.driver)
        if self.services.feed.ring is not None:
            self.services.feed.ring.close()
        await self.services.store.close()


def _some(ids: Sequence[str]) -> str:
    others = len(ids) - FITTING_NAMED
    more = "many" if len(ids) > FITTING_COUNTED else others
    return ", ".join(ids[:FITTING_NAMED]) + (f" and {more} more" if others > 0 else "")
