"""One execution on one page, for people: made from the same data that `show --json` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.cli.common.invocation import holdfast
from holdfast.cli.output.event_lines import failure_lines, how_again, request_lines, waiting_for
from holdfast.cli.output.format import (
    count,
    distance,
    duration,
    is_past,
    local_time,
    mark,
    moment,
    one_line,
    output_line,
    paint,
    status_word,
    strip_control_chars,
    usd,
    value,
    writable,
)
from holdfast.cli.output.step_tree import TELLING, TELLING_MAX, TOGETHER_MAX, fold_items, label, tree
from holdfast.core.execution import parent_of
from holdfast.core.failed_steps import with_failures_inside
from holdfast.core.resources import say_size

Wired = Mapping[str, Any]


def page_of(shown: Wired, *, everything: bool = False) -> list[str]:
    """Many items of one `for_each` and many children are counted instead of shown, unless `everything` is wanted."""
    shown = strip_control_chars(dict(shown))
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
    name = one_line(shown["title"] or shown["name"])
    lines = [paint(name, "bold") + (f"  ({shown['name']})" if shown["title"] else "")]
    status = status_word(shown["status"])
    if shown["status"] == "waiting":
        status += f" for {waiting_for(shown['reasons'])}"
    elif shown["by"] or shown["why"]:
        status += (f" by {shown['by']}" if shown["by"] else "") + (f": {shown['why']}" if shown["why"] else "")
    if shown.get("stopping"):
        status += "; its pause limit was reached: its finally steps run, then it is stopped"
    facts = [("id", shown["id"]), ("status", status)]
    if shown["status"] == "paused" and shown["paused_until"]:
        facts.append(("pause limit", _pause_limit(shown)))
    if shown["quarantined"]:
        facts.append(("set aside", f"{shown['quarantined']}; run `{holdfast()} doctor`"))
    if shown["held"]:
        facts.append(("held", f"{shown['held']}; nobody drives it before `{holdfast()} resume {shown['id']}`"))
    facts.append(("started", _times(shown) + (f", by {shown['started_by']}" if shown.get("started_by") else "")))
    if shown["steps_total"]:
        facts.append(("steps", _progress(shown)))
    facts += [("failed", line) for line in shown["failed"]]
    if shown["spend"]["usd"] is not None or shown["spend"]["limit"] is not None:
        facts.append(("spent", _spent(shown["spend"])))
    if shown["inputs"]:
        facts.append(("inputs", value(shown["inputs"])))
    if shown["owner"]:
        facts.append(("owner", shown["owner"]))
    if shown["labels"]:
        facts.append(("labels", ", ".join(f"{name}={text}" for name, text in shown["labels"].items())))
    facts += _kin(shown)
    if shown["recoveries"]:
        times = "once" if shown["recoveries"] == 1 else f"{shown['recoveries']} times"
        facts.append(("taken over", f"{times}, after its process died"))
    return lines + [f"  {name:<12} {text}" for name, text in facts]


def _pause_limit(shown: Wired) -> str:
    """When it acts; that it is overdue, if no engine has run since."""
    until, stops = shown["paused_until"], shown["on_pause_timeout"] == "stop"
    if is_past(until):
        then = "stopped" if stops else "resumed"
        return f"overdue: it was to be {then} {distance(until)}; that happens when an engine runs: holdfast worker"
    return f"it is {'stopped' if stops else 'resumed'} {distance(until)}, {local_time(until)}"


def _kin(shown: Wired) -> Iterator[tuple[str, str]]:
    """What it was made from, and what was made of it."""
    if shown["parent_id"]:
        yield "parent", shown["parent_id"]
    if shown["forked_from"]:
        yield "forked from", shown["forked_from"]["id"]
    if again := shown.get("retried_as"):
        yield "retried as", f"{again['id']}, {status_word(again['status'])}"


def _progress(shown: Wired) -> str:
    """How far it is; of one that ended otherwise, how its own steps ended."""
    if shown["status"] not in ("failed", "stopped"):
        return f"{shown['steps_ended']} of {shown['steps_total']} ({shown['percent']:.0f}%)"
    own = [step["status"] for step in shown["steps"] if not parent_of(step["path"])]
    ends = ", ".join(f"{own.count(end)} {end}" for end in ("completed", "failed", "skipped") if end in own)
    return f"{ends or '0 completed'}, of {shown['steps_total']}"


def _spent(spend: Wired) -> str:
    limit = f" of {usd(spend['limit'])}" if spend["limit"] is not None else ""
    told = usd(spend["usd"]) if spend["usd"] is not None else "unknown"
    more = [f"{usd(spend['reserved'])} reserved"] if spend["reserved"] else []
    more += [f"{count(spend['unknown'], 'amount')} estimated"] if spend["unknown"] else []
    return f"{told}{limit}" + (f" ({', '.join(more)})" if more else "")


def _times(shown: Wired) -> str:
    started, ended = moment(shown["started_at"]), moment(shown["ended_at"])
    if started is None:
        return "not yet"
    text = f"{local_time(shown['started_at'])}, {distance(shown['started_at'])}"
    return f"{text}, took {duration((ended - started).total_seconds())}" if ended else text


def _steps(shown: Wired, everything: bool) -> list[str]:
    steps = {step["path"]: step for step in shown["steps"]}
    torn = with_failures_inside(path for path in steps if steps[path]["status"] == "failed")
    rows = list(tree(steps)) if everything else fold_items(list(tree(steps)), steps)
    width = max((2 * depth + len(label(path, depth)) for depth, path in rows if isinstance(path, str)), default=0)
    lines: list[str] = []
    for depth, path in rows:
        indent = "  " * depth
        if isinstance(path, str):
            name = label(path, depth).ljust(width - len(indent))
            sign = mark(steps[path]["status"], has_failures=path in torn)
            lines.append(f"  {indent}{sign} {name}  {_about(steps[path])}".rstrip())
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
        parts.append(f"{step['tool']}, its fallback" if step["fallback"] else step["tool"])
    elif step["percent"] is not None:
        parts.append(f"{step['kind']} {step['percent']:.0f}%")
    if step["duration_s"] is not None:
        parts.append(duration(step["duration_s"]))
    if step["used"]:
        parts.append(_used(step["used"]))
    if step["attempts"] > 1:
        parts.append(f"{step['attempts']} attempts{how_again(step)}")
    if step["cached"]:
        parts.append("from the cache")
    if step["by"]:
        parts.append(f"by {step['by']}")
    if step["diverged"]:
        parts.append("recorded outcome kept, though it would be called otherwise today")
    if step["status"] == "retrying" and step["due_at"]:
        parts.append(f"next {distance(step['due_at'])}")
    return ", ".join(part for part in parts if part) + _because(step)


def _used(used: Wired) -> str:
    """Of the machine: what takes time and what takes room; `--json` has the rest."""
    parts = [f"{used['cpu_s']:.1f} s CPU"] if used.get("cpu_s") is not None else []
    parts += [say_size(used["memory_bytes"])] if used.get("memory_bytes") is not None else []
    return ", ".join(parts)


def _because(step: Wired) -> str:
    if step["failure"] and step["status"] in ("failed", "retrying", "waiting"):
        lived_with = " (not critical)" if step["status"] == "failed" and not step["critical"] else ""
        affected = (
            f"; left out for it: {', '.join(step['failure']['affects'])}"
            if lived_with and step["failure"]["affects"]
            else ""
        )
        place = f" (at {step['failure']['place']})" if step["failure"]["place"] else ""
        what, _, said = str(step["failure"]["message"]).partition("\n")  # a command's failure, and what it printed
        if what.endswith(";"):  # the sentence goes on
            more, _, said = said.partition("\n")
            what = f"{what} {more}"
        return f"{lived_with}: {value(what)}{place}" + (f"; it said: {value(said)}" if said.strip() else "") + affected
    if step["warning"]:
        return f"; warning: {value(step['warning'])}"
    return f": {value(step['reason'])}" if step["reason"] and step["status"] in ("skipped", "in_doubt") else ""


def _next_command(shown: Wired) -> str:
    match shown["status"]:
        case "paused" | "interrupted":
            return f"go on with: {holdfast()} resume {shown['id']}"
        case "stopped" if not shown.get("retried_as"):
            return f"run it again: {holdfast()} retry {shown['id']}"
        case "completed":
            return f"run it again from a step on: {holdfast()} retry {shown['id']} --from STEP"
        case "running" | "waiting" | "queued" if not shown["driven"]:
            return f"nobody is driving it now; go on with: {holdfast()} resume {shown['id']}"
        case _:
            return ""
