"""Hears what tools print and log, by the call that is running where they do.

While something is driven, `sys.stdout` and `sys.stderr` are covered by a stream that passes everything on unchanged,
and log records are looked at when they are made. Nothing that is said outside a tool is kept, and no handler, level or
format of anybody's is touched. What is passed on differs in one thing: secrets are masked, also those that come in
pieces. What is written straight to a descriptor is neither heard nor masked.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from holdfast.tools.call import Call, running_call
from holdfast.tools.secrets.redaction import masks

_NAMES = ("stdout", "stderr")
_format = logging.Formatter("%(name)s: %(message)s").format
_echo_formatter = logging.Formatter()
_echo: ContextVar[str] = ContextVar("holdfast_echo", default="")  # what logging is about to print by itself
_passing = threading.local()
_listeners = 0
_is_for_answers = False
_make_record: Callable[..., logging.LogRecord] = logging.LogRecord


def _not_the_tools_affair() -> suppress:
    """A full disk or a closed pipe behind our output must not fail a tool that has done its work: what it printed was
    heard, and whoever prints next in our own name meets the same error and tells of it."""
    return suppress(OSError)


class _Pieces:
    """What a stream passes on of what calls write: masked, and so that half a secret waits for its other half."""

    def __init__(self) -> None:
        self._held: dict[Call, str] = {}
        self._lock = threading.Lock()

    def masked(self, call: Call, text: str) -> str:
        if not masks.active:
            return text
        with self._lock:  # a call may write from several threads
            whole = self._held.pop(call, "") + text
            cut = len(whole) - masks.held_back(whole)
            if cut < len(whole):
                self._held[call] = whole[cut:]
        return masks.text(whole[:cut])

    def rest(self, call: Call | None) -> str:
        """What was held back of a call that is over, or of all of them: no other half will come."""
        with self._lock:
            ended = list(self._held) if call is None else [call]
            return "".join(masks.text(self._held.pop(one, "")) for one in ended)


class CapturingStream:
    """Covers a stream: what a tool writes is passed on, and heard."""

    def __init__(self, covered: Any, name: str) -> None:
        self.covered = covered
        self._name = name
        self._pieces = _Pieces()
        self._bytes: _EarForBytes | None = None

    def write(self, text: str) -> int:
        call = running_call.get(None)
        if call is None or getattr(_passing, "is_so", False) or not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- what a tool writes is its affair
            return self.target(call).write(text)  # an ear further up has heard it, or it is refused there
        self._pass_on(call, self._pieces.masked(call, text))
        if text and text == _echo.get():
            _echo.set("")
        else:
            self.hear(call, text)
        return len(text)

    def hear(self, call: Call, text: str) -> None:
        call.hear(self._name, text)

    def echo(self, call: Call, text: str) -> None:
        """Of what was heard elsewhere."""
        self._pass_on(call, self._pieces.masked(call, text))
        with _not_the_tools_affair():
            self.target(call).flush()

    def _pass_on(self, call: Call | None, text: str) -> None:
        if text:
            _passing.is_so = True
            try:
                with _not_the_tools_affair():
                    self.target(call).write(text)
            finally:
                _passing.is_so = False

    def flush(self) -> None:
        call = running_call.get(None)
        if call is None:
            return self.covered.flush()
        with _not_the_tools_affair():
            self.target(call).flush()

    def fileno(self) -> int:
        """For a tool that hands `sys.stdout` to a child."""
        return self.target(running_call.get(None)).fileno()

    def target(self, call: Call | None) -> Any:
        """Where answers for programs go to stdout, what tools print goes beside them."""
        if call is not None and _is_for_answers and self._name == "stdout" and sys.stderr is not None:
            return sys.stderr.covered if isinstance(sys.stderr, CapturingStream) else sys.stderr
        return self.covered

    def let_go(self, call: Call | None) -> None:
        """A call is over, or all of them (None): what was held back is passed on."""
        rest = self._pieces.rest(call)
        if rest:
            self._pass_on(call, rest)
            with _not_the_tools_affair():
                self.target(call).flush()
        if self._bytes is not None:
            self._bytes.let_go(call)

    @property
    def buffer(self) -> _EarForBytes:
        covered = self.covered.buffer  # or an AttributeError, as it should be
        if self._bytes is None or self._bytes.covered is not covered:
            self._bytes = _EarForBytes(self, covered)
        return self._bytes

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.covered, name)


class _EarForBytes:
    """The bytes below a stream: heard and masked as far as they are text, and passed on unchanged otherwise."""

    def __init__(self, ear: CapturingStream, covered: Any) -> None:
        self.covered = covered
        self._ear = ear
        self._pieces = _Pieces()

    def write(self, data: Any) -> int:
        call = running_call.get(None)
        if call is None:
            return self.covered.write(data)
        given = bytes(memoryview(data))
        self._pass_on(call, self._pieces.masked(call, given.decode("utf-8", "surrogateescape")))
        self._ear.hear(call, given.decode("utf-8", "replace"))
        return len(given)

    def flush(self) -> None:
        if running_call.get(None) is None:
            return self.covered.flush()
        with _not_the_tools_affair():
            self._target(running_call.get(None)).flush()

    def _pass_on(self, call: Call | None, text: str) -> None:
        with _not_the_tools_affair():
            self._target(call).write(text.encode("utf-8", "surrogateescape"))

    def _target(self, call: Call | None) -> Any:
        stream = self._ear.target(call)
        return self.covered if stream is self._ear.covered else stream.buffer

    def let_go(self, call: Call | None) -> None:
        rest = self._pieces.rest(call)
        if rest:
            self._pass_on(call, rest)
            with _not_the_tools_affair():
                self._target(call).flush()

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.covered, name)


@contextmanager
def listening() -> Generator[None]:
    """While at least one execution is driven."""
    global _listeners, _make_record  # noqa: PLW0603 -- there is one stdout and one `logging` in a process
    _listeners += 1
    if _listeners == 1:
        _make_record = logging.getLogRecordFactory()
        logging.setLogRecordFactory(_heard_record)
    try:
        yield
    finally:
        _listeners -= 1
        if not _listeners:
            _uncover()
            if logging.getLogRecordFactory() is _heard_record:
                logging.setLogRecordFactory(_make_record)


def cover() -> None:
    """Be on top: whoever redirects output after us, as a live display does, would otherwise hide what tools print."""
    if type(sys.stdout) is not CapturingStream or type(sys.stderr) is not CapturingStream:
        for name in _NAMES:
            stream = getattr(sys, name)
            if stream is not None and type(stream) is not CapturingStream:
                setattr(sys, name, CapturingStream(stream, name))


def keep_stdout_for_answers() -> None:
    """For a command whose stdout is read by a program: what tools print there goes to stderr from now on."""
    global _is_for_answers  # noqa: PLW0603 -- there is one stdout in a process
    _is_for_answers = True


def echo(call: Call, name: str, text: str) -> None:
    """What was printed in the call's own process, to where it would stand if it had been printed here."""
    cover()
    stream = getattr(sys, name)
    if stream is not None:
        stream.echo(call, text)


