"""What the peer benchmarks share: arguments, the trial of variants, and the one line of JSON each script prints.

A variant is a way of using a peer that keeps every step's outcome on disk before the next step starts. Each variant is
tried briefly, the fastest is measured at full size, and the trials are reported too, so that nobody has to take the
choice on trust.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

STEPS_PER_EXECUTION = 10
TRIAL_EXECUTIONS_MAX = 40

Timed = Callable[[Callable[[], int]], int]
"""Times the work and hands its answer on. What a variant does outside it, such as creating the schema, is free."""

Variant = Callable[[Path, int, Timed], int]
"""Runs so many executions on a store in the given folder; answers how many steps ran."""


def parse_executions(description: str, default: int) -> int:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--executions", type=int, default=default, help=f"how many executions (default {default})")
    executions: int = parser.parse_args().executions
    if executions < 1:
        parser.error(f"--executions must be at least 1, not {executions}")
    return executions


def steps_per_second(variant: Variant, executions: int) -> float:
    elapsed_s = 0.0

    def timed(work: Callable[[], int]) -> int:
        nonlocal elapsed_s
        started = time.perf_counter()
        steps = work()
        elapsed_s = time.perf_counter() - started
        return steps

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        steps = variant(Path(folder), executions, timed)
    expected = executions * STEPS_PER_EXECUTION
    if steps != expected:
        raise SystemExit(f"{variant.__name__} ran {steps} steps, expected {expected}: its rate would mean nothing")
    return steps / elapsed_s


def report_fastest(
    system: str, version: str, variants: Iterable[Variant], executions: int, beside: Iterable[Variant] = ()
) -> None:
    """Measure the fastest of `variants`; those `beside` are only tried and reported."""
    trial_executions = min(executions, TRIAL_EXECUTIONS_MAX)
    trials = {variant: steps_per_second(variant, trial_executions) for variant in variants}
    fastest = max(trials, key=lambda variant: trials[variant])
    trials |= {variant: steps_per_second(variant, trial_executions) for variant in beside}
    rate = steps_per_second(fastest, executions)
    print_result(
        system=system,
        version=version,
        steps_per_s=round(rate, 1),
        executions=executions,
        steps_per_execution=STEPS_PER_EXECUTION,
        variant=fastest.__name__,
        trials={variant.__name__: round(trial, 1) for variant, trial in trials.items()},
    )


def print_result(**fields: object) -> None:
    print(json.dumps(fields), flush=True)
