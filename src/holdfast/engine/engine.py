"""The engine of one process: start, watch, command, recover, close.

It holds the drivers that run here and one keeper task, which looks for commands, for executions whose time has come and
for those whose driver died. Everything it knows beyond that is in the store.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec import Raw

from holdfast.core import events as ev
from holdfast.core.commands import COMMAND_ID_CHARS_MAX, OURS, Answer, Command, Verb, encode_arguments
from holdfast.core.errors import (
    Fenced,
    HoldfastError,
    InputInvalid,
    JournalError,
    NotFound,
    Refused,
    ResumeMismatch,
    StoreCorrupted,
    StoreUnavailable,
)
from holdfast.core.lifecycle import ENDS
from holdfast.engine import inbox
from holdfast.engine.compat import differences
from holdfast.engine.driver import Driver
from holdfast.engine.forks import blobs_of, copied_events, task_of
from holdfast.engine.ownership import look, open_state, take
from holdfast.engine.program import Program
from holdfast.engine.run import Run
from holdfast.engine.services import Services
from holdfast.engine.slots import Slot, Slots
from holdfast.journal.liveness import Liveness
from holdfast.journal.log import Log, new_execution
from holdfast.journal.store import PENDING_PAGE, Head, Query
from holdfast.tools.tool import Tool

SWEEP_MAX = 200  # executions taken up in one sweep
CLOCK_JUMP_S = 1.0  # between two looks: more is no rounding
STRAYS_S = 10.0  # how often it is looked, without being asked, for what is held here on disk and not driven
PROBLEMS_KEPT = 10_000

Recovery = Literal["all", "family", "none"]
log = logging.getLogger("holdfast")


class Engine:
    """`recover`: "all" takes up every execution it can run, "family" its own and their children, "none" nothing."""

    def __init__(self, services: Services, liveness: Liveness, *, recover: Recovery = "all") -> None:
        self.services = services
        self._liveness = liveness
        self._recover: Recovery = recover
        self._slots = Slots(services.limits.executions, services.limits.parked)
        self._drivers: dict[str, Driver] = {}
        self._driving: set[asyncio.Task[None]] = set()
        self._submitting: set[asyncio.Future[Run]] = set()
        self._family: set[str] = set()
        self._problems: dict[str, HoldfastError] = {}
        self._left: dict[str, str] = {}  # executions this process cannot run, and why
        self._keeper: asyncio.Task[None] | None = None
        self._look_now = asyncio.Event()
        self._strays_possible = False  # a write failed: we may hold on disk what we do not drive
        self._strays_looked = float("-inf")
        self._some_wait = False  # something is due that has no slot yet
        self._clock_ahead_s = float("inf")
        self._closing = False
        services.on_child = self._child_was_born

    async def open(self) -> None:
        self._liveness.register(self.services.driver)
        try:
            self._liveness.tidy(await self.services.store.drivers())
        except BaseException:
            await self.close()  # whoever could not come in leaves nothing behind either
            raise
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), name="holdfast-keeper")

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
        self._family.add(execution_id)
        slot = Slot(self._slots, held=False)
        at_once = program is not None and not created.hold and created.concurrency is None and self._slots.free > 0
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
                self._strays_possible = True
                slot.release()
                raise
            if not written.ok:
                slot.release()
                return await self._same_key(created, written.existing)
            if at_once and program is not None:
                journal = Log(self.services.store, self.services.writer, state, new.head.digest, new.head.epoch)
                self._drive(Driver(self.services, journal, program, slot))
        if not at_once:
            self._some_wait = True
            self._look_now.set()
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
        self._family.add(existing)
        return Run(self, existing)

    def _child_was_born(self, execution_id: str) -> None:
        self._family.add(execution_id)
        self._look_now.set()

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
        return self._drivers.get(execution_id)

    def drives(self, execution_id: str) -> bool:
        return execution_id in self._drivers

    def raise_problem(self, execution_id: str) -> None:
        """What kept this process from driving it, if it is still so."""
        problem = self._problems.get(execution_id)
        if problem is not None and not self.drives(execution_id):
            raise problem

    def known_tool(self, name: str) -> Tool[..., Any] | None:
        return self.services.registry.get(name) if name in self.services.registry.names() else None

    def holdings(self) -> dict[str, int]:
        """Everything held for executions right now; all zero when nothing runs."""
        return {
            "drivers": len(self._drivers),
            "tasks": len(self._driving),
            "slots": self._slots.used,
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
        answer = await inbox.send(self.services, self._liveness, command, self._drivers.get)
        self._look_now.set()
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
        self._family.add(execution_id)
        answer = await self.command(execution_id, "resume", by=by, why=why, forced=forced)
        self._left.pop(execution_id, None)  # only now: until its differences are accepted, it may be left once more
        self._problems.pop(execution_id, None)
        self._look_now.set()
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

    # ---- driving ------------------------------------------------------------------------------------------------

    def _drive(self, driver: Driver) -> None:
        execution_id = driver.state.id
        self._drivers[execution_id] = driver

        async def drive() -> None:
            try:
                await driver.drive()
            except Exception as error:
                log.exception("the driver of %s failed", execution_id)
                driver.problem = driver.problem or JournalError(f"its driver failed: {error!r}")
            finally:
                self._drivers.pop(execution_id, None)
                if driver.state.is_ended:
                    self._family.discard(execution_id)
                if driver.problem is not None and not isinstance(driver.problem, Fenced):
                    await self._set_aside(execution_id, driver.problem)
                    self._remember_problem(execution_id, driver.problem)
                self.services.feed.notify(execution_id)
                if self._some_wait:
                    self._look_now.set()

        task = asyncio.get_running_loop().create_task(drive(), name=f"holdfast-drive {execution_id}")
        self._driving.add(task)
        task.add_done_callback(self._driving.discard)

    async def _set_aside(self, execution_id: str, problem: HoldfastError) -> None:
        """A damaged execution is quarantined; one that could not be written may still be held on disk by us."""
        if isinstance(problem, StoreCorrupted):
            with suppress(JournalError):
                await self.services.store.quarantine(execution_id, str(problem))
        self._strays_possible = True

    def _remember_problem(self, execution_id: str, problem: HoldfastError) -> None:
        if len(self._problems) >= PROBLEMS_KEPT:
            self._problems.clear()
        self._problems[execution_id] = problem

    # ---- keeping ------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Notice what others wrote, whose time has come, and who died."""
        loop, pace = asyncio.get_running_loop(), self.services.pace
        seen, swept = -1, float("-inf")
        while not self._closing:
            try:
                changes = self.services.store.changes()
                asked = self._look_now.is_set()
                self._look_now.clear()
                changed, seen = changes != seen, changes
                if changed:
                    self.services.feed.notify_others(self._drivers)
                    await self._deliver()
                self.services.feed.refresh()
                self._mind_the_clock()
                if asked or loop.time() - swept > (pace.sweep_changed_s if changed else pace.sweep_s):
                    swept = loop.time()
                    await self._sweep()
            except JournalError as error:
                log.warning("the journal cannot be read: %s", error)
            except Exception:
                log.exception("the keeper stumbled")
            with suppress(TimeoutError):
                async with asyncio.timeout(pace.look_s):
                    await self._look_now.wait()

    def _mind_the_clock(self) -> None:
        """A clock that was set forward, or a laptop that slept: what is due by now need not wait for its timer."""
        ahead_s = self.services.clock.now_us() / 1e6 - asyncio.get_running_loop().time()
        jumped = ahead_s - self._clock_ahead_s > CLOCK_JUMP_S
        self._clock_ahead_s = ahead_s
        if jumped:
            for driver in list(self._drivers.values()):
                driver.poke()

    async def _deliver(self) -> None:
        if not self._drivers:
            return
        commands = await self.services.store.pending()
        if len(commands) >= PENDING_PAGE:  # others have piled up; ask for ours alone
            commands = await self.services.store.pending(list(self._drivers))
        for command in commands:
            driver = self._drivers.get(command.execution_id)
            if driver is not None:
                driver.deliver([command])

    async def _sweep(self) -> None:
        """Take up what should be driven and is not."""
        if self._recover == "none" and not self._family:
            return
        holders = await self.services.store.drivers()
        dead = [driver for driver in holders if driver != self.services.driver and self._liveness.is_dead(driver)]
        limit = min(SWEEP_MAX, self._slots.free)
        self._some_wait = limit <= 0
        if limit <= 0:
            return
        mine = [self.services.driver] if self._look_for_strays(holders) else []
        # What is left alone, or driven here already, must not hide what is not.
        most = SWEEP_MAX + len(self._left) + len(self._problems) + (len(self._drivers) if mine else 0)
        due = await self.services.store.claimable(self.services.clock.now_us(), ["", *dead, *mine], most)
        wanted = [head for head in due if self._wants(head)]
        # Before they are taken up: whatever goes wrong there may leave new strays.
        self._strays_possible = any(head.driver == self.services.driver for head in wanted)
        taken = await asyncio.gather(*(self._adopt(head) for head in wanted[:limit]))
        self._some_wait = len(wanted) > limit
        if any(taken) and len(due) == most:
            self._look_now.set()  # there may be more

    def _look_for_strays(self, holders: Sequence[str]) -> bool:
        """Whether there may be executions that this process holds on disk and does not drive.

        A write that failed may have been written after all, and may even arrive after the error did.
        """
        now = asyncio.get_running_loop().time()
        if not self._strays_possible and now - self._strays_looked < STRAYS_S:
            return False
        self._strays_looked = now
        return self.services.driver in holders

    def _wants(self, head: Head) -> bool:
        if head.id in self._drivers or head.id in self._left or self._closing:
            return False
        problem = self._problems.get(head.id)
        if problem is not None and not isinstance(problem, StoreUnavailable) and not head.driver:
            return False  # it was let go of here, and would only be let go of again; a disk may be well by now
        if self.services.is_in_hand(head.id):
            return False  # not a stray: its driver is only just being made
        if self._recover == "all":
            return True
        if head.parent_id in self._family:
            self._family.add(head.id)
        return self._recover == "family" and head.id in self._family

    async def _adopt(self, head: Head) -> bool:
        if self.services.is_in_hand(head.id) or head.id in self._drivers:
            return False  # somebody here was quicker
        try:
            with self.services.in_hand(head.id):
                taken = await take(self.services, head)
        except StoreUnavailable as error:
            self._strays_possible = True
            log.warning("execution %s cannot be taken up now: %s", head.id, error)
            return False
        except HoldfastError as error:
            self._left[head.id] = str(error)
            self._remember_problem(head.id, error)
            self.services.feed.notify(head.id)
            log.info("execution %s is left as it is: %s", head.id, error)
            return False
        if taken is None or taken.program is None:
            return False
        self._problems.pop(head.id, None)
        self._drive(Driver(self.services, taken.log, taken.program, Slot(self._slots)))
        return True

    # ---- closing ------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let running steps finish for a while, release every execution, and leave nothing behind."""
        if self._closing:
            return
        self._closing = True
        self._look_now.set()
        if self._keeper is not None:
            await self._keeper
        if self._submitting:
            await asyncio.wait(set(self._submitting))
        drivers = list(self._drivers.values())
        await asyncio.gather(*(driver.shut() for driver in drivers))
        if self._driving:
            await asyncio.wait(set(self._driving))
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
