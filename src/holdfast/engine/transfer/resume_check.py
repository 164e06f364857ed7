"""Whether an execution can go on with what is here today: circumstances, prerequisites, and the code itself.

Asked before a person's `resume` changes anything, and by `holdfast check --against`. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.core.errors import Divergence, HoldfastError, Misconfigured
from holdfast.core.execution import Execution
from holdfast.engine.drive.claims import open_state
from holdfast.engine.services import Services
from holdfast.engine.transfer.compatibility import differences
from holdfast.engine.transfer.replay import Replayed, replay
from holdfast.journal.store import Head


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of one execution here. Without problems it goes on with the steps named."""

    id: str
    name: str
    status: str
    problems: tuple[str, ...] = ()
    goes_on_with: tuple[str, ...] = ()


async def check_prerequisites(services: Services, state: Execution) -> None:
    """What its steps need on this machine is asked for as when it was started."""
    if lacking := _unmet(services, state):
        raise Misconfigured("\n".join(["nothing was changed, because something is missing:", *lacking]))


def _unmet(services: Services, state: Execution) -> Sequence[str]:
    kind = services.programs.get(state.facts().program.kind)
    unmet = getattr(kind, "unmet", None)
    return unmet(state) if unmet is not None else ()


async def check_replay(services: Services, head: Head, is_dead: Callable[[str], bool]) -> None:
    """Raises the Divergence that its code would meet. Of one that is driven, its driver would have told."""
    if not head.driver or is_dead(head.driver):
        _, state, _ = await open_state(services, head.id)
        replayed = await _replayed(services, state)
        if replayed.divergence:
            raise Divergence(replayed.divergence)


async def _replayed(services: Services, state: Execution) -> Replayed:
    created = state.facts()
    if created.program.kind != "function" or not state.started_at:
        return Replayed()
    kind = services.programs[created.program.kind]
    opened = getattr(kind, "open_for_replay", kind.open)(created, state)
    return await replay(services, state, opened)


async def outlook(services: Services, execution_id: str) -> Outlook:
    head, state, _ = await open_state(services, execution_id)
    told = Outlook(id=head.id, name=head.name, status=head.status)
    if state.is_ended:
        return told
    problems = [*differences(state, services), *_unmet(services, state)]
    goes_on_with: tuple[str, ...] = ()
    try:
        replayed = await _replayed(services, state)
        goes_on_with = replayed.goes_on_with
        problems += [replayed.divergence] if replayed.divergence else []
    except HoldfastError as error:  # it is not here, or its inputs do not fit any more
        problems.append(str(error))
    return msgspec.structs.replace(told, problems=tuple(problems), goes_on_with=goes_on_with)
