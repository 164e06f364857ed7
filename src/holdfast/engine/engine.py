"""The engine of one process: start, watch, command, resume, fork, close.

Here is what others may ask of it. What runs here, and what must be looked for, is kept in keeping.py; everything else
that it knows is in the store.
"""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.commands import COMMAND_ID_CHARS_MAX, OURS, Answer, Command, Verb, encode_arguments
from holdfast.core.errors import (
    InputInvalid,
    JournalError,
    NotFound,
    Refused,
    ResumeMismatch,
)
from holdfast.core.lifecycle import ENDS
from holdfast.engine import inbox
from holdfast.engine.compat import differences
from holdfast.engine.driver import Driver
from holdfast.engine.forks import blobs_of, copied_events, task_of
from holdfast.engine.keeping import Keeper, Recovery
from holdfast.engine.ownership import look, open_state
from holdfast.engine.program import Program
from holdfast.engine.run import Run
from holdfast.engine.services import Services
from holdfast.engine.slots import Slot
from holdfast.journal.liveness import Liveness
from holdfast.journal.log import Log, new_execution
from holdfast.journal.store import Head, Query
from holdfast.tools.tool import Tool


class Engine:
    """`recover`: "all" takes up every execution it can run, "family" its own and their children, "none" nothing."""

    def __init__(self, services: Services, liveness: Liveness, *, recover: Recovery = "all") -> None:
        self.services = services
        self._liveness = liveness
        self._keeper = Keeper(services, liveness, recover)
        self._submitting: set[asyncio.Future[Run]] = set()
        self._closing = False
        services.on_child = self._child_was_born

    async def open(self) -> None:
        self._liveness.register(self.services.driver)
        try:
            self._liveness.tidy(await self.services.store.drivers())
        except BaseException:
            await self.close()  # whoever could not come in leaves nothing behind either
            raise
        self._keeper.start()

    # ---- starting -----------------------------------------------------------------------------------------------

    async def submit(
        self,
        created: ev.TaskCreated,
        blobs: Sequence[tuple[str, bytes]] = (),
        copied: Sequence[ev.Event] = (),
        program: Program | None = None,
    ) -> Run:
        """Hand a task in. When this returns it is on disk, and will be driven to its end."""
        if self._closing:
            raise Refused("the engine is closing; start the task with another one")
        # Shielded: whoever asked may be cancelled, but what was written must be driven. A closing engine waits for it.
        submitting = asyncio.ensure_future(self._submit(created, blobs, copied, program))
        self._submitting.add(submitting)
        submitting.add_done_callback(self._submitting.discard)
        return await asyncio.shield(submitting)

    async def _submit(
        self,
        created: ev.TaskCreated,
        blobs: Sequence[tuple[str, bytes]],
        copied: Sequence[ev.Event],
        program: Program | None,
    ) -> Run:
        execution_id = self.services.new_id()
        self._keeper.family.add(execution_id)
        slot = Slot(self._keeper.slots, held=False)
        at_once = (
            program is not None and not created.hold and created.concurrency is None and self._keeper.slots.free > 0
        )
        events: list[ev.Event] = [created, *copied]
        if at_once:
            await slot.acquire()
            events.append(ev.TaskStarted(at=created.at, because="created", driver=self.services.driver))
        driver = self.services.driver if at_once else ""
        new, state = new_execution(execution_id, events, driver=driver, blobs=blobs)
        with self.services.in_hand(execution_id):
            try:
                written = await self.services.writer.write(new)
            except BaseException:
                self._keeper.strays_possible = True
                slot.release()
                raise
            if not written.ok:
                slot.release()
                return await self._same_key(created, written.existing)
            if at_once and program is not None:
                journal = Log(self.services.store, self.services.writer, state, new.head.digest, new.head.epoch)
                self._keeper.drive(Driver(self.services, journal, program, slot))
        if not at_once:
            self._keeper.some_wait = True
            self._keeper.look()
        return Run(self, execution_id)

    async def _same_key(self, created: ev.TaskCreated, existing: str) -> Run:
        """The key was used before: the same task is answered with the same execution, another one is refused."""
        _, state, _ = await open_state(self.services, existing)
        other = state.facts()
        if task_of(other) != task_of(created):
            raise Refused(
                f'the key "{created.key}" belongs to execution {existing}, a different task '
                f"({other.program.name}); use another key"
            )
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
        found = await self.services.store.find(fragment) if fragment else []
        if not found:
            raise NotFound(f'there is no execution "{fragment}"; `holdfast list` shows them')
        if len(found) > 1:
            raise NotFound(f'"{fragment}" fits more than one execution: {", ".join(found)}; give more of the id')
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

    def raise_problem(self, execution_id: str) -> None:
        """What kept this process from driving it, if it is still so."""
        problem = self._keeper.problems.get(execution_id)
        if problem is not None and not self.drives(execution_id):
            raise problem

    def known_tool(self, name: str) -> Tool[..., Any] | None:
        return self.services.registry.get(name) if name in self.services.registry.names() else None

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

    async def command(
        self, execution_id: str, verb: Verb, *, by: str = "", command_id: str = "", **arguments: Any
    ) -> Answer:
        if len(command_id) > COMMAND_ID_CHARS_MAX:
            raise InputInvalid(f"a command's id has {len(command_id):,} characters, {COMMAND_ID_CHARS_MAX} are allowed")
        if command_id.startswith(OURS):
            raise InputInvalid(f"a command's id may not begin with \"{OURS}\"; those are Holdfast's own")
        command = Command(
            id=command_id or self.services.new_id(),
            execution_id=execution_id,
            verb=verb,
            at=self.services.clock.now_us(),
            by=by or _user(),
            arguments=encode_arguments(**arguments),
        )
        answer = await inbox.send(self.services, self._liveness, command, self._keeper.drivers.get)
        self._keeper.look()
        return answer

    async def resume(self, execution_id: str, *, by: str = "", why: str = "", force: bool = False) -> Answer:
        """Validate, then go on: what was paused or interrupted is resumed, what nobody drives is driven here."""
        _, state, _ = await open_state(self.services, execution_id)
        forced: tuple[str, ...] = ()
        if not state.is_ended:
            found = differences(state, self.services)
            if found and not force:
                raise ResumeMismatch(found)
            forced = tuple(found)
            if not force:
                await look(self.services, execution_id)
        self._keeper.family.add(execution_id)
        answer = await self.command(execution_id, "resume", by=by, why=why, forced=forced)
        self._keeper.left.pop(
            execution_id, None
        )  # only now: until its differences are accepted, it may be left once more
        self._keeper.problems.pop(execution_id, None)
        self._keeper.look()
        if answer.outcome == "refused":
            raise Refused(answer.text)
        return answer

    async def check_extension(self, execution_id: str, steps: Sequence[Mapping[str, Any]]) -> Raw:
        """New steps for a running plan, validated like the plan itself."""
        _, state, _ = await open_state(self.services, execution_id)
        if state.status in ENDS:
            raise Refused(f"the execution is {state.status}; a plan can only be extended before its end")
        kind = self.services.programs[state.facts().program.kind]
        extend = getattr(kind, "check_extension", None)
        if extend is None:
            raise Refused(f"only plans can be extended; this is a {state.facts().program.kind}")
        return extend(state, list(steps))

    async def fork(
        self, execution_id: str, *, at: str = "", replacing: ev.TaskCreated | None = None, by: str = ""
    ) -> Run:
        """A new execution that keeps what was done before step `at`, or, without it, all that completed."""
        now = self.services.clock.now_us()
        created, copied = await copied_events(self.services.store, execution_id, at, now)
        base = replacing or created
        fresh = msgspec.structs.replace(
            base,
            at=now,
            key="",
            hold=False,
            parent=None,
            owner=by or created.owner,
            forked_from=ev.ForkedFrom(id=execution_id, at=at),
        )
        kind = self.services.programs.get(fresh.program.kind)
        if kind is None:
            raise NotFound(f"nothing here can run a program of kind {fresh.program.kind}")
        blobs = await blobs_of(self.services.store, [fresh, *copied])
        _, state = new_execution("preview", [fresh, *copied])
        return await self.submit(fresh, blobs, copied, kind.open(fresh, state))

    # ---- closing ------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let running steps finish for a while, release every execution, and leave nothing behind."""
        if self._closing:
            return
        self._closing = True
        await self._keeper.stop()
        if self._submitting:
            await asyncio.wait(set(self._submitting))
        await self._keeper.shut()
        with suppress(JournalError):
            await self.services.writer.close()
        self._liveness.release(self.services.driver)
        if self.services.feed.ring is not None:
            self.services.feed.ring.close()
        await self.services.store.close()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
