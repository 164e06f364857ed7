"""Looking before running: `run --check` and `run --dry-run`. What would run is worked out in programs/dry_run.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.cli.output.format import count, duration, json_line, paint, strip_control_chars, value
from holdfast.core.errors import UsageError
from holdfast.core.policy import STEP_TIMEOUT_S

if TYPE_CHECKING:
    from holdfast.core.events import TaskCreated
    from holdfast.programs.prepare import Found, Preparer

ITEMS_SHOWN = 5  # of one for_each; `--json` shows more
Seen = dict[str, Any]


def look_ahead(preparer: Preparer, found: Found, inputs: Seen, *, dry_run: bool, as_json: bool) -> int:
    """Raises for mistakes. Exit code 1 says that this machine lacks something."""
    created = preparer.prepare(found, inputs)
    unmet = preparer.unmet(found)
    if dry_run:
        _tell_foreseen(preparer, created, unmet, as_json)
    elif as_json:
        print(json_line({"ok": not unmet, "unmet": unmet}))
    else:
        print("\n".join(unmet) or f"{created.program.file or created.program.name} is in order; nothing was started")
    return 1 if unmet else 0


def _tell_foreseen(preparer: Preparer, created: TaskCreated, unmet: list[str], as_json: bool) -> None:
    if created.program.kind != "plan":
        name = created.program.name
        raise UsageError(f"{name} is a function, which decides its steps while it runs; --dry-run is for plans")
    seen = {**preparer.foresee(created), "unmet": unmet}
    print(json_line(seen) if as_json else "\n".join(_lines(strip_control_chars(seen))))


def _lines(seen: Seen) -> Iterator[str]:
    yield paint(str(seen["title"] or seen["name"]), "bold")
    for name, given in seen["inputs"].items():
        yield f"  {name}: {value(given)}"
    for part, heading in (("steps", ""), ("on_failure", "if it fails:"), ("finally", "at the end:")):
        if seen[part] and heading:
            yield heading
        for step in seen[part]:
            yield from _step_lines(step, "")
    if seen["output"] is not None:
        yield f"output: {value(seen['output'])}"
    yield from seen["unmet"]
    yield "steps with the same number may run at the same time; nothing was started"


def _step_lines(step: Seen, before: str) -> Iterator[str]:
    number = f"{before}{step['turn']}"
    indent = " " * (len(number) + 2)
    yield f"{number}. {paint(step['path'], 'bold')}: {_what(step)}"
    for said in _details(step):
        yield indent + said
    for item in step.get("each", ())[:ITEMS_SHOWN]:
        yield f"{indent}- {_what(item)}"
        yield from (f"{indent}  {said}" for said in _details(item))
        for inner in item.get("steps", ()):
            yield from (f"{indent}  {line}" for line in _step_lines(inner, f"{number}."))
    if step.get("items") and step["items"] > ITEMS_SHOWN:
        yield f"{indent}… and {step['items'] - ITEMS_SHOWN} more"
    for inner in step.get("steps", ()):
        yield from _step_lines(inner, f"{number}.")


def _what(step: Seen) -> str:
    if "each" in step:
        return f"for each of {count(step['items'], 'item')}, {step['max_parallel']} at a time"
    if step.get("tool"):
        return _call(step)
    if "steps" in step:
        return str(step.get("title") or count(len(step["steps"]), "step"))
    if "wait" in step:
        return "wait " + ", ".join(f"{name} {value(said)}" for name, said in step["wait"].items())
    if "start" in step:
        return f"start {step['start']} {value(step['arguments'])}"
    return "ask for an approval" if step["kind"] == "approval" else str(step["kind"])


def _call(step: Seen) -> str:
    effect = f" ({step['effect']})" if step["effect"] else ""
    arguments = f" {value(step['arguments'])}" if "arguments" in step else ""
    return f"{step['tool']}{effect}{arguments}"


def _details(step: Seen) -> Iterator[str]:
    if step.get("problem"):
        yield paint(str(step["problem"]), "red")
    if "when" in step:
        outcome = {True: "it does", False: "it does not: skipped", None: "not known yet"}[step.get("runs")]
        yield f"runs when {step['when']}: {outcome}"
    if "items" in step and step["items"] is None:
        yield f"for each of {value(step['for_each'])}, {step['max_parallel']} at a time"
    if approval := step.get("approval"):
        yield f"a person must agree within {duration(approval['expires_s'])}: {approval['message'] or 'run it?'}"
    for other in step.get("fallbacks", ()):
        yield f"or else {_call(other)}"
    if step.get("timeout_s", STEP_TIMEOUT_S) != STEP_TIMEOUT_S:
        yield f"time limit: {duration(step['timeout_s'])}"
    if step.get("optional"):
        yield "optional"
    elif step.get("critical") is False:
        yield "not critical: the plan goes on if it fails"
