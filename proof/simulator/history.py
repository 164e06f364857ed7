"""What happened in a simulated history, as an all-seeing witness wrote it down. The checks read this and nothing else.

Every line carries the virtual time and the process. The same seed gives the same lines, byte for byte.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Literal

import msgspec

from holdfast.core.commands import Answer
from holdfast.journal.store import Write, Written

Phase = Literal["called", "happened", "spent", "answered", "delivered", "talked_on", "raised", "cut", "verified"]
Tells = Literal["", "nothing", "known", "unknown"]


class Line(msgspec.Struct, kw_only=True, tag_field="what", omit_defaults=True):
    at_us: int
    process: str


class Committed(Line, tag="committed"):
    """A transaction took effect. `acknowledged` is when its process heard of it, if it lived that long."""

    writes: list[Write]
    results: list[Written]
    acknowledged_us: int | None = None


class Deleted(Line, tag="deleted"):
    """Executions were deleted for good: these of those that somebody wanted to be rid of."""

    execution_ids: list[str]
    wanted: list[str]


class Wiped(Line, tag="wiped"):
    """The store that had these is gone, and with it all that was said to them; they are left in files."""

    execution_ids: list[str]


class Filed(Line, tag="filed"):
    """Somebody begins to write an execution into a file; what it does from now on need not be known there."""

    execution_id: str


class Copied(Line, tag="copied"):
    """A file was imported under a new id."""

    execution_id: str


class Held(Line, tag="held"):
    """From now on nobody may drive these; without a reason, from now on somebody may again."""

    execution_ids: list[str]
    why: str


class SavedFile(Line, tag="saved"):
    """An execution saved itself, with the events up to `through`, the last of which has this digest; or could not."""

    execution_id: str
    through: int = 0
    digest: bytes = b""
    error: str = ""


class Reopened(Line, tag="reopened"):
    """A journal was read from a snapshot at this number, and the events after it."""

    execution_id: str
    snapshot_seq: int
    events: int


class Called(Line, tag="tool"):
    """A moment of a tool call: it began, its effect happened in the world, it answered, raised or was cut off; or its
    answer was delivered by another way.

    `ending` is the call's fate, and `tells` what whoever hears of a raised error may conclude from it: this is the
    truth, whatever the engine makes of it. `notes` is what the attempt was handed, `value` what it was called with, or
    what it spent, in micro-dollars.
    """

    phase: Phase
    tool: str
    effect: str
    execution_id: str
    path: str
    attempt: int
    key: str
    output: Any = None
    ending: str = ""
    tells: Tells = ""
    notes: Any = None
    value: Any = None


class Saw(Line, tag="saw"):
    """A program was given the outcome of a step."""

    execution_id: str
    path: str
    output: Any = None


class Watched(Line, tag="watched"):
    """A watcher was shown a durable event."""

    watcher: str
    execution_id: str
    seq: int
    body: bytes


class Ordered(Line, tag="ordered"):
    """A client gave a command, or heard its answer."""

    command_id: str
    execution_id: str
    verb: str
    answer: Answer | None = None


class HandedIn(Line, tag="handed_in"):
    """A task was accepted: whoever handed it in knows its id."""

    key: str
    execution_id: str


class Returned(Line, tag="returned"):
    """Somebody was told how an execution ended."""

    execution_id: str
    status: str
    output: Any = None


class Fault(Line, tag="fault"):
    """Something broke: written down when it strikes, and not when it is planned."""

    kind: str
    text: str = ""


class ClockSet(Line, tag="clock"):
    """From now on this machine's clock is off by so much."""

    offset_us: int


class LeftAlone(Line, tag="left_alone"):
    """Peace has lasted for `for_s` seconds, and nobody has done anything yet: what could go on by itself has."""

    for_s: float


class CutShort(Line, tag="cut_short"):
    """The history took so many turns that it would never have ended. It has no end, and nothing else is said of it."""

    turns: int


class Trouble(Line, tag="trouble"):
    """Something that should not be seen at all: an error that escaped, a log message of the engine about itself."""

    text: str


AnyLine = (
    Committed | Deleted | Wiped | Filed | Copied | Held | SavedFile | Reopened | Called | Saw | Watched | Ordered
    | HandedIn | Returned | Fault | ClockSet | LeftAlone | CutShort | Trouble
)  # fmt: skip


class History:
    def __init__(self) -> None:
        self.lines: list[AnyLine] = []
        self.is_open = True

    def write(self, line: AnyLine) -> None:
        if self.is_open:
            self.lines.append(line)

    def of(self, kind: type[Any]) -> list[Any]:
        return [line for line in self.lines if type(line) is kind]

    def text(self) -> bytes:
        return b"\n".join(_encoder.encode(line) for line in self.lines) + b"\n"

    def digest(self) -> str:
        return blake2b(self.text(), digest_size=16).hexdigest()


_encoder = msgspec.json.Encoder()
