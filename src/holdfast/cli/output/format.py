"""How values, times and statuses are written for people. Colours only where somebody looks, and never with NO_COLOR."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from datetime import UTC, datetime
from typing import Any, TextIO, cast

from holdfast.cli.common.invocation import holdfast, pastable

VALUE_CHARS_MAX = 200  # of a value shown inside a line; `--json` shows all of it
TITLE_CHARS_MAX = 200  # of a title, where it stands in a line with other things
# Control characters but tab and new line, and what turns the direction of the text around it.
_COMMANDING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}

STEP_MARKS = {
    "pending": ("·", "dim"),
    "running": ("●", "cyan"),
    "waiting": ("◌", "yellow"),
    "retrying": ("↻", "yellow"),
    "completed": ("✔", "green"),
    "failed": ("✘", "red"),
    "skipped": ("–", "dim"),
    "interrupted": ("■", "yellow"),
    "in_doubt": ("?", "red"),
}
MARK_OF_FAILURES = ("!", "yellow")  # of a group or list that completed, with failures inside
_PLAIN_MARKS = {
    "pending": ".", "running": ">", "waiting": "~", "retrying": "^", "completed": "+", "failed": "x", "skipped": "-",
    "interrupted": "=", "in_doubt": "?",
}  # fmt: skip
STATUS_COLOURS = {
    "queued": "dim",
    "running": "cyan",
    "waiting": "yellow",
    "paused": "yellow",
    "interrupted": "yellow",
    "completed": "green",
    "failed": "red",
    "stopped": "red",
}


def usd(amount: float) -> str:
    """Dollars for people, as core/budget.py writes them."""
    from holdfast.core.budget import MICROS, say_usd

    return say_usd(round(amount * MICROS))


def is_terminal(stream: TextIO | None = None) -> bool:
    wanted = stream or sys.stdout
    return wanted.isatty() and os.environ.get("TERM") != "dumb"


def has_colours() -> bool:
    return is_terminal() and not os.environ.get("NO_COLOR")


def paint(text: str, style: str) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if has_colours() and text else text


def mark(status: str, *, has_failures: bool = False) -> str:
    """`has_failures`: something inside of it failed, and was lived with."""
    if has_failures and status == "completed":
        return paint(*MARK_OF_FAILURES)
    sign, style = STEP_MARKS.get(status, ("·", "dim"))
    return paint(writable(sign, _PLAIN_MARKS.get(status, ".")), style)


def writable(sign: str, plain: str) -> str:
    """The sign, or `plain` where the output cannot show it."""
    try:
        sign.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return plain
    return sign


def strip_control_chars(data: Any) -> Any:
    """The same without characters that would command a terminal: titles, outputs and errors are not ours, and an
    execution may come from a stranger's file."""
    if isinstance(data, str):
        return _COMMANDING.sub("�", data) if _COMMANDING.search(data) else data
    if isinstance(data, dict):
        return {
            strip_control_chars(key): strip_control_chars(item) for key, item in cast("dict[Any, Any]", data).items()
        }
    if isinstance(data, list):
        return [strip_control_chars(item) for item in cast("list[Any]", data)]
    return data


def one_line(text: str) -> str:
    """A title on one line, whatever it holds: a second one could pretend to be another execution's.

    It is cut where it gets long; `--json` shows all of it.
    """
    return value(text, TITLE_CHARS_MAX)


def status_word(status: str) -> str:
    return paint(status, STATUS_COLOURS.get(status, "bold"))


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def local_time(text: str | None) -> str:
    at = moment(text)
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else ""


def is_past(text: str) -> bool:
    return datetime.fromisoformat(text) < datetime.now(UTC)


def distance(text: str | None, since: str | None = None) -> str:
    """`3 min 10 s ago` or `in 2 h 05 min`, seen from the moment `since`, or from now."""
    at = moment(text)
    if at is None:
        return ""
    seconds = (at - (moment(since) or datetime.now(UTC))).total_seconds()
    if abs(seconds) < 0.001:
        return "now"
    return f"in {duration(seconds)}" if seconds > 0 else f"{duration(-seconds)} ago"


def value(data: Any, limit: int = VALUE_CHARS_MAX) -> str:
    """A value in one line, cut where it gets long."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[:limit] + "…"


def output_line(output: Any, execution_id: str) -> str:
    text = value(output)
    cut = len(text) > VALUE_CHARS_MAX
    return f"output: {text}" + (f" (cut; all of it: {holdfast()} show {execution_id} --json)" if cut else "")


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(number: int) -> str:
    """Bytes for people."""
    for unit, factor in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} bytes"


def parse_value(text: str) -> Any:
    """What a person typed: JSON if it is JSON, and the text itself if not."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def aside(text: str, as_json: bool) -> None:
    """A sentence beside the answer, which goes to stdout."""
    print(json_line({"note": text}) if as_json else f"holdfast: {pastable(text)}", file=sys.stderr, flush=True)


def json_line(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(", ", ": "))


COLUMN_CHARS_MAX = 80


def columns(rows: list[list[str]], styles: dict[int, dict[str, str]] | None = None, width: int = 0) -> list[str]:
    """Rows as aligned columns, cut to `width` if there is one. `styles` colours a column's words."""
    if not rows:
        return []
    # One long value does not push everybody else's next column away: its own line is longer, that is all.
    widths = [min(COLUMN_CHARS_MAX, max(len(row[i]) for row in rows)) for i in range(len(rows[0]))]
    lines: list[str] = []
    for row in rows:
        line, used = "", 0
        for i, cell in enumerate(row):
            last = i == len(row) - 1
            shown = cell if not width or used + len(cell) <= width else cell[: max(0, width - used - 1)] + "…"
            pad = "" if last else " " * max(2, widths[i] - len(shown) + 2)
            style = (styles or {}).get(i, {}).get(cell)
            line += (paint(shown, style) if style else shown) + pad
            used += max(widths[i], len(shown)) + 2
            if width and used >= width:
                break
        lines.append(line.rstrip())
    return lines


def terminal_width() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def fill_descriptors() -> None:
    """Who starts us without stdin, stdout or stderr, as `holdfast run PLAN >&-` does, wants to hear nothing.

    The number must not stay free: the next file that is opened would get it, and that is the journal.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def silence() -> None:
    """Whoever read our output is gone, as in `holdfast events ID | head`: what is still said must not be an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def keep_stdout_for_answers() -> None:
    """For a command whose stdout is read by a program: what tools print, and their children write, goes to stderr."""
    from holdfast.tools.runtime import output_capture

    output_capture.keep_stdout_for_answers()
    stdout = sys.stdout
    if type(stdout) is io.TextIOWrapper and stdout.fileno() == 1:
        stdout.flush()
        own = os.dup(1)  # children do not inherit it
        sys.stdout = open(own, "w", buffering=1, encoding=stdout.encoding, errors=stdout.errors)  # noqa: SIM115
        os.dup2(2, 1)
