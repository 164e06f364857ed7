"""How a command failed, in words and as a category: its exit code, a signal, or a limit it went over.

A limit is named with what is allowed, what was used, and how to raise it.
"""

# sentences of others: the shell

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.errors import ResourceShort, ToolError
from holdfast.core.resources import Resources, say_cpu, say_size
from holdfast.tools.processes.shared_limits import SharedLimits
from holdfast.tools.processes.shared_limits_check import PREFIX
from holdfast.tools.processes.spawn import Exit
from holdfast.tools.secrets.redaction import masks

ERROR_LINES_SHOWN = 5
ERROR_CHARS_SHOWN = 1000
COMMAND_CHARS_SHOWN = 80  # what it failed of, and what to do, stands behind it
SETTINGS, TOOL = "the settings", "the tool"

_OF_SIGNAL: dict[int, str] = {
    signal.SIGXCPU: "cpu",
    signal.SIGXFSZ: "disk",
}  # by which the system itself ends whoever is over a limit
_OF_TEXT = {errno.EMFILE: "open_files", errno.EFBIG: "disk"}  # which it tells a program, that tells it to people
_NO_MEMORY = ("MemoryError", "bad_alloc", os.strerror(errno.ENOMEM), "out of memory", "Out of memory")
_FILE_LIMIT_MET = signal.strsignal(signal.SIGXFSZ) or "File size limit exceeded"
# A whole line of dash, or one of bash with the number of the process: words that a program may print, a log for
# example, are others.
_FILE_LIMIT_TOLD = re.compile(
    rf"^(?:{_FILE_LIMIT_MET}(?: \(core dumped\))?$|.*: +\d+ +{_FILE_LIMIT_MET})", re.MULTILINE
)
_WORDS: dict[str, tuple[str, str, Callable[[Any], str]]] = {
    "memory": ("used", "of memory", say_size),
    "cpu": ("used", "of CPU time", say_cpu),
    "processes": ("had", "processes at once", str),
    "open_files": ("wanted", "open files in one process", str),
    "disk": ("wrote", "to disk", say_size),
    "output": ("printed", "of output", say_size),
}
_SHARED_WORDS: dict[str, tuple[str, str, Callable[[Any], str]]] = {
    "processes": ("had", "processes at once", "{:.0f}".format),
    "open_files": ("had", "open files", "{:.0f}".format),
}


def failure_of(
    argv: Sequence[str], end: Exit, limits: Resources, together: SharedLimits | None, stdout: str, stderr: str
) -> ToolError | None:
    """None for a command that ended well."""
    # What shells say of a child; where writing is not counted, it is all we hear. Of a command that ended well we
    # believe only what a shell itself would say.
    met_file_limit = bool(_FILE_LIMIT_TOLD.search(stderr)) if end.code == 0 else _FILE_LIMIT_MET in stderr
    if end.code == 0 and not end.over and not met_file_limit:
        return None
    last = last_lines(stderr or stdout)
    short = beyond_limit(argv, end, limits, together, last, met_file_limit=met_file_limit)
    if short is not None:
        return short
    what = f"exit code {end.code}" if end.code > 0 else f"killed by {signal_name(-end.code)}"
    text = f"{what} from: {shown(argv)}" + (f"\n{last}" if last else "") + memory_hint(limits, last)
    return ToolError(text, status=max(0, end.code))


def beyond_limit(
    argv: Sequence[str],
    end: Exit,
    limits: Resources,
    together: SharedLimits | None,
    last: str,
    *,
    met_file_limit: bool = False,
    last_word: str = SETTINGS,
) -> ResourceShort | None:
    """The limit that ended it, or that it met, if there is one; `last` is what it said last."""
    if together is not None and end.over.startswith(PREFIX):
        short = ResourceShort(_shared_text(argv, end, together.limits) + (f"\n{last}" if last else ""))
        short.limit = PREFIX + together.limits.twice(end.over.removeprefix(PREFIX))
        return short
    over = end.over or ("disk" if met_file_limit else _over(end, limits, last))
    if not over:
        return None
    used: Any = {"memory": end.rss_bytes, "cpu": end.cpu_s, "processes": end.processes, "disk": end.disk_bytes}
    known = used[over] if end.over or over == "memory" else None
    text = over_text(argv, over, limits, known, ended=end.code < 0, last_word=last_word)
    short = ResourceShort(text + (f"\n{last}" if last else ""))
    short.limit = limits.twice(over)
    return short


def memory_hint(limits: Resources, last: str) -> str:
    """What asks for far too much at once is refused it and never has it, so no use of memory shows why it failed."""
    if limits.memory_bytes is None or not any(words in last for words in _NO_MEMORY):
        return ""
    return f"\n(its limit of memory is {say_size(limits.memory_bytes)}; resources.memory raises it)"


def _over(end: Exit, limits: Resources, last: str) -> str:
    """The limit that the system held it to before the watch saw it; shells tell of a signal by 128 and its number."""
    number = -end.code if end.code < 0 else end.code - 128
    if number in _OF_SIGNAL:
        return _OF_SIGNAL[number]
    if end.rss_bytes > (limits.memory_bytes or end.rss_bytes):
        return "memory"
    return next((name for code, name in _OF_TEXT.items() if os.strerror(code) in last), "")


def over_text(
    argv: Sequence[str], over: str, limits: Resources, used: Any = None, *, ended: bool = True,
    last_word: str = SETTINGS,
) -> str:  # fmt: skip
    """`ended`: by us or the system, and not by itself before anybody looked.

    `last_word`: whose limits hold where step and plan say nothing.
    """
    did, of_what, say = _WORDS[over]
    allowed = limits.of(over)
    if used is None or used <= allowed:  # the system held it to its limit, so nobody knows how far it would have gone
        what = f"it {did} more than {say(allowed)} {of_what}, which is its limit"
    else:
        what = f"it {did} {say(used)} {of_what}, and {say(allowed)} are allowed" + (
            ", so it was ended" if ended else ""
        )
    return f"{what}: {shown(argv)};\nif it needs more, raise resources.{over} of the step, the task or {last_word}"


def _shared_text(argv: Sequence[str], end: Exit, limits: Resources) -> str:
    over = end.over.removeprefix(PREFIX)
    did, of_what, say = _SHARED_WORDS.get(over) or _WORDS[over]
    ended = "; this one had the most, so it was ended" if end.code < 0 else ""
    return (
        f"all commands of this execution together {did} {say(end.together)} {of_what}, and "
        f"{say(limits.of(over))} are allowed{ended}: {shown(argv)};\n"
        f"if they need more, raise resources.{end.over} of the task"
    )


def shown(argv: Sequence[str]) -> str:
    text = argv[2] if list(argv[:2]) == ["sh", "-c"] and len(argv) == 3 else " ".join(argv)
    return masks.beginning(" ".join(text.split()), COMMAND_CHARS_SHOWN)


def signal_name(number: int) -> str:
    """Those for programs' own use have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_lines(output: str) -> str:
    lines = masks.text(output).strip().splitlines()
    return "\n".join(lines[-ERROR_LINES_SHOWN:])[-ERROR_CHARS_SHOWN:]
