"""`ctx.gather`: branches side by side, each in a task of its own, and a known state when one of them fails.

When a branch fails, no other one begins anything. What they run comes to its end and is recorded, what they wait for is
given up, and each gets `Cancelled` at its next `ctx` call. Then the first error is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from holdfast.core.errors import Cancelled
from holdfast.programs.answer_order import AnswerOrder, Branch
from holdfast.programs.function_tasks import AnyTask, current

Make = Callable[[], Coroutine[Any, Any, Any]]


class Gathering:
    def __init__(self, order: AnswerOrder, makes: Sequence[Make], *, settle: bool, limit: int) -> None:
        self._order = order
        self._makes = makes
        self._settle = settle
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._outcomes: list[Any] = [None] * len(makes)
        self._branches: dict[int, Branch] = {}  # those that run
        self._tasks: dict[int, AnyTask] = {}
        self._next = 0
        self._error: BaseException | None = None
        self._caller = current()
        self._outer = order.branch_of(self._caller)

    async def run(self) -> list[Any]:
        self._start_more()
        if self._branches:
            self._order.enter(self._caller)
            try:
                await self._done
            except BaseException:  # the function is put to sleep or cut: none may go on behind its back
                await self._cut()
                raise
            finally:
                self._order.wake(self._caller)
        if self._error is not None:
            raise self._error
        return self._outcomes

    def _start_more(self) -> None:
        while self._next < len(self._makes) and len(self._branches) < self._limit and self._error is None:
            index, self._next = self._next, self._next + 1
            branch = self._branches[index] = Branch(self._outer)
            task = self._loop.create_task(self._run(index, branch))
            if index in self._branches and index not in self._tasks:  # an eager one has begun, and perhaps ended
                self._join(index, task, branch)

    def _join(self, index: int, task: AnyTask, branch: Branch) -> None:
        self._tasks[index] = task
        self._order.join(task, branch)

    async def _run(self, index: int, branch: Branch) -> None:
        if index not in self._tasks:
            self._join(index, current(), branch)
        try:
            self._outcomes[index] = await self._makes[index]()
        except BaseException as error:  # every way to end is an outcome; the caller raises it
            if isinstance(error, Exception) and self._settle:
                self._outcomes[index] = error
            else:
                self._fail(index, error)
        self._end(index)

    def _fail(self, index: int, error: BaseException) -> None:
        if self._error is not None:
            return
        self._error = error
        for other, branch in self._branches.items():
            if other != index:
                self._order.cancel(branch)

    def _end(self, index: int) -> None:
        task = self._tasks.pop(index)
        del self._branches[index]
        self._start_more()
        if not self._branches and not self._done.done():
            self._done.set_result(None)
            self._order.wake(self._caller)
        self._order.leave(task)

    async def _cut(self) -> None:
        self._error = self._error or Cancelled()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            self._order.leave(task)
