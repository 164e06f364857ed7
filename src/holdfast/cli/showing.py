"""One execution on one page, for people: made from the same data that `show --json` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.cli.story import failure_lines, request_lines, waiting_for
from holdfast.cli.text import (
    distance,
    duration,
    local_time,
    mark,
    moment,
    output_line,
    paint,
    status_word,
    value,
    writable,
)
from holdfast.cli.tree import TELLING, TELLING_MAX, TOGETHER_MAX, fold_items, label, tree

Wired = Mapping[str, Any]


def page_of(shown: Wired, *, everything: bool = False) -> list[str]:
    """Many items of one `for_each` and many children are counted instead of shown, unless `everything` is wanted."""
    lines = [*_heading(shown), "", *_steps(shown, everything)]
    if shown["children"]:
        lines += ["", paint("children", "bold"), *_children(shown["children"], everything)]
    if shown["requests"]:
        lines += ["", paint("asked of you", "bold")]
        for request in shown["requests"]:
            lines += [f"  {line}" for line in request_lines(request, shown["id"])]
    if shown["failure"]:
        lines += ["", *failure_lines(shown)]
    elif shown["output"] is not None:
        lines += ["", output_line(shown["output"], shown["id"])]
    if not shown["failure"] and (todo := _next_command(shown)):
        lines += ["", todo]
    return lines


def _heading(shown: Wired) -> list[str]:
    name = shown["title"] or shown["name"]
    lines = [paint(name, "bold") + (f"  ({shown['name']})" if shown["title"] else "")]
    status = status_word(shown["status"])
    if shown["status"] == "waiting":
        status += f" for {waiting_for(shown['reasons'])}"
    elif shown["by"] or shown["why"]:
        status += (f" by {shown['by']}" if shown["by"] else "") + (f": {shown['why']}" if shown["why"] else "")
    facts = [("id", shown["id"]), ("status", status)]
    if shown["quarantined"]:
        facts.append(("set aside", f"{shown['quarantined']}; run `holdfast doctor`"))
    facts.append(("started", _times(shown)))
    if shown["steps_total"]:
        facts.append(("steps", f"{shown['steps_ended']} of {shown['steps_total']} ({shown['percent']:.0f}%)"))
    if shown["inputs"]:
        facts.append(("inputs", value(shown["inputs"])))
    if shown["owner"]:
        facts.append(("owner", shown["owner"]))
    if shown["labels"]:
        facts.append(("labels", ", ".join(f"{name}={text}" for name, text in shown["labels"].items())))
    if shown["parent_id"]:
        facts.append(("parent", shown["parent_id"]))
    if shown["forked_from"]:
        facts.append(("forked from", shown["forked_from"]["id"]))
    if shown["recoveries"]:
        times = "once" if shown["recoveries"] == 1 else f"{shown['recoveries']} times"
        facts.append(("taken over", f"{times}, after its process died"))
    return lines + [f"  {name:<12} {text}" for name, text in facts]


def _times(shown: Wired) -> str:
    started, ended = moment(shown["started_at"]), moment(shown["ended_at"])
    if started is None:
        return "not yet"
    text = f"{local_time(shown['started_at'])}, {distance(shown['started_at'])}"
    return f"{text}, took {duration((ended - started).total_seconds())}" if ended else text


def _steps(shown: Wired, everything: bool) -> list[str]:
    steps = {step["path"]: step for step in shown["steps"]}
    rows = list(tree(steps)) if everything else fold_items(list(tree(steps)), steps)
    width = max((2 * depth + len(label(path, depth)) for depth, path in rows if isinstance(path, str)), default=0)
    lines: list[str] = []
    for depth, path in rows:
        indent = "  " * depth
        if isinstance(path, str):
            name = label(path, depth).ljust(width - len(indent))
            lines.append(f"  {indent}{mark(steps[path]['status'])} {name}  {_about(steps[path])}".rstrip())
        else:
            lines.append(f"  {indent}{_counted('items', path)}")
    return lines or ["  no steps yet"]


def _children(children: Sequence[Wired], everything: bool) -> list[str]:
    shown, lines = children, list[str]()
    if len(children) > TOGETHER_MAX and not everything:
        lines.append(f"  {_counted('children', Counter(child['status'] for child in children))}")
        shown = [child for child in children if child["status"] in TELLING][:TELLING_MAX]
    width = max((len(child["path"]) for child in shown), default=0)
    for child in shown:
        lines.append(f"  {child['path'].ljust(width)}  {child['id']}  {status_word(child['status'])}")
        for request in child["requests"]:
            lines += [f"    {line}" for line in request_lines(request, request["execution_id"])]
    return lines


def _counted(what: str, statuses: Counter[str]) -> str:
    counts = ", ".join(f"{number} {status}" for status, number in statuses.most_common())
    return f"{writable('…', '...')} {statuses.total()} {what}: {counts}; --all shows every one"


def _about(step: Wired) -> str:
    parts: list[str] = [step["status"] if step["status"] not in ("completed",) else ""]
    if step["kind"] in ("tool", "code"):
        parts.append(step["tool"])
    elif step["percent"] is not None:
        parts.append(f"{step['kind']} {step['percent']:.0f}%")
    if step["duration_s"] is not None:
        parts.append(duration(step["duration_s"]))
    if step["attempts"] > 1:
        parts.append(f"{step['attempts']} attempts")
    if step["cached"]:
        parts.append("from the cache")
    if step["by"]:
        parts.append(f"by {step['by']}")
    if step["diverged"]:
        parts.append("recorded outcome kept, though it would be called otherwise today")
    if step["status"] == "retrying" and step["due_at"]:
        parts.append(f"next {distance(step['due_at'])}")
    return ", ".join(part for part in parts if part) + _because(step)


def _because(step: Wired) -> str:
    if step["failure"] and step["status"] in ("failed", "retrying", "waiting"):
        lived_with = " (not critical)" if step["status"] == "failed" and not step["critical"] else ""
        return f"{lived_with}: {value(step['failure']['message'])}"
    return f": {step['reason']}" if step["reason"] and step["status"] in ("skipped", "in_doubt") else ""


def _next_command(shown: Wired) -> str:
    match shown["status"]:
        case "paused" | "interrupted":
            return f"go on with: holdfast resume {shown['id']}"
        case "stopped":
            return f"run it again: holdfast retry {shown['id']}"
        case "completed":
            return f"run it again from a step on: holdfast retry {shown['id']} --from STEP"
        case "running" | "waiting" | "queued" if not shown["driven"]:
            return f"nobody is driving it now; go on with: holdfast resume {shown['id']}"
        case _:
            return ""
