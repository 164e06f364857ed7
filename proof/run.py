"""The whole proof in one run: simulated histories, every crash point, every fault of the disk, load and soak.

    make prove                          everything, about an hour
    python proof/run.py --quick         the same with smaller numbers, for a look at the table
    python proof/run.py --only NAME     one part: simulator, sabotage, sweep, stores, disk, load, properties,
                                        coverage

Prints one table, and after a whole run without violations writes it into docs/reliability.md. A violation is printed
with the command that replays it; then nothing is written, and the exit code is 1. What the parts do is in parts.py.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from proof.parts import PARTS, QUICK, Row, Size

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reliability.md"
MARK = re.compile(r"(<!-- generated: proof -->\n).*?(\n<!-- end: proof -->)", re.DOTALL)
SHOWN_MAX = 20  # violations of a row; the rest are of the same kind


def main(arguments: Sequence[str] | None = None, page: Path = PAGE) -> int:
    given = _parser().parse_args(arguments)
    rows: list[Row] = []
    for name in given.only or PARTS:
        rows += _run(name, QUICK if given.quick else Size())
    failed = sum(len(row.violations) for row in rows)
    print(f"\n{table(rows)}\n\nviolations: {failed}")
    if not failed and not given.quick and not given.only:
        write(page, rows)
    return 1 if failed else 0


def _run(name: str, size: Size) -> list[Row]:
    """The rows of one part, shown as they come. A part that breaks off has proved nothing."""
    rows: list[Row] = []
    began = time.monotonic()
    try:
        for row in PARTS[name](size):
            rows.append(row)
            _show(row)
    except Exception as error:
        rows.append(Row(name, "it broke off", [repr(error)]))
        _show(rows[-1])
    print(f"  ({name}: {time.monotonic() - began:.0f} s)", flush=True)
    return rows


def _show(row: Row) -> None:
    print(f"{row.what}: {row.tried}; violations {len(row.violations)}", flush=True)
    for violation in row.violations[:SHOWN_MAX]:
        print(f"  {violation}", flush=True)


def table(rows: Sequence[Row]) -> str:
    lines = ["| what was tried | how much | violations |", "|---|---|---|"]
    lines += [f"| {row.what} | {row.tried} | {len(row.violations)} |" for row in rows]
    return "\n".join(lines)


def write(page: Path, rows: Sequence[Row]) -> None:
    page.write_text(MARK.sub(lambda found: f"{found[1]}\n{table(rows)}\n{found[2]}", page.read_text()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller numbers; nothing is written")
    parser.add_argument("--only", choices=list(PARTS), action="append", help="this part only; may be repeated")
    return parser


if __name__ == "__main__":
    sys.exit(main())
