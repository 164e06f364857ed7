"""Writes the pages that can be read off the code: the reference, and the state diagrams of architecture.md.

Run it with `make docs`. The structure of every page comes from the code itself; only the sentences that no docstring
holds stand here, and one that is missing stops the run. A test compares the pages on disk with what this would write.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from proof.simulator.verdict import CHECKS
from sentences import DEFAULTS, FIELDS, FLAGS, LIMITS, PART_FIELDS, SETTINGS, WHEN, Limit

import holdfast
from holdfast import settings
from holdfast.core import errors, events, lifecycle
from holdfast.core.failure import Failure
from holdfast.engine.json_view import wire_event, wire_frame

DOCS = Path(__file__).parent
REFERENCE = DOCS / "reference"
NOTE = "<!-- Written by docs/generate.py from the code; change it there and run `make docs`. -->"
HELP_WIDTH = 100


def pages() -> dict[Path, str]:
    """Every generated page as it should be."""
    architecture = DOCS / "architecture.md"
    return {
        REFERENCE / "events.md": events_page(),
        REFERENCE / "errors.md": errors_page(),
        DOCS / "cli.md": cli_page(),
        REFERENCE / "settings.md": settings_page(),
        REFERENCE / "limits.md": limits_page(),
        REFERENCE / "checks.md": checks_page(),
        architecture: with_diagrams(architecture.read_text()),
    }


def main(only_check: bool) -> int:
    """Write what is stale; with `--check`, only name it."""
    stale = {path: text for path, text in pages().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        name = path.relative_to(DOCS.parent)
        if only_check:
            print(f"{name} is stale; run `make docs`")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {name}")
    return 1 if stale and only_check else 0


class DocsIncomplete(Exception):
    """Something in the code has no sentence here."""


def sentence_for(table: dict[str, str], name: str, where: str) -> str:
    try:
        return table[name]
    except KeyError:
        raise DocsIncomplete(f"docs/sentences.py: {where} says nothing about {name}; add a sentence") from None


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    names = list(head)
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return lines + [f"| {' | '.join(cells)} |" for cells in escaped]


def page(*blocks: Iterable[str]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def prose(thing: Any) -> str:
    """The docstring as one paragraph; inherited ones do not count."""
    return " ".join(inspect.cleandoc(thing.__dict__.get("__doc__") or "").split())


# ---- events ------------------------------------------------------------------------------------------------------

TIMES = frozenset({"due_at", "until", "expires_at", "started", "completed"})
ADDED = {"started": str, "completed": str, "duration_s": float | None, "error": str, "category": str}
PARTS: dict[str, type] = {
    "program": events.Program,
    "request": events.Request,
    "reason": events.Reason,
    "failure": Failure,
}


def events_page() -> str:
    blocks: list[list[str]] = [
        ["# Events", "", NOTE],
        [
            "Every fact about an execution is an event. The journal, `holdfast events --json`,",
            "`holdfast watch --json`, `holdfast run --json` and `run.watch()` (with `as_dict()`) all show this form.",
            "",
            "Each event carries `seq` (its number, without gaps from 1), `at` (ISO 8601, UTC), `type` and `task_id`",
            "(the execution's id). Live frames carry the same with `seq: null`: they are shown and not kept.",
            "Keys are always present; what does not apply is null, empty or false.",
        ],
    ]
    groups = (
        ("The task", events.TaskEvent),
        ("Steps", events.StepEvent),
        ("People", events.PeopleEvent),
        ("Money", events.BudgetEvent),
        ("Outside, family, plan", events.OtherEvent),
        ("Live frames", events.AnyFrame),
    )
    for heading, union in groups:
        blocks.append([f"## {heading}"])
        for kind in typing.get_args(union):
            blocks.append(event_block(kind))
    blocks.append(["## Parts"])
    blocks += [part_block(name, kind) for name, kind in PARTS.items()]
    return page(*blocks)


def event_block(kind: Any) -> list[str]:
    name = str(kind.__struct_config__.tag)
    said = prose(kind)
    when = WHEN.get(name, "") if said else sentence_for(WHEN, name, "WHEN")
    lines = [f"### {name}", "", f"{said} {when}".strip()]
    hints, comments = typing.get_type_hints(kind), comments_of(kind)
    hints |= {in_dollars(name): hint for name, hint in hints.items()}
    comments |= {in_dollars(name): text for name, text in comments.items()}
    rows = [
        (f"`{field}`", type_word(field, hints.get(field, ADDED.get(field))), field_word(field, comments))
        for field in wired_fields(kind)
    ]
    return [*lines, "", *table(("field", "type", "meaning"), rows)] if rows else lines


def in_dollars(name: str) -> str:
    """Events hold micro-dollars; outside, amounts are told in dollars."""
    return re.sub("_micros$", "_usd", name)


def part_block(name: str, kind: Any) -> list[str]:
    hints, comments = typing.get_type_hints(kind), {**comments_of(kind), **PART_FIELDS[name]}
    rows = [(f"`{field}`", type_word(field, hints[field]), field_word(field, comments)) for field in hints]
    return [f"### {name}", "", prose(kind), "", *table(("field", "type", "meaning"), rows)]


def wired_fields(kind: Any) -> list[str]:
    """The keys the wire form really has, asked of the code that writes it."""
    hints = typing.get_type_hints(kind)
    required = [field for field in msgspec.structs.fields(kind) if field.required]
    example = kind(**{field.name: sample(hints[field.name]) for field in required})
    wired = wire_frame("", example) if issubclass(kind, events.Frame) else wire_event("", 1, example)
    return [name for name in wired if name not in ("seq", "at", "type", "task_id")]


def sample(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint)
        return hint(**{f.name: sample(hints[f.name]) for f in msgspec.structs.fields(hint) if f.required})
    if hint is msgspec.Raw:
        return msgspec.Raw(b"null")
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[0]
    return (typing.get_origin(hint) or hint)()


def comments_of(kind: Any) -> dict[str, str]:
    """What the code says beside its fields."""
    found = re.findall(r"^\s+(\w+): [^#\n]+?  # (.+)$", inspect.getsource(kind), re.MULTILINE)
    return {name: text for name, text in found if not text.startswith("noqa")}


def field_word(name: str, comments: dict[str, str]) -> str:
    return comments.get(name) or sentence_for(FIELDS, name, "FIELDS")


def type_word(name: str, hint: Any) -> str:
    """A type as a reader of JSON thinks of it."""
    if name in TIMES:
        return "time or null"
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_word(name, member) for member in arguments)
    if origin is typing.Literal:
        return ", ".join(f"`{word}`" for word in arguments)
    if origin is tuple:
        return f"list of {type_word(name, arguments[0])}"
    if origin is dict:
        return "map of texts"
    if hint in PARTS.values():
        part = next(part for part, kind in PARTS.items() if kind is hint)
        return f"[{part}](#{part})"
    words = {int: "number", float: "number", str: "text", bool: "true or false", type(None): "null", msgspec.Raw: "any"}
    if hint in words:
        return words[hint]
    return "{" + ", ".join(in_dollars(field) for field in typing.get_type_hints(hint)) + "}"


# ---- errors ------------------------------------------------------------------------------------------------------


def errors_page() -> str:
    drawing = (errors.__doc__ or "").partition("\n\n")[2].strip()
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, BaseException)]
    order = {name: place for place, name in enumerate(re.findall(r"[├└]── (\w+)", drawing))}
    missing = [kind.__name__ for kind in kinds if kind.__name__ not in order]
    if missing:
        raise DocsIncomplete(f"core/errors.py: the tree at the top does not show {', '.join(missing)}; draw it")
    notes = dict(re.findall(r"── (\w+) {2,}(.+)$", drawing, re.MULTILINE))
    blocks: list[list[str]] = [
        ["# Errors", "", NOTE],
        [
            "Every error Holdfast raises on purpose says where it happened, what was expected and what to do now.",
            "On the command line it is one sentence on standard error, never a traceback.",
        ],
        ["```text", drawing, "```"],
    ]
    for kind in sorted(kinds, key=lambda kind: order[kind.__name__]):
        blocks.append(error_block(kind, notes.get(kind.__name__, "")))
    return page(*blocks)


def error_block(kind: type[BaseException], note: str) -> list[str]:
    said = inspect.cleandoc(kind.__doc__ or "").splitlines()
    facts = [f"- Import it from: `{home_of(kind)}`", f"- Kind of: `{kind.__mro__[1].__name__}`"]
    if note and "exit code" not in note:
        facts.append(f"- In short: {note}")
    if issubclass(kind, errors.ToolError):
        effect = "nothing happened" if kind.without_effect else "not known, unless the tool says `without_effect=True`"
        facts += [f"- Category: `{kind.category}`", f"- Effect: {effect}"]
    elif issubclass(kind, errors.HoldfastError):
        facts.append(f"- Exit code of the command line: {2 if issubclass(kind, errors.UsageError) else 1}")
    return [f"## {kind.__name__}", "", " ".join(" ".join(said).split()), "", *facts]


def home_of(kind: type[BaseException]) -> str:
    return "holdfast" if kind.__name__ in holdfast.__all__ else kind.__module__


# ---- command line ------------------------------------------------------------------------------------------------


def cli_page() -> str:
    import typer.main

    from holdfast.cli.main import app

    root: Any = typer.main.get_command(app)
    blocks: list[list[str]] = [
        ["# Command line", "", NOTE],
        [
            "An execution is named by its id, by any unambiguous beginning or end of it, or as `@last`. `--store`,",
            "`-C` and `--profile` may stand anywhere.",
        ],
        [
            "`--json` answers with one JSON document; `run`, `resume`, `retry`, `fork`, `watch`, `events`, `logs` and",
            "`worker` with JSON lines, one for each event or line, and so does a command for many, one for each",
            "execution; `schema` answers in JSON by itself. Then an error is one JSON object on stderr,",
            '`{"error": TEXT, "type": CLASS}`, and whatever is said beside the answer is another, `{"note": TEXT}`.',
        ],
        table(
            ("exit code", "meaning"),
            [
                ("0", "completed, or the command did what it says"),
                ("1", "failed or stopped, or the journal cannot be used"),
                ("2", "wrong use; nothing was changed"),
                ("3", "paused, or waiting for a person"),
                (
                    "74",
                    "the output cannot be written, as on a full disk; what was commanded or run is in the journal",
                ),
                ("130", "interrupted"),
                (
                    "143",
                    "told to end with SIGTERM (129: its terminal was closed); it can be resumed. A worker: 0",
                ),
            ],
        ),
        help_block("holdfast", root, None),
    ]
    context = root.make_context("holdfast", ["--help"], resilient_parsing=True)
    for name, command in root.commands.items():
        if command.hidden:
            continue
        blocks.append(help_block(f"holdfast {name}", command, context))
        within = command.context_class(command, info_name=name, parent=context)
        for inner, subcommand in getattr(command, "commands", {}).items():
            blocks.append(help_block(f"holdfast {name} {inner}", subcommand, within))
    return page(*blocks)


def help_block(name: str, command: Any, parent: Any) -> list[str]:
    settings_of_context = {"terminal_width": HELP_WIDTH, "help_option_names": ["-h", "--help"]}
    context = command.context_class(command, info_name=name.rpartition(" ")[2], parent=parent, **settings_of_context)
    text: str = command.get_help(context)
    return [f"## {name}", "", "```text", *(line.rstrip() for line in text.rstrip().splitlines()), "```"]


# ---- settings ----------------------------------------------------------------------------------------------------


def settings_page() -> str:
    blocks: list[list[str]] = [
        ["# Settings", "", NOTE],
        [
            "Settings come from `holdfast.toml`, or from `[tool.holdfast]` in `pyproject.toml`, found upwards from",
            "where the command was started; then from the profile that was chosen; then from the environment; then",
            "from flags. Later ones win. A wrong type is an error that names it, an unknown name a warning.",
            "`holdfast config` prints every value with its source, and [configuration](../guides/configuration.md) has",
            "examples.",
        ],
    ]
    for key, kind in settings.KEYS.items():
        known = DEFAULTS.get(key) or default_of(key)
        variable = settings.ENVIRONMENT_PREFIX + key.upper().replace(".", "_")
        facts = [
            f"- Expects: {settings.EXPECTED[kind]}",
            f"- Default: {known}",
            *([f"- Environment: `{variable}`"] if kind not in ("tables", "secrets") else []),
            *([f"- Flag: {FLAGS[key]}"] if key in FLAGS else []),
        ]
        blocks.append([f"## {key}", "", sentence_for(SETTINGS, key, "SETTINGS"), "", *facts])
    return page(*blocks)


def default_of(key: str) -> str:
    group, _, name = key.partition(".")
    groups = {
        "limits": settings.LimitSettings(),
        "resources": settings.ResourceSettings(),
        "pressure": settings.PressureSettings(),
    }
    value = getattr(groups[group], name)
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else f"{value:g}"


# ---- limits ------------------------------------------------------------------------------------------------------


def limits_page() -> str:
    rows = [
        (limit.meaning, amount(limit), limit.changed_by or "fixed", f"`{limit.module}.{limit.constant}`")
        for limit in LIMITS
    ]
    return page(
        ["# Limits", "", NOTE],
        [
            "Nothing is unbounded. These are the limits that are not [settings](settings.md), with their defaults.",
            "Reaching one is an error that says so, or a wait; never a silent loss.",
        ],
        table(("limit on", "value", "changed by", "in the code"), rows),
    )


def checks_page() -> str:
    rows = [(f"`{name}`", " ".join((check.__doc__ or "").split())) for name, check in CHECKS.items()]
    return page(
        ["# Checks", "", NOTE],
        [
            "What is checked after every simulated history; see [reliability](../reliability.md#the-proof).",
            "A check is named for what it proves.",
        ],
        table(("check", "what it proves"), rows),
    )


def amount(limit: Limit) -> str:
    value = getattr(import_module(f"holdfast.{limit.module}"), limit.constant)
    if "BYTES" in limit.constant:
        return f"{value // 1024**2} MB" if value >= 1024**2 else f"{value // 1024} KB"
    if limit.constant.endswith("_S") or "_S_" in limit.constant:
        return duration_word(value)
    return f"{value:,}"


def duration_word(seconds: float) -> str:
    for unit, size in (("day", 86400), ("hour", 3600)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:,.0f} {unit}{'' if seconds == size else 's'}"
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:,.0f} s"


# ---- diagrams ----------------------------------------------------------------------------------------------------

DIAGRAMS = {
    "execution states": (lifecycle.TASK_MOVES, lifecycle.NEW),
    "step states": (lifecycle.STEP_MOVES, "pending"),
}


def with_diagrams(text: str) -> str:
    """The page with each marked place filled in from the transition tables."""
    for name, (moves, start) in DIAGRAMS.items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise DocsIncomplete(f"docs/architecture.md: the marks {begin} and {end} are missing; put them back")
        text = f"{before}{begin}\n\n```mermaid\n{lifecycle.mermaid(moves, start)}\n```\n\n{end}{after}"
    return text


if __name__ == "__main__":
    sys.exit(main(only_check="--check" in sys.argv[1:]))
