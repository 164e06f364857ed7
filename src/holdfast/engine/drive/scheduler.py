"""Keeps what runs here running: holds the drivers, and looks for commands, for the due and for the dead.

It has one task that looks around, a few times a second: for what other processes wrote, for executions whose time has
come, and for those whose driver died. Whatever this process cannot run is left as it is, for one that can.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, Protocol

from holdfast.core.errors import Fenced, HoldfastError, JournalError, NotFound, StoreCorrupted, StoreUnavailable
from holdfast.core.execution import Execution
from holdfast.engine.commands.inbox import CommandApplier
from holdfast.engine.drive.claims import take
from holdfast.engine.drive.driver import Driver
from holdfast.engine.drive.slots import Slot, Slots
from holdfast.engine.retention import Tidier
from holdfast.engine.services import Services
from holdfast.engine.suspend_detector import SuspendDetector
from holdfast.journal.liveness import Liveness
from holdfast.journal.store import ASKED, PENDING_PAGE, Head, Microseconds, Quarantine

SWEEP_MAX = 200  # executions taken up in one sweep
CLOCK_JUMP_S = 1.0  # between two looks: more is no rounding
STRAYS_S = 10.0  # how often it is looked, without being asked, for what is held here on disk and not driven
PROBLEMS_KEPT = 10_000

Recovery = Literal["all", "family", "none", "nothing"]
log = logging.getLogger("holdfast")


class DriverObserver(Protocol):
    """Somebody who is told what this process drives, such as a worker that writes it down."""

    def taken(self, state: Execution) -> None: ...

    def let_go(self, state: Execution, problem: HoldfastError | None) -> None:
        """It ended, waits, or another process is to go on with it."""
        ...

    def left(self, head: Head, why: str) -> None:
        """It should be driven, and this process cannot."""
        ...

    def deleted(self, execution_ids: Sequence[str]) -> None: ...  # by the retention policy


class Scheduler:
    def __init__(self, services: Services, liveness: Liveness, recover: Recovery) -> None:
        self._services = services
        self._liveness = liveness
        self._recover: Recovery = recover
        self.drives_anything = recover != "nothing"
        self.recovers_all = recover == "all"
        self.slots = Slots(services.limits.executions, services.limits.parked)
        self.drivers: dict[str, Driver] = {}
        self.driving: set[asyncio.Task[None]] = set()
        self.family: set[str] = set()  # started here, and their children
        self.problems: dict[str, HoldfastError] = {}  # what kept this process from driving it
        self.left: dict[str, str] = {}  # executions this process cannot run, and why
        self.strays_possible = False  # a write failed: we may hold on disk what we do not drive
        self.some_wait = False  # something is due that has no slot yet
        self._commander = CommandApplier(services, liveness, self.drivers.get)
        self.onlooker: DriverObserver | None = None
        self._strays_looked = float("-inf")
        self._clock_ahead_s = float("inf")
        self.standing: SuspendDetector | None = None  # since the first look
        self._stood_still = False
        self._look_now = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._vigil: asyncio.Task[None] | None = None
        kept = services.retention if recover in ("all", "family") else None
        self._tidier = Tidier(services, kept, self._tell_deleted) if kept else None
        self._closing = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="holdfast-keeper")
        if self._tidier is not None and self.recovers_all:
            self._tidier.start()

    def look(self) -> None:
        """Look around now: something was written, or somebody's time has come."""
        self._look_now.set()

    async def stop(self) -> None:
        """Take up nothing more."""
        self._closing = True
        self.look()
        if self._task is not None:
            await self._task
            self._vigil = asyncio.get_running_loop().create_task(self._keep_vigil(), name="holdfast-vigil")
        if self._tidier is not None:
            await self._tidier.stop()
            if not self.recovers_all:
                await self._tidier.bite()  # where no engine stays, whoever comes by does a little

    async def shut(self) -> None:
        """Let running steps finish for a while, and let go of every execution."""
        await asyncio.gather(*(driver.shut() for driver in list(self.drivers.values())))
        if self.driving:
            await asyncio.wait(set(self.driving))
        if self._vigil is not None:
            self._vigil.cancel()
            await asyncio.wait({self._vigil})

    def _tell_deleted(self, execution_ids: Sequence[str]) -> None:
        if self.onlooker is not None:
            self.onlooker.deleted(execution_ids)

    # ---- driving ------------------------------------------------------------------------------------------------

    def drive(self, driver: Driver) -> None:
        execution_id = driver.state.id
        self.drivers[execution_id] = driver
        if self.onlooker is not None:
            self.onlooker.taken(driver.state)

        async def drive() -> None:
            try:
                await driver.drive()
            except Exception as error:
                log.exception("the driver of %s failed", execution_id)
                driver.problem = driver.problem or JournalError(f"its driver failed: {error!r}")
            finally:
                self.drivers.pop(execution_id, None)
                if driver.state.is_ended:
                    self.family.discard(execution_id)
                if driver.state.is_ended or driver.state.status == "interrupted":
                    self._services.registry.forget(execution_id)
                if driver.problem is not None and not isinstance(driver.problem, Fenced):
                    await self._set_aside(execution_id, driver.problem)
                    self._remember_problem(execution_id, driver.problem)
                self._services.feed.notify(execution_id)
                if self.onlooker is not None:
                    self.onlooker.let_go(driver.state, driver.problem)
                if self.some_wait:
                    self.look()

        task = asyncio.get_running_loop().create_task(drive(), name=f"holdfast-drive {execution_id}")
        self.driving.add(task)
        task.add_done_callback(self.driving.discard)

    async def _set_aside(self, execution_id: str, problem: HoldfastError) -> None:
        """A damaged execution is quarantined; one that could not be written may still be held on disk by us."""
        if isinstance(problem, StoreCorrupted):
            with suppress(JournalError):
                await self._services.store.commit([Quarantine(execution_id=execution_id, why=str(problem))])
        self.strays_possible = True

    def _remember_problem(self, execution_id: str, problem: HoldfastError) -> None:
        if len(self.problems) >= PROBLEMS_KEPT:
            self.problems.clear()
        self.problems[execution_id] = problem

    # ---- looking around -----------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Notice what others wrote, whose time has come, and who died."""
        loop, pace = asyncio.get_running_loop(), self._services.pace
        seen, swept = -1, float("-inf")
        while not self._closing:
            try:
                changes = self._services.store.changes()
                asked = self._look_now.is_set()
                self._look_now.clear()
                changed, seen = changes != seen, changes
                if changed:
                    self._services.feed.notify_others(self.drivers)
                    await self._deliver()
                self._services.feed.refresh()
                self._mind_the_clock()
                await self._mind_a_sleep()
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

    async def _keep_vigil(self) -> None:
        """Nothing more is taken up; but what runs may run for a while, and its process may sleep as it could before, or
        have woken up to be told to close."""
        while True:
            try:
                await self._mind_a_sleep()
            except JournalError as error:
                log.warning("the journal cannot be read: %s", error)
            except Exception:
                log.exception("the keeper stumbled")
            await asyncio.sleep(self._services.pace.look_s)

    def _mind_the_clock(self) -> None:
        """A clock that was set forward, or a laptop that slept: what is due by now need not wait for its timer."""
        ahead_s = self._services.clock.now_us() / 1e6 - asyncio.get_running_loop().time()
        jumped = ahead_s - self._clock_ahead_s > CLOCK_JUMP_S
        self._clock_ahead_s = ahead_s
        if jumped:
            for driver in list(self.drivers.values()):
                driver.wake_ready()

    async def _mind_a_sleep(self) -> None:
        """Who stood still for long may have been replaced, and must not work on until a write is refused."""
        loop_s = asyncio.get_running_loop().time()
        self.standing = self.standing or SuspendDetector(self._services, loop_s)
        self._stood_still = self.standing.stood_still(loop_s) or self._stood_still
        for driver in list(self.drivers.values()) if self._stood_still else ():
            try:
                head = await self._services.store.head(driver.state.id)
            except NotFound:
                head = None  # ended by somebody else, and deleted since
            driver.log.compare(head)
        self._stood_still = False  # only now: a store that cannot be read yet is asked again at the next look

    async def _deliver(self) -> None:
        if not self.drivers:
            return
        commands = await self._services.store.pending()
        if len(commands) >= PENDING_PAGE:  # others have piled up; ask for ours alone
            commands = await self._services.store.pending(list(self.drivers))
        for command in commands:
            driver = self.drivers.get(command.execution_id)
            if driver is not None:
                driver.deliver([command])

    async def _sweep(self) -> None:
        """Take up what should be driven and is not."""
        if not self.drives_anything or (self._recover == "none" and not self.family):
            return
        holders = await self._services.store.drivers()
        dead = [driver for driver in holders if driver != self._services.driver and self._liveness.is_dead(driver)]
        limit = min(SWEEP_MAX, self.slots.free)
        self.some_wait = limit <= 0
        if limit <= 0:
            return
        mine = [self._services.driver] if self._look_for_strays(holders) else []
        # What is left alone, or driven here already, must not hide what is not.
        most = SWEEP_MAX + len(self.left) + len(self.problems) + (len(self.drivers) if mine else 0)
        due = await self._services.store.claimable(self._services.clock.now_us(), ["", *dead, *mine], most)
        wanted = [head for head in due if self._wants(head)]
        # Before they are taken up: whatever goes wrong there may leave new strays.
        self.strays_possible = any(head.driver == self._services.driver for head in wanted)
        taken = await asyncio.gather(*(self._adopt(head) for head in wanted[:limit]))
        self.some_wait = len(wanted) > limit
        if any(taken) and len(due) == most:
            self.look()  # there may be more

    async def due(self, until: Microseconds, limit: int) -> list[Head]:
        """What should be driven by then, is driven by nobody, and could be driven here."""
        holders = await self._services.store.drivers()
        dead = [driver for driver in holders if driver != self._services.driver and self._liveness.is_dead(driver)]
        found = await self._services.store.claimable(until, ["", *dead], limit + len(self.left) + len(self.problems))
        return [head for head in found if self._wants(head)]

    def _look_for_strays(self, holders: Sequence[str]) -> bool:
        """Whether there may be executions that this process holds on disk and does not drive.

        A write that failed may have been written after all, and may even arrive after the error did.
        """
        now = asyncio.get_running_loop().time()
        if not self.strays_possible and now - self._strays_looked < STRAYS_S:
            return False
        self._strays_looked = now
        return self._services.driver in holders

    def _wants(self, head: Head) -> bool:
        if head.id in self.drivers or self._closing:
            return False
        if self._is_left(head) and head.wake_at != ASKED:
            return False
        if self._services.is_in_hand(head.id):
            return False  # not a stray: its driver is only just being made
        if self._recover == "all":
            return True
        if head.parent_id in self.family:
            self.family.add(head.id)
        return self._recover == "family" and head.id in self.family

    def _is_left(self, head: Head) -> bool:
        """Whether this process could not run it; or let go of it, and would only let go of it again."""
        if head.id in self.left:
            return True
        problem = self.problems.get(head.id)  # but a disk may be well by now
        return problem is not None and not isinstance(problem, StoreUnavailable) and not head.driver

    async def _answer(self, head: Head) -> None:
        """What is asked of one that cannot be driven here is answered all the same: whoever asked may be gone."""
        try:
            await self._commander.apply_alone(head.id)
        except HoldfastError as error:
            log.warning("what was asked of execution %s cannot be answered: %s", head.id, error)

    async def _adopt(self, head: Head) -> bool:
        if self._services.is_in_hand(head.id) or head.id in self.drivers:
            return False  # somebody here was quicker
        if self._is_left(head):
            await self._answer(head)
            return False
        try:
            with self._services.in_hand(head.id):
                taken = await take(self._services, head)
        except (Fenced, StoreUnavailable) as error:  # fenced perhaps by a claim of our own that arrived late
            self.strays_possible = True
            log.warning("execution %s cannot be taken up now: %s", head.id, error)
            return False
        except HoldfastError as error:
            self.left[head.id] = str(error)
            if self.onlooker is not None:
                self.onlooker.left(head, str(error))
            self._remember_problem(head.id, error)
            self._services.feed.notify(head.id)
            log.info("execution %s is left as it is: %s", head.id, error)
            if head.wake_at == ASKED:
                await self._answer(head)
            return False
        if taken is None or taken.program is None:
            return False
        self.problems.pop(head.id, None)
        self.drive(Driver(self._services, taken.log, taken.program, Slot(self.slots)))
        return True
