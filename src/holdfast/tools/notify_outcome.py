"""What became of a message that was handed to apprise: taken, certainly not sent, or nobody knows.

apprise says yes or no, and a no can mean anything: a service that took the message and then broke off sounds like one
that was never reached. The difference is in what its services tell their log, so that is listened to. Only one thing
counts as not sent: the one connection that was tried was refused, or its host not found. Refuses to guess beyond that.
"""

from __future__ import annotations

import errno
import logging
import re
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import Misconfigured, ToolError, Transient

_BROKE = "Socket Exception"  # how every service of apprise begins to tell of a connection that failed
# From the beginning: what the other side answered may hold any words. A negative number is one of the look-up.
_NEVER_CONNECTED = re.compile(
    rf"{_BROKE}: (\[Errno (-\d+|{errno.ECONNREFUSED})\] "
    r"|HTTPS?ConnectionPool\(host='[^']*', port=\d+\): Max retries exceeded with url: \S* "
    r"\(Caused by (NameResolutionError|NewConnectionError)\()"
)

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


class Ears(_Adapter):
    """Stands in for the log of one service, hears what it says, and passes it on."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})
        self._broke: list[str] = []
        self._has_sent = False

    def log(self, level: int, msg: object, *args: object, **others: Any) -> None:
        told = str(msg) % args if args else str(msg)
        if told.startswith(_BROKE):
            self._broke.append(told)
        elif level == logging.INFO:
            self._has_sent = True  # "Sent …": with several people, or a text in several parts, one of them was told
        super().log(level, msg, *args, **others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.logger, name)  # apprise has levels of its own

    @property
    def nothing_sent(self) -> bool:
        return not self._has_sent and len(self._broke) == 1 and bool(_NEVER_CONNECTED.match(self._broke[0]))


def failure_of(channel: str, result: Any, is_unmatched: bool, nothing_sent: bool) -> ToolError:
    said = "; ".join(dict.fromkeys(str(entry.message) for entry in result.logs())) or "no reason given"
    text = f'the channel "{channel}" did not confirm: {said}'
    if is_unmatched:
        return Misconfigured(text)
    return Transient(text, without_effect=nothing_sent and not result.timeout_count)
