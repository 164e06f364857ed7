"""What may leave in a message, and to whom: patterns that block or mask, recipients, a hook; never a secret.

Patterns are matched in a child (regex.py) that is killed when its time is up.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from holdfast.core.error_text import quoted
from holdfast.core.errors import InvalidCall, Misconfigured, NotPermitted, SettingsInvalid, ToolError
from holdfast.core.resources import Resources
from holdfast.tools.processes.regex import NoAnswer, Request, TooSlow, match
from holdfast.tools.secrets.redaction import masks

_ONE_ADDRESS = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]+@[\w-]+(\.[\w-]+)*")
MASK = "•••"
PATTERNS_S = 10.0  # for all patterns and one message; sensible ones take milliseconds
_START_S = 60.0  # for the child to begin, on a machine with a lot to do
_LIMITS = Resources(memory_bytes=500_000_000)  # its own: a step's are not about this


class Filter:
    def __init__(self, block: Sequence[str], mask: Sequence[str], recipients: Sequence[str], hook: str) -> None:
        self._block, self._mask = list(block), list(mask)
        for setting, patterns in (("block", self._block), ("mask", self._mask)):
            for pattern in patterns:
                _check(pattern, setting)
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
        """Title and text as they may be sent. Whatever it raises, nothing has been sent to anybody. Blocks."""
        if name := masks.found_in(title) or masks.found_in(text):
            raise NotPermitted(f"the message is not sent: it holds the secret {name}")
        if self._block or self._mask:
            title, text = self._matched(title, text)
        hook = self._hook()
        for channel in channels if hook is not None else ():
            reason = hook(channel, title, text) if hook is not None else None
            if reason:
                raise NotPermitted(f"the message is not sent: {reason}")
        return title, text

    def _matched(self, title: str, text: str) -> tuple[str, str]:
        requests = [Request(pattern) for pattern in self._block] + [Request(one, instead=MASK) for one in self._mask]
        try:
            outcome = match((title, text), requests, patience_s=PATTERNS_S, start_s=_START_S, resources=_LIMITS)
        except TooSlow as error:
            raise self._too_slow(error.request) from None
        except NoAnswer:
            raise ToolError(
                "the message is not sent: the process that looks for `block` and `mask` of [tools.notify] in it ended "
                "before it had answered; simplify the patterns, or try again",
                without_effect=True,
            ) from None
        if outcome.found:
            pattern = self._block[outcome.request]
            raise NotPermitted(f"the message is not sent: it fits the blocked pattern {pattern!r}")
        return (outcome.texts[0], outcome.texts[1]) if self._mask else (title, text)

    def _too_slow(self, number: int | None) -> ToolError:
        if number is None:
            return ToolError(
                f"the message is not sent: no process to look for patterns in it began within "
                f"{_START_S:g} s; try again",
                without_effect=True,
            )
        setting = "block" if number < len(self._block) else "mask"
        pattern = [*self._block, *self._mask][number]
        return Misconfigured(
            f"tools.notify.{setting}: {pattern!r} took longer than {PATTERNS_S:g} s, so the message is not sent; "
            "simplify the pattern (nested repetitions take for ever)"
        )

    def _hook(self) -> Callable[[str, str, str], Any] | None:
        if not self._hook_name:
            return None
        module, _, function = self._hook_name.partition(":")
        try:
            return getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise Misconfigured(f"tools.notify.hook: {self._hook_name} cannot be found: {error}") from error


def _check(pattern: str, setting: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise SettingsInvalid(f"{setting}: {pattern!r} is not a regular expression: {error}") from None
