"""Third-party imports: which ones the core may use, and that code uses every extra.

import-linter checks which room imports which.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "holdfast"
CORE = SOURCE / "core"


def imported_packages(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_core_imports_the_standard_library_and_msgspec_only() -> None:
    allowed = {*sys.stdlib_module_names, "holdfast", "msgspec"}
    found = {
        f"{file.relative_to(CORE.parent)} imports {package}"
        for file in CORE.rglob("*.py")
        for package in imported_packages(file.read_text())
        if package not in allowed
    }
    assert not found


def test_every_extra_is_imported_by_code_and_all_means_each_of_them() -> None:
    extras: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    del extras["dev"]
    assert extras.pop("all") == [f"holdfast[{','.join(sorted(extras))}]"]
    code = "\n".join(file.read_text() for file in SOURCE.rglob("*.py"))
    packages = {re.split(r"[^\w-]", one)[0] for extra in extras.values() for one in extra}
    imports = {name: rf"""^\s*(from|import) {name}\b|import_module\("{name}"\)""" for name in packages}
    assert not {name for name, pattern in imports.items() if not re.search(pattern, code, re.MULTILINE)}


def test_only_the_composition_root_makes_engines_and_opens_stores() -> None:
    """The command line and the testing package get theirs from app.py, and their stores from journal/open.py."""
    made = {
        r"\bServices\(": {"app.py"},
        r"\bSqliteStore\(|\bopen_postgres\(|\bLockFiles\(": {
            "journal/open.py", "journal/sqlite/store.py", "journal/postgres/address.py", "journal/liveness.py"
        },
    }  # fmt: skip
    for pattern, homes in made.items():
        found = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if re.search(pattern, file.read_text())}
        assert found <= homes
