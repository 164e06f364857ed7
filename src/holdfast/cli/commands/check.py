"""`holdfast check`: every mistake in many plans at once, with file, line and place, for people, editors and CI.

Owns which files are plans. A file that is named is one; of a folder, every `.yaml`, `.yml` and `.json` file below it
that begins with the comment naming Holdfast's schema, or whose top is a map with `steps`, in which some entry says what
a step does (`tool`, `steps`, `wait`, `start` or `approval`). A slip of the pen makes no plan invisible: `stpes` counts
as `steps`, and in a map with a `name`, `tol` as `tool`. A file that cannot be parsed counts as a plan if a line of it
begins with `steps:`. Hidden folders, environments, `node_modules` and other projects (folders with their own
`holdfast.toml`) are left out; files that are no plans are named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, ValuesView
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from holdfast.core.error_text import did_you_mean
from holdfast.core.errors import HoldfastError, NotFound, PlanInvalid, Problem, UsageError
from holdfast.core.plan.parse_steps import KIND_OF
from holdfast.programs.lint import lint, unmet
from holdfast.programs.plan_files import NO_PLAN_ENDINGS, PLAN_ENDINGS, named, parse_document, read_text
from holdfast.programs.yaml_lines import Lines
from holdfast.settings import CONFIG_FILE

if TYPE_CHECKING:
    from holdfast.programs.prepare import Preparer

FILES_MAX = 10_000  # in all folders together; more is somebody's data, not their plans
_STEPS = re.compile(r'^\s*"?steps"?\s*:', re.MULTILINE)
_SCHEMA = re.compile(r"^#\s*yaml-language-server:\s*\$schema=\S*holdfast", re.MULTILINE)
_KEY = re.compile(r"""(\w{3,8})["']?\s*:""")
KEYS_MAX = 2000  # different ones, of a file that may be somebody's data
DOINGS = (*KIND_OF, "approval")
Severity = Literal["error", "warning"]


class PlanFinding(NamedTuple):
    file: str
    line: int | None
    place: str
    message: str
    severity: Severity

    def __str__(self) -> str:
        parts = [self.file if self.line is None else f"{self.file}:{self.line}"]
        parts += ["warning"] if self.severity == "warning" else []
        parts += [self.place] if self.place else []
        return ": ".join([*parts, self.message])


class Checked(NamedTuple):
    files: int
    findings: list[PlanFinding]
    left_out: list[str]

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)


def check_all(paths: Iterable[str], preparer: Preparer) -> Checked:
    """Raises `UsageError` for a path that is not there, or when nothing to check is found."""
    given = list(paths)
    files: dict[Path, bool] = {}  # whether each is a plan
    for path in given:
        for file, is_plan in _files_at(Path(path)):
            files[file] = files.get(file, False) or is_plan
    plans = [file for file, is_plan in files.items() if is_plan]
    if not plans:
        raise UsageError(f"no plans in {', '.join(given)}; a plan is a YAML or JSON file with a list of steps")
    findings = [finding for file in plans for finding in _findings(file, preparer)]
    return Checked(len(plans), findings, [str(file) for file, is_plan in files.items() if not is_plan])


# ---- which files -------------------------------------------------------------------------------------------------


def _files_at(path: Path) -> Iterator[tuple[Path, bool]]:
    if os.path.isdir(path):
        yield from ((file, _is_plan(file)) for file in _files_below(path))
    elif not os.path.exists(path):
        raise NotFound(f"there is no file or folder {path}")
    elif path.suffix not in PLAN_ENDINGS:
        raise UsageError(f"{path} is not a plan file; those end with {', '.join(PLAN_ENDINGS)}")
    else:
        yield path, True


def _files_below(folder: Path) -> Iterator[Path]:
    found = 0
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_left_out(Path(here, name)))
        for name in sorted(files):
            if not name.endswith(PLAN_ENDINGS) or name.endswith(NO_PLAN_ENDINGS):
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
    if _SCHEMA.search(text):
        return True
    if not _may_have_steps(text):
        return False
    try:
        document = parse_document(text, file)
    except PlanInvalid:
        return _STEPS.search(text) is not None
    return isinstance(document, dict) and _has_steps(cast("dict[Any, Any]", document))


def _may_have_steps(text: str) -> bool:
    """A quick look before a file is parsed that may be somebody's data."""
    if _STEPS.search(text) or '"steps"' in text:
        return True
    return any(_is_like(key, "steps") for key in islice(dict.fromkeys(_KEY.findall(text)), KEYS_MAX))


def _has_steps(document: dict[Any, Any]) -> bool:
    for key, steps in document.items():
        if not _is_like(key, "steps"):
            continue
        entries: Any = cast("dict[Any, Any]", steps).values() if isinstance(steps, dict) else steps
        said = [cast("dict[Any, Any]", entry) for entry in _items(entries) if isinstance(entry, dict)]
        if any(doing in entry for entry in said for doing in DOINGS):
            return True
        if "name" in document and any(_is_like(word, doing) for entry in said for word in entry for doing in DOINGS):
            return True
    return False


def _items(entries: Any) -> list[Any]:
    return list(cast("Iterable[Any]", entries)) if isinstance(entries, (list, ValuesView)) else []


def _is_like(word: Any, meant: str) -> bool:
    return isinstance(word, str) and bool(did_you_mean(word, [meant]))


# ---- one file ----------------------------------------------------------------------------------------------------


def _findings(file: Path, preparer: Preparer) -> list[PlanFinding]:
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
    except HoldfastError as error:  # of one file, which is no reason to be silent about the others
        problems = [Problem("", str(error))]
    found = [
        PlanFinding(str(file), one.line or lines.of(one.place), "" if one.line else one.place, one.message, severity)
        for one in dict.fromkeys(problems)
    ]
    return sorted(found, key=lambda finding: finding.line or 0)
