"""`holdfast check`: every mistake in many plans at once, with file, line and place, for people, editors and CI.

Owns which files are plans. A file that is named is one; of a folder, every `.yaml`, `.yml` and `.json` file below it
whose top is a map with a list `steps`, in which some entry says what a step does (`tool`, `steps`, `wait`, `start` or
`approval`). Hidden folders, environments, `node_modules` and other projects (folders with their own `holdfast.toml`)
are left out. A file that cannot be parsed counts as a plan if a line of it begins with `steps:`, so that a broken plan
does not slip through.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from holdfast.core.errors import NotFound, PlanInvalid, Problem, UsageError
from holdfast.core.plan_steps import KIND_OF
from holdfast.programs.documents import PLAN_ENDINGS, named, parse_document, read_text
from holdfast.programs.lines import Lines
from holdfast.programs.lint import lint, unmet
from holdfast.settings import CONFIG_FILE

if TYPE_CHECKING:
    from holdfast.programs.prepare import Preparer

FILES_MAX = 10_000  # in all folders together; more is somebody's data, not their plans
_STEPS = re.compile(r'^\s*"?steps"?\s*:', re.MULTILINE)
Severity = Literal["error", "warning"]


class Finding(NamedTuple):
    file: str
    line: int | None
    place: str
    message: str
    severity: Severity

    def __str__(self) -> str:
        parts = [self.file if self.line is None else f"{self.file}:{self.line}"]
        parts += ["warning"] if self.severity == "warning" else []
        parts += [self.place] if self.place and not self.place.startswith("line ") else []
        return ": ".join([*parts, self.message])


class Checked(NamedTuple):
    files: int
    findings: list[Finding]

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)


def check_all(paths: Iterable[str], preparer: Preparer) -> Checked:
    """Raises `UsageError` for a path that is not there, or when nothing to check is found."""
    given = list(paths)
    files = list(dict.fromkeys(file for path in given for file in _plans_at(Path(path))))
    if not files:
        raise UsageError(f"no plans in {', '.join(given)}; a plan is a YAML or JSON file with a list of steps")
    return Checked(len(files), [finding for file in files for finding in _findings(file, preparer)])


# ---- which files -------------------------------------------------------------------------------------------------


def _plans_at(path: Path) -> Iterator[Path]:
    if os.path.isdir(path):
        yield from (file for file in _files_below(path) if _is_plan(file))
    elif not os.path.exists(path):
        raise NotFound(f"there is no file or folder {path}")
    elif path.suffix not in PLAN_ENDINGS:
        raise UsageError(f"{path} is not a plan file; those end with {', '.join(PLAN_ENDINGS)}")
    else:
        yield path


def _files_below(folder: Path) -> Iterator[Path]:
    found = 0
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_left_out(Path(here, name)))
        for name in sorted(files):
            if not name.endswith(PLAN_ENDINGS):
                continue
            found += 1
            if found > FILES_MAX:
                raise UsageError(f"{folder} holds more than {FILES_MAX:,} YAML and JSON files; name a smaller folder")
            yield Path(here, name)


def _is_left_out(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name == "node_modules":
        return True
    return os.path.exists(folder / "pyvenv.cfg") or os.path.exists(folder / CONFIG_FILE)


def _is_plan(file: Path) -> bool:
    try:
        text = read_text(file)
    except PlanInvalid:
        return False
    if not _STEPS.search(text) and '"steps"' not in text:
        return False
    try:
        document = parse_document(text, file)
    except PlanInvalid:
        return _STEPS.search(text) is not None
    steps: Any = cast("dict[Any, Any]", document).get("steps") if isinstance(document, dict) else None
    entries = cast("list[Any]", steps) if isinstance(steps, list) else []
    return any(key in entry for entry in entries if isinstance(entry, dict) for key in (*KIND_OF, "approval"))


# ---- one file ----------------------------------------------------------------------------------------------------


def _findings(file: Path, preparer: Preparer) -> list[Finding]:
    """The mistakes of a plan, or, when it has none, what is suspicious about it and what this machine lacks."""
    lines = Lines("")
    severity: Severity = "error"
    try:
        text = read_text(file)
        lines = Lines(text)
        document = named(parse_document(text, file), file.stem)
        plan = preparer.read(document, check_tools=True)
        problems: list[Problem] = [
            *lint(document, plan, preparer.registry),
            *unmet(plan, preparer.registry, preparer.secrets),
        ]
        severity = "warning"
    except PlanInvalid as error:
        problems = error.problems
    found = [
        Finding(str(file), lines.of(place, message), place, message, severity)
        for place, message in dict.fromkeys(problems)
    ]
    return sorted(found, key=lambda finding: finding.line or 0)
