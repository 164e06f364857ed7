"""Hears what tools print and log, by the call that is running where they do.

While something is driven, `sys.stdout` and `sys.stderr` are covered by a stream that passes everything on unchanged,
and log records are looked at when they are made. Nothing that is said outside a tool is kept, and no handler, level or
format of anybody's is touched. What is passed on differs in one thing: secrets are masked.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from holdfast.tools.call import running_call
from holdfast.tools.masks import masks

_NAMES = ("stdout", "stderr")
_format = logging.Formatter("%(name)s: %(message)s").format
_echo_format = logging.Formatter().format
_echo: ContextVar[str] = ContextVar("holdfast_echo", default="")  # what logging is about to print by itself
_passing = threading.local()
_listeners = 0
_make_record: Callable[..., logging.LogRecord] = logging.LogRecord


class Ear:
    """Covers a stream: what a tool writes is passed on, and heard."""

    def __init__(self, covered: Any, name: str) -> None:
        self.covered = covered
        self._name = name

    def write(self, text: str) -> int:
        call = running_call.get(None)
        if call is None or getattr(_passing, "is_so", False):  # an ear further up has heard it
            return self.covered.write(text)
        _passing.is_so = True
        try:
            written = self.covered.write(masks.text(text) if masks.active else text)
        finally:
            _passing.is_so = False
        if text and text == _echo.get():
            _echo.set("")
        elif isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- what a tool writes is its affair
            call.hear(self._name, text)
        return written

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
    if type(sys.stdout) is not Ear or type(sys.stderr) is not Ear:
        for name in _NAMES:
            stream = getattr(sys, name)
            if stream is not None and type(stream) is not Ear:
                setattr(sys, name, Ear(stream, name))


def _uncover() -> None:
    for name in _NAMES:
        while type(stream := getattr(sys, name)) is Ear:
            setattr(sys, name, stream.covered)


def _heard_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    record = _make_record(*args, **kwargs)
    call = running_call.get(None)
    if call is not None:
        try:
            if masks.active and masks.found_in(record.getMessage()):
                record.msg, record.args = masks.text(record.getMessage()), ()
            call.hear(record.levelname.lower(), f"{_format(record)}\n")
            _echo.set(_own_print(record))
        except Exception:  # a message whose arguments do not fit: `logging` says so itself, and goes on
            return record
    return record


def _own_print(record: logging.LogRecord) -> str:
    """What `logging` prints to stderr by itself when nobody has given it a handler: the same line once more."""
    last = logging.lastResort
    if last is None or record.levelno < last.level or logging.getLogger(record.name).hasHandlers():
        return ""
    return f"{_echo_format(record)}\n"
