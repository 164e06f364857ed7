"""What may leave in a message, and to whom: patterns that block or mask, recipients, a hook; never a secret.

Patterns are matched in a child (notify_matcher.py) that is killed when its time is up.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from holdfast.core.errors import InvalidCall, Misconfigured, NotPermitted, SettingsInvalid, ToolError
from holdfast.core.resources import Resources
from holdfast.core.suggest import quoted
from holdfast.tools import notify_matcher
from holdfast.tools.masks import masks
from holdfast.tools.processes import spawn

_ONE_ADDRESS = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]+@[\w-]+(\.[\w-]+)*")
MASK = "•••"
PATTERNS_S = 10.0  # for all patterns and one message; sensible ones take milliseconds
_START_S = 60.0  # for the child to begin, on a machine with a lot to do
_LIMITS = Resources(memory_bytes=500_000_000)  # its own: a step's are not about this
_ANSWER_BYTES_MAX = 32 * 1024 * 1024  # the longest message with every character masked has a tenth of that


class Filter:
    def __init__(self, block: Sequence[str], mask: Sequence[str], recipients: Sequence[str], hook: str) -> None:
        self._patterns = {"block": list(block), "mask": list(mask)}
        for setting, patterns in self._patterns.items():
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
        if any(self._patterns.values()):
            # The keeper answers on any event loop; this thread has none, so it gets one.
            title, text = asyncio.run(self._matched(title, text))
        hook = self._hook()
        for channel in channels if hook is not None else ():
            reason = hook(channel, title, text) if hook is not None else None
            if reason:
                raise NotPermitted(f"the message is not sent: {reason}")
        return title, text

    async def _matched(self, title: str, text: str) -> tuple[str, str]:
        asked = {**self._patterns, "instead": MASK, "title": title, "text": text}
        argv = [sys.executable, "-I", "-S", "-X", "utf8", notify_matcher.__file__]
        process = await spawn(argv, cwd="/", env={}, stdin=json.dumps(asked).encode(), resources=_LIMITS)
        said = b""
        try:
            async with asyncio.timeout(_START_S) as limit:
                while (piece := await process.stdout.read(65536)) and len(said) < _ANSWER_BYTES_MAX:
                    if not said:
                        limit.reschedule(asyncio.get_running_loop().time() + PATTERNS_S)
                    said += piece
        except TimeoutError:
            raise _too_slow(said) from None
        finally:
            process.close()
        return _answer(said)

    def _hook(self) -> Callable[[str, str, str], Any] | None:
        if not self._hook_name:
            return None
        module, _, function = self._hook_name.partition(":")
        try:
            return getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise Misconfigured(f"tools.notify.hook: {self._hook_name} cannot be found: {error}") from error


def _answer(said: bytes) -> tuple[str, str]:
    *_, last = said.splitlines() or [b""]
    if not last.endswith(b"}") or "setting" in (answer := json.loads(last)):
        raise ToolError(
            "the message is not sent: the process that looks for `block` and `mask` of [tools.notify] in it ended "
            "before it had answered; simplify the patterns, or try again",
            without_effect=True,
        )
    if "blocked" in answer:
        raise NotPermitted(f"the message is not sent: it fits the blocked pattern {answer['blocked']!r}")
    return answer["title"], answer["text"]


def _too_slow(said: bytes) -> ToolError:
    begun = [json.loads(line) for line in said.split(b"\n")[:-1] if line.startswith(b'{"setting"')]
    if not begun:
        return ToolError(
            f"the message is not sent: no process to look for patterns in it began within {_START_S:g} s; try again",
            without_effect=True,
        )
    return Misconfigured(
        f"tools.notify.{begun[-1]['setting']}: {begun[-1]['pattern']!r} took longer than {PATTERNS_S:g} s, so the "
        "message is not sent; simplify the pattern (nested repetitions take for ever)"
    )


def _check(pattern: str, setting: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise SettingsInvalid(f"{setting}: {pattern!r} is not a regular expression: {error}") from None
