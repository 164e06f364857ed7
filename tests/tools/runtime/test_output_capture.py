"""What tools print on its way to the terminal: passed on, and no secret in it, however it comes."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.tools.call import Call, running_call
from holdfast.tools.runtime import output_capture
from holdfast.tools.secrets.redaction import masks

VALUE = "hunter2-topsecret-99"


@contextmanager
def a_call() -> Iterator[None]:
    """Streams of our own, covered as for a call that runs. No fixture: pytest changes the streams after those."""
    before = sys.stdout, sys.stderr
    masks.forget()
    masks.add("TOKEN", VALUE)
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in before)
    token = running_call.set(Call("e", "a", 1, "e:a", Path()))
    try:
        with output_capture.listening():
            output_capture.cover()
            yield
    finally:
        sys.stdout, sys.stderr = before
        running_call.reset(token)
        masks.forget()


def passed_on(name: str = "stdout") -> str:
    stream = getattr(sys, name)
    while isinstance(stream, output_capture.CapturingStream):
        stream = stream.covered
    return stream.buffer.getvalue().decode()


def test_a_value_that_comes_in_pieces_is_masked() -> None:
    with a_call():
        print("it is", VALUE[:6], end="")
        assert passed_on() == "it is "
        print(VALUE[6:])
        assert passed_on() == "it is [secret TOKEN]\n"


def test_what_only_began_like_a_secret_comes_with_the_end_of_the_call() -> None:
    with a_call():
        print("it is", VALUE[:6], end="", flush=True)
        output_capture.let_go(running_call.get())
        assert passed_on() == f"it is {VALUE[:6]}"


def test_pieces_of_two_calls_are_not_taken_for_one() -> None:
    with a_call():
        print(VALUE[:6], end="")
        running_call.set(Call("e", "b", 1, "e:b", Path()))
        print("and", VALUE)
        assert passed_on() == "and [secret TOKEN]\n"


def test_bytes_are_masked_where_they_are_text_and_stay_what_they_are_otherwise() -> None:
    with a_call():
        sys.stdout.buffer.write(b"\xff\x00 " + VALUE[:6].encode())
        sys.stdout.buffer.write(VALUE[6:].encode() + b" \xc3")
        sys.stdout.buffer.writelines([b"\xa4\n"])
        sys.stdout.buffer.flush()
        stream = sys.stdout.covered  # type: ignore[attr-defined]
        assert stream.buffer.getvalue() == b"\xff\x00 [secret TOKEN] \xc3\xa4\n"


def test_a_trace_is_masked_for_handlers_that_were_there_before() -> None:
    with a_call():
        kept = io.StringIO()
        handler = logging.StreamHandler(kept)
        logger = logging.getLogger("test.trace")
        logger.addHandler(handler)
        try:
            try:
                raise ValueError(f"401 for ?key={VALUE}")
            except ValueError:
                logger.exception("it failed", stack_info=True)
            try:
                raise ValueError("harmless")
            except ValueError:
                logger.exception("so did this")
        finally:
            logger.removeHandler(handler)
        assert VALUE not in kept.getvalue()
        assert "ValueError: 401 for ?key=[secret TOKEN]" in kept.getvalue()
        assert "ValueError: harmless" in kept.getvalue()


def test_where_stdout_is_for_answers_tools_print_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_call():
        monkeypatch.setattr(output_capture, "_is_for_answers", True)
        print("hello", VALUE)
        sys.stdout.buffer.write(b"bytes\n")
        assert passed_on() == ""
        assert passed_on("stderr") == "hello [secret TOKEN]\nbytes\n"
