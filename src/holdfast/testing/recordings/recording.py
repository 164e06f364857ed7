"""A recorded execution, and what new code would have done in its place.

Owns the recording: one JSON file with the events as they are in the journal, byte for byte and with their digests. The
replay runs the real engine on a copy, with tools that cannot be called: whatever the recording does not answer is what
the new code would do now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from holdfast.core import events as ev
from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import JournalError
from holdfast.engine.engine import Engine
from holdfast.journal.blobs import fetch_blob, reference
from holdfast.journal.codec import CHAIN_START, Row, decode, verify
from holdfast.journal.store import Store
from holdfast.programs.function import Function
from holdfast.programs.prepare import Subject
from holdfast.testing.lab.errors import LabError, blames_the_test
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.tool import Tool

FORMAT_VERSION = 1


class RecordedEvent(msgspec.Struct, frozen=True):
    """`body` is the stored JSON, unchanged: `digest` covers it and everything before it."""

    seq: int
    version: int
    digest: str
    body: str


class RecordingFile(msgspec.Struct, frozen=True, kw_only=True, tag_field="holdfast", tag="recording"):
    """`count` and `final` say where it ends: a file that was cut between two events is no shorter recording.

    Files of an earlier Holdfast have neither.
    """

    version: int
    id: str
    count: int | None = None
    final: str | None = None  # the digest of the last event
    events: list[RecordedEvent]
    blobs: dict[str, str] = {}


class Difference(msgspec.Struct, frozen=True):
    """A step for which the new code asks otherwise than the recorded code did; without a path, the whole program."""

    path: str
    recorded: str
    attempted: str

    def __str__(self) -> str:
        where = f"step {self.path}" if self.path else "the program"
        return f"{where}\n    recorded:  {self.recorded}\n    attempted: {self.attempted}"


class NewStep(msgspec.Struct, frozen=True):
    """A step that the recording does not answer."""

    path: str
    tool: str
    arguments: Any = None

    def __str__(self) -> str:
        return f"{self.path}: {self.tool} {_shown(self.arguments)}".rstrip()


class Replayed(msgspec.Struct, kw_only=True):
    """`ended` is how the replay ended: completed, failed, or unfinished when it came to a step without an outcome.

    `open_steps` are recorded and have no outcome yet; `new_steps` were never recorded. `left_out` are recorded steps
    for which the new code no longer asks, or not before it comes to a new step. `last_step` is the last one recorded.
    """

    recorded: str
    ended: str
    divergences: list[Difference] = []
    new_steps: list[NewStep] = []
    open_steps: list[NewStep] = []
    left_out: list[str] = []
    results: tuple[Any, Any] = (None, None)
    last_step: str = ""

    @property
    def is_same(self) -> bool:
        """Whether every recorded step fits the new code, and an execution that had ended ends the same way."""
        if self.divergences or self.left_out:
            return False
        if self.recorded == "unfinished":
            return True
        return not self.new_steps and self.recorded == self.ended and self.results[0] == self.results[1]

    def __str__(self) -> str:
        lines = [f"diverged at {difference}" for difference in self.divergences]
        lines += [f"would take a new step: {step}" for step in self.new_steps]
        lines += [f"goes on with the open step {step}" for step in self.open_steps]
        before = ", or not before the new one" if self.new_steps else ""
        lines += [f"no longer asks for the recorded step {path}{before}" for path in self.left_out]
        was, now = (_shown(result) for result in self.results)
        if self.ended != "unfinished" and self.recorded == "unfinished":
            lines += [f"would end: {self.ended} {now}".rstrip()]
        elif self.ended != "unfinished" and (self.recorded, self.results[0]) != (self.ended, self.results[1]):
            lines += [f"ended otherwise\n    recorded:  {self.recorded} {was}\n    now:       {self.ended} {now}"]
        return "\n".join([self._verdict(), *(f"  {line}" for line in lines)])

    def _verdict(self) -> str:
        if not self.is_same:
            return "not the same"
        if self.recorded != "unfinished":
            return "same"
        return f"same up to {self.last_step or 'the start'}; the recording goes no further"

    __repr__ = __str__


async def record(engine: Engine, execution_id: str) -> bytes:
    """One execution as a file to keep: its id, any unambiguous part of it, or "@last"."""
    return await record_stored(engine.services.store, (await engine.find(execution_id)).id)


async def record_stored(store: Store, execution_id: str) -> bytes:
    chain, rows = await store.events(execution_id, 0, -1)
    verify(rows, 0, chain)
    values = [value for row in rows for value in _values(decode(row))]
    blobs = {blob.digest: await fetch_blob(store, blob) for value in values if (blob := reference(value)) is not None}
    file = RecordingFile(
        version=FORMAT_VERSION,
        id=execution_id,
        count=len(rows),
        final=rows[-1].digest.hex(),
        events=[RecordedEvent(row.seq, row.version, row.digest.hex(), row.body.decode()) for row in rows],
        blobs={digest: body.decode() for digest, body in blobs.items()},
    )
    return msgspec.json.format(msgspec.json.encode(file), indent=1)


def _values(struct: msgspec.Struct) -> Iterator[msgspec.Raw]:
    """Every value inside an event, wherever it stands."""
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, msgspec.Raw):
            yield value
        elif isinstance(value, msgspec.Struct):
            yield from _values(value)


class Recording(msgspec.Struct, frozen=True):
    """A recording that was read and verified."""

    id: str
    events: list[ev.AnyEvent]
    blobs: list[tuple[str, bytes]]


def read_recording(given: bytes | str | Path) -> Recording:
    """From its bytes or its text, or from the file they were written to."""
    if isinstance(given, str) and given.lstrip().startswith("{"):
        given = given.encode()
    if not isinstance(cast("Any", given), bytes | str | Path):
        raise LabError(f"a recording is a file, or what is in one (bytes or text); not {given!r}")
    place = "this" if isinstance(given, bytes) else _cut(str(given))
    try:
        body = given if isinstance(given, bytes) else Path(given).read_bytes()
        version = msgspec.json.decode(body, type=_Versioned).version
        if version > FORMAT_VERSION:
            raise LabError(f"{place} has version {version}, this Holdfast reads {FORMAT_VERSION}; upgrade it")
        file = msgspec.json.decode(body, type=RecordingFile)
        rows = [Row(event.seq, event.version, event.body.encode(), _digest(event)) for event in file.events]
        verify(rows, 0, CHAIN_START)
        _check_end(file)
        events = [decode(row) for row in rows]
    except OSError as error:
        raise LabError(f"{place} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LabError(f"{place} is not a recording ({error}); make one with holdfast.testing.record") from None
    except JournalError as error:
        raise LabError(f"{place} is damaged: {error}") from None
    if not events or not isinstance(events[0], ev.TaskCreated):
        raise LabError(f"{place} holds no execution; make one with holdfast.testing.record")
    return Recording(file.id, events, [(digest, value.encode()) for digest, value in file.blobs.items()])


def _check_end(file: RecordingFile) -> None:
    held = len(file.events)
    if file.count is not None and held != file.count:
        raise JournalError(f"it was made with {file.count} events and holds {held}")
    if file.final is not None and (held == 0 or file.events[-1].digest != file.final):
        raise JournalError("its last event is not the one it was made with")


class _Versioned(msgspec.Struct, tag_field="holdfast", tag="recording"):
    version: int


def _digest(event: RecordedEvent) -> bytes:
    try:
        return bytes.fromhex(event.digest)
    except ValueError:
        return b""


@blames_the_test
def replay(
    recording: bytes | str | Path,
    program: Subject | None = None,
    *,
    tools: Iterable[str | Tool[..., Any]] = (),
    functions: Iterable[Function[..., Any]] = (),
) -> Replayed:
    """Run new code against a recorded execution. No tool is called, and nothing is written anywhere.

    `program` is the new plan or function; without it, a recorded plan is replayed as it was. The built-in tools are
    known; their names may stand in `tools` all the same.
    """
    from holdfast.testing.lab.world import path_of
    from holdfast.testing.recordings.replay import Rehearsal
    from holdfast.testing.virtual_time import VirtualLoop, run_virtually

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise LabError("replay runs a loop of its own; call it from a plain `def`, not from a coroutine")
    read, known = read_recording(recording), _only_tools(tools)
    loop = VirtualLoop()
    replayed = run_virtually(Rehearsal(loop, read, program, known, [*functions]).run(), loop)
    replayed.last_step = next((path_of(event) for event in reversed(read.events) if path_of(event)), "")
    return replayed


def _only_tools(given: Iterable[Any]) -> list[Tool[..., Any]]:
    builtin = {tool.name: tool for tool in builtin_tools()}
    tools: list[Tool[..., Any]] = []
    for thing in given:
        if isinstance(thing, Function):
            name = cast("Function[..., Any]", thing).name
            raise LabError(f"tools= takes tools, and {name} is a function; hand it over with functions=[{name}]")
        tool = builtin.get(thing) if isinstance(thing, str) else thing
        if not isinstance(tool, Tool):
            hint = did_you_mean(thing, builtin) if isinstance(thing, str) else ""
            raise LabError(f"tools= takes tools and names of built-in tools, not {thing!r}{hint}")
        tools.append(cast("Tool[..., Any]", tool))
    return tools


def _shown(value: Any, limit: int = 200) -> str:
    return _cut("" if value is None else msgspec.json.encode(value).decode(), limit)


def _cut(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[:limit] + "…"