def let_go(call: Call) -> None:
    """The call is over: nothing more of it will come."""
    for name in _NAMES:
        stream = getattr(sys, name)
        while type(stream) is CapturingStream:
            stream.let_go(call)
            stream = stream.covered


def _uncover() -> None:
    for name in _NAMES:
        while type(stream := getattr(sys, name)) is CapturingStream:
            with suppress(OSError, ValueError):  # whoever read it is gone
                stream.let_go(None)
            setattr(sys, name, stream.covered)


def _heard_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    record = _make_record(*args, **kwargs)
    call = running_call.get(None)
    if call is not None:
        try:
            if masks.active:
                _mask(record)
            call.hear(record.levelname.lower(), f"{_format(record)}\n")
            _echo.set(_own_print(record))
        except Exception:  # a message whose arguments do not fit: `logging` says so itself, and goes on
            return record
    return record


def _mask(record: logging.LogRecord) -> None:
    """For every handler: also for those that write past `sys.stderr`, to a file or to a stream that they kept."""
    if masks.found_in(record.getMessage()):
        record.msg, record.args = masks.text(record.getMessage()), ()
    if record.exc_info and record.exc_info[0] is not None:
        trace = _echo_formatter.formatException(record.exc_info)
        if masks.found_in(trace):  # nobody may format it anew
            record.exc_text, record.exc_info = masks.text(trace), None
    if record.stack_info:
        record.stack_info = masks.text(record.stack_info)


def _own_print(record: logging.LogRecord) -> str:
    """What `logging` prints to stderr by itself when nobody has given it a handler: the same line once more."""
    last = logging.lastResort
    if last is None or record.levelno < last.level or logging.getLogger(record.name).hasHandlers():
        return ""
    return f"{_echo_formatter.format(record)}\n"
