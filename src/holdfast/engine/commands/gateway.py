"""The one way in for commands, whoever gives them: the command line, a `Run`, a test, a server.

It checks what comes with a command, gives it an id, writes it into the inbox and waits for its answer. From there
`family.apply_command` is the one place where a command becomes events; its rules are in core/commands.py.
"""

from __future__ import annotations

import getpass
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Raw

from holdfast.core.commands import COMMAND_ID_CHARS_MAX, OURS, Answer, Command, Verb, encode_arguments
from holdfast.core.errors import InputInvalid, Refused
from holdfast.core.events import Request
from holdfast.core.execution import Execution
from holdfast.core.lifecycle import ENDS
from holdfast.engine.commands import inbox
from holdfast.engine.commands.builders import CommandRequest
from holdfast.engine.commands.hold import let_go
from holdfast.engine.commands.inbox import DriverOf
from holdfast.engine.commands.validation import edits_objection
from holdfast.engine.drive.claims import open_state
from holdfast.engine.services import Services
from holdfast.journal.blobs import fetch_value
from holdfast.journal.liveness import Liveness
from holdfast.journal.log import read_state
from holdfast.tools.json_values import encode

POSTED_TOGETHER = 1000  # commands in one transaction: more would keep others from writing for too long


class CommandGateway:
    """`wake` makes the engine look around, because an execution may have to be driven after its command."""

    def __init__(self, services: Services, liveness: Liveness, driver_of: DriverOf, wake: Callable[[], None]) -> None:
        self._services = services
        self._liveness = liveness
        self._driver_of = driver_of
        self._wake = wake

    async def give(self, execution_id: str, order: CommandRequest, *, by: str = "", command_id: str = "") -> Answer:
        """Give one execution a command. The answer says whether it was applied, changed nothing, waits or was refused.

        Raises InputInvalid for what cannot fit the step that asks. The same `command_id` again means the same command.
        """
        arguments = {**order.arguments, **await self._checked(execution_id, order)}
        command = self._command(execution_id, order.verb, by, command_id, arguments)
        answer = await inbox.send(self._services, self._liveness, command, self._driver_of)
        self._wake()
        return answer

    async def give_many(
        self, execution_ids: Sequence[str], order: CommandRequest, *, bulk_id: str, by: str = ""
    ) -> AsyncIterator[tuple[str, Answer]]:
        """The same command for many executions, and what became of each, as the answers come.

        All are written first, up to POSTED_TOGETHER in one transaction: after that each is applied whatever becomes of
        this process. The same `bulk_id` again goes on with what is not answered yet, and does nothing twice.
        """
        commands = [self._command(one, order.verb, by, f"{bulk_id}:{one}", order.arguments) for one in execution_ids]
        chunks = [commands[at : at + POSTED_TOGETHER] for at in range(0, len(commands), POSTED_TOGETHER)]
        refused: dict[str, Refused] = {}
        for chunk in chunks:
            refused |= await inbox.post(self._services, chunk)
        for chunk in chunks:
            answers = inbox.settle_all(self._services, self._liveness, chunk, self._driver_of, refused)
            async for command, answer in answers:
                if command.verb == "resume" and answer.outcome != "refused":
                    await let_go(self._services.store, command.execution_id)
                yield command.execution_id, answer
        self._wake()

    async def tend_children(self, execution_id: str) -> None:
        """Apply what waits for children that nobody drives."""
        await inbox.CommandApplier(self._services, self._liveness, self._driver_of).tend_children(execution_id)

    def _command(
        self, execution_id: str, verb: Verb, by: str, command_id: str, arguments: Mapping[str, Any]
    ) -> Command:
        if len(command_id) > COMMAND_ID_CHARS_MAX:
            raise InputInvalid(f"a command's id has {len(command_id):,} characters, {COMMAND_ID_CHARS_MAX} are allowed")
        if command_id.startswith(OURS):
            raise InputInvalid(f"a command's id may not begin with \"{OURS}\"; those are Holdfast's own")
        return Command(
            id=command_id or self._services.new_id(),
            execution_id=execution_id,
            verb=verb,
            at=self._services.clock.now_us(),
            by=by or user(),
            arguments=encode_arguments(**arguments),
        )

    # ---- what comes with a command -------------------------------------------------------------------------------

    async def _checked(self, execution_id: str, order: CommandRequest) -> dict[str, Any]:
        """What a person changes must fit the tool, as what a program asks for must. Returns what was made of it."""
        if order.steps is not None:
            return {"data": await self._extension(execution_id, order.steps)}
        if order.edits is None and order.output is UNSET:
            return {}
        _, state, _ = await read_state(self._services.store, execution_id)
        request = _request_meant(state, order.arguments["step"])
        if request is None:
            return {}  # it is refused by the rules, which say what is asked
        tool, objection = self._services.known_tool(request.tool), ""
        if order.edits is not None:
            own = await fetch_value(self._services.store, request.arguments)
            objection = edits_objection(tool, own, encode(order.edits, "the edited arguments"))
        if not objection and order.output is not UNSET and not request.keeps:
            objection = self._services.output_objection(state, request, encode(order.output, "the output"))
        if objection:
            raise InputInvalid(objection)
        return {}

    async def _extension(self, execution_id: str, steps: Sequence[Mapping[str, Any]]) -> Raw:
        """New steps for a running plan, validated like the plan itself."""
        _, state, _ = await open_state(self._services, execution_id)
        if state.status in ENDS:
            raise Refused(f"the execution is {state.status}; a plan can only be extended before its end")
        kind = self._services.programs[state.facts().program.kind]
        extend = getattr(kind, "check_extension", None)
        if extend is None:
            raise Refused(f"only plans can be extended; this is a {state.facts().program.kind}")
        return extend(state, list(steps))


def _request_meant(state: Execution, step: str) -> Request | None:
    """By a step's path, a request's id, or nothing if there is only one open."""
    open_requests = [asked.request for asked in state.open_requests()]
    fitting = [request for request in open_requests if not step or step in (request.id, request.path)]
    return fitting[0] if len(fitting) == 1 else None


def user() -> str:
    """Who runs this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
