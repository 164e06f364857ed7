"""Names of hosts made into addresses, for everything in this process that connects.

The system's look-up blocks a thread, for ever if a name server says nothing, and nobody can stop it. So look-ups have
threads of their own, and not those that the event loop has for everything: one that is given up is left behind and
another thread takes its place, and an execution that asks for many dead names takes none from the others.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from functools import partial
from typing import Any

from holdfast.core.errors import Transient
from holdfast.tools.call import running_call
from holdfast.tools.runtime.cancellation import NeverBegan, StillRunning
from holdfast.tools.runtime.thread_pool import ThreadPool

LOOKUPS_MAX = 64  # at once; more wait in line, one execution after the other
LOOKUPS_FIRST_MAX = 64  # besides these, each for an execution that has none
LOOKUPS_LEFT_MAX = 256  # that nobody waits for any more

_KIND = socket.SOCK_STREAM
_LOOK_UP = asyncio.BaseEventLoop.getaddrinfo

lookups = ThreadPool(LOOKUPS_MAX, LOOKUPS_FIRST_MAX, LOOKUPS_LEFT_MAX, of_what="look-ups of hosts")


async def looked_up(host: str, port: int, within_s: float | None = None) -> list[str]:
    loop = asyncio.get_running_loop()
    has_own = isinstance(loop, asyncio.BaseEventLoop) and _LOOK_UP is not type(loop).getaddrinfo  # such as the lab's
    if not has_own and _is_address(host):
        return [host]
    try:
        async with asyncio.timeout(within_s):
            found = await (loop.getaddrinfo(host, port, type=_KIND) if has_own else _asked(host, port))
    except TimeoutError:
        raise Transient(
            f'the host "{host}" could not be looked up within {within_s:g} s', without_effect=True
        ) from None
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or error
        raise Transient(f'the host "{host}" is not known: {said}', without_effect=True) from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _is_address(host: str) -> bool:
    """As the system spells them: what else means one, such as 127.1, is for the system to say."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _asked(host: str, port: int) -> list[Any]:
    call = running_call.get(None)
    who = call.execution_id if call is not None else ""
    try:
        return await lookups.run(partial(socket.getaddrinfo, host, port, type=_KIND), part_for=who)
    except (NeverBegan, StillRunning):
        raise asyncio.CancelledError from None  # how far the look-up came says nothing about how far its call did
