"""What may leave in a message, and to whom: patterns that block or mask, recipients, a hook; never a secret."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from holdfast.core.errors import InvalidCall, Misconfigured, NotPermitted, SettingsInvalid
from holdfast.core.suggest import quoted
from holdfast.tools.masks import masks

_ONE_ADDRESS = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]+@[\w-]+(\.[\w-]+)*")
MASK = "•••"


class Filter:
    def __init__(self, block: Sequence[str], mask: Sequence[str], recipients: Sequence[str], hook: str) -> None:
        self._block = [_compiled(pattern, "block") for pattern in block]
        self._mask = [_compiled(pattern, "mask") for pattern in mask]
        self._recipients = [pattern.lower() for pattern in recipients]
        self._hook_name = hook
        if hook and not re.fullmatch(r"[\w.]+:\w+", hook):
            raise SettingsInvalid(f'hook: expected "module:function", got "{hook}"')

    def check_recipient(self, address: str) -> None:
        """One person, so that what is checked is who is written to: apprise takes a list wherever it takes one."""
        if not _ONE_ADDRESS.fullmatch(address):
            raise InvalidCall(
                f'to: expected the address of one person, such as "ann@example.org", got {quoted(address)}'
            )
        if not any(fnmatchcase(address.lower(), pattern) for pattern in self._recipients):
            raise NotPermitted(f"{address} may not be written to: `recipients` in [tools.notify] does not name it")

    def passed(self, channels: Sequence[str], title: str, text: str) -> tuple[str, str]:
        """Title and text as they may be sent. Raises NotPermitted, and then nothing has been sent to anybody."""
        if name := masks.found_in(title) or masks.found_in(text):
            raise NotPermitted(f"the message is not sent: it holds the secret {name}")
        for pattern in self._block:
            if pattern.search(title) or pattern.search(text):
                raise NotPermitted(f"the message is not sent: it fits the blocked pattern {pattern.pattern!r}")
        for pattern in self._mask:
            title, text = pattern.sub(MASK, title), pattern.sub(MASK, text)
        hook = self._hook()
        for channel in channels if hook is not None else ():
            reason = hook(channel, title, text) if hook is not None else None
            if reason:
                raise NotPermitted(f"the message is not sent: {reason}")
        return title, text

    def _hook(self) -> Callable[[str, str, str], Any] | None:
        if not self._hook_name:
            return None
        module, _, function = self._hook_name.partition(":")
        try:
            return getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise Misconfigured(f"tools.notify.hook: {self._hook_name} cannot be found: {error}") from error


def _compiled(pattern: str, setting: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise SettingsInvalid(f"{setting}: {pattern!r} is not a regular expression: {error}") from None
