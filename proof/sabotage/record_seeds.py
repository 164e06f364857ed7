"""Searches for the seeds at which each sabotage is caught, and writes them into seeds.json.

    python proof/sabotage/record_seeds.py             every sabotage, some minutes
    python proof/sabotage/record_seeds.py NAME …      these only; the others stay as they are

The daily tests play the recorded seeds only. A sabotage that is not caught within its seeds is left as it was, and the
exit code is 1: then a check has become blind, or the sabotage no longer breaks anything.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from proof.sabotage.engine import SABOTEURS
from proof.sabotage.saboteur import TABLE, Caught, caught, recorded_seeds


def main(names: list[str]) -> int:
    if unknown := set(names) - {saboteur.what for saboteur in SABOTEURS}:
        print(f"there is no such sabotage: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [number for number, saboteur in enumerate(SABOTEURS) if not names or saboteur.what in names]
    known = recorded_seeds() if TABLE.exists() else {}
    table = {saboteur.what: known.get(saboteur.what, {}) for saboteur in SABOTEURS}
    missed = 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for number, found in zip(chosen, pool.map(_search, chosen), strict=True):
            what = SABOTEURS[number].what
            if found.missed_by:
                missed += 1
                print(f"{what}: not noticed within {found.seeds} seeds by {', '.join(sorted(found.missed_by))}")
                continue
            print(f"{what}: {found.at}", flush=True)
            table[what] = found.at
    TABLE.write_bytes(msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n")
    return 1 if missed else 0


def _search(number: int) -> Caught:
    """In a process of its own, to which only a number need travel."""
    return caught(SABOTEURS[number])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
