"""One byte flipped, anywhere in the file: `sweep` tries many places and says what became of each.

Allowed is an error with a text, an execution set aside while the others go on, or no difference at all. A wrong value
that is believed, an event that is missing, another exception, a hang or a second call of a `once` step is a violation.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from disk.house import PAGE_BYTES, furnish, in_memory, store_of
from disk.look import Look, look_round


class Result(NamedTuple):
    points: int
    outcomes: Counter[str]
    violations: list[str]


async def sweep(step: int = 1, only: Callable[[bytes], Iterable[int]] | None = None, bits: int = 0) -> Result:
    """Flip one byte at every `step`-th offset, or at those that `only` picks, each time in a fresh copy.

    `bits` are the ones to flip; 0 is another choice at each place.
    """
    with in_memory() as folder:
        body = (await furnish(folder)).read_bytes()
        return await _sweep(folder, body, list(only(body)) if only else range(0, len(body), step), bits)


async def _sweep(folder: Path, body: bytes, offsets: Sequence[int], bits: int) -> Result:
    baseline = await _look(folder, body, None)
    assert (baseline.trouble, baseline.hung) == ("", ()), baseline
    outcomes: Counter[str] = Counter()
    violations: list[str] = []
    for offset in offsets:
        damaged = bytearray(body)
        damaged[offset] ^= bits or random.Random(offset).randint(1, 255)
        place = f"byte {offset} (page {offset // PAGE_BYTES + 1}, {body[offset]:#04x} → {damaged[offset]:#04x})"
        try:
            seen = await _look(folder, bytes(damaged), baseline)
            outcome, wrong = judge(baseline, seen)
        except Exception as error:
            outcome, wrong = "violation", [f"another exception: {error!r}"]
        outcomes["violation" if wrong else outcome] += 1
        violations += [f"{place}: {what}" for what in wrong]
    return Result(len(offsets), outcomes, violations)


async def _look(folder: Path, body: bytes, expected: Look | None) -> Look:
    """In the folder it was furnished in: an execution goes on only where it was started."""
    path = store_of(folder)
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    path.write_bytes(body)
    return await look_round(folder, expected)


def judge(expected: Look, seen: Look) -> tuple[str, list[str]]:
    """Which of the allowed outcomes this is, and everything that is not allowed."""
    wrong = [f"{key} was paid {count} times" for key, count in seen.paid.items() if count > expected.paid.get(key, 0)]
    wrong += [f"execution {identity} hangs" for identity in seen.hung]
    if seen.trouble:
        return "refused", wrong
    outcome = "no difference"
    for before, after, when in ((expected.read, seen.read, "read"), (expected.driven, seen.driven, "driven")):
        wrong += [f"{when}: execution {identity} appeared" for identity in after.keys() - before.keys()]
        for identity, view in before.items():
            found = after.get(identity)
            if found is None:
                wrong.append(f"{when}: execution {identity} is missing")
            elif isinstance(found, str):
                outcome = "set aside"
            elif found != view:
                wrong.append(f"{when}: execution {identity} differs: {_difference(view, found)}")
    for identity, before in expected.inbox.items():
        after = seen.inbox[identity]
        if isinstance(after, str):
            outcome = "set aside"
        elif before != after:
            wrong.append(f"the answer to {identity} differs: {before} → {after}")
    if seen.fresh != expected.fresh:
        wrong.append(f"a new execution came to {seen.fresh!r}")
    return outcome, wrong


def _difference(before: object, after: object) -> str:
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        return next(_difference(one, other) for one, other in zip(before, after, strict=True) if one != other)
    return f"{before!r} → {after!r}"[:300]


if __name__ == "__main__":
    result = asyncio.run(sweep(step=int(sys.argv[1])))
    print(f"{result.points} points: {dict(result.outcomes)}", *result.violations, sep="\n")
