"""Measures everything in one run and prints ratios, because a rate alone says more about the machine than the code.

Each measurement is a script of its own in a process of its own that prints one line of JSON. Peers run in
bench/.venv-peers, so that their dependencies never meet ours. Goals that are missed are marked; with --strict a missed
goal is an error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parent
PEERS_PYTHON = BENCH / ".venv-peers" / "bin" / "python"
OUR_PYTHON = Path(sys.executable)
MEASUREMENT_TIMEOUT_S = 900


@dataclass(frozen=True)
class Measurement:
    name: str
    script: str
    size: int
    python: Path = OUR_PYTHON


@dataclass(frozen=True)
class Goal:
    """What is promised; `value` must be at least, or with `at_most` at most, `limit`."""

    text: str
    value: float
    limit: float
    at_most: bool = False

    @property
    def is_met(self) -> bool:
        return self.value <= self.limit if self.at_most else self.value >= self.limit


# These are compared with each other. They take turns, and the best of the rounds counts for each: a neighbour who is
# busy for a while then disturbs all alike.
SIDE_BY_SIDE = [
    Measurement("bare", "peers/bare_commits.py", 300),
    Measurement("steps", "ours/steps.py", 1000),
    Measurement("langgraph", "peers/langgraph_steps.py", 150, PEERS_PYTHON),
    Measurement("dbos", "peers/dbos_steps.py", 100, PEERS_PYTHON),
]
ROUNDS = 3
ALONE = [
    Measurement("sequential", "ours/sequential.py", 5),
    Measurement("flat", "ours/flat.py", 100_000),
    Measurement("reopen", "ours/reopen.py", 1),
    Measurement("carry", "ours/carry.py", 1),
    Measurement("startup", "ours/startup.py", 7),
    Measurement("waiting", "ours/waiting.py", 100_000),
    Measurement("http", "ours/http_rate.py", 200),
    Measurement("guards", "ours/guards.py", 15),
    Measurement("shell", "ours/shell.py", 200),
    Measurement("breaker", "ours/breaker.py", 200),
    Measurement("pressure", "ours/pressure.py", 2000),
    Measurement("listing", "ours/listing.py", 100_000),
    Measurement("backup", "ours/backup.py", 100_000),
    Measurement("pruning", "ours/pruning.py", 10_000),
]


def goals(found: dict[str, Any]) -> list[Goal]:
    rate = found["steps"]["steps_per_s"]
    return [
        Goal("durable steps/s, 1,000 executions of 10 steps", rate, 8000),
        Goal("times LangGraph (SQLite saver, sync)", rate / found["langgraph"]["steps_per_s"], 15),
        Goal("times DBOS (SQLite)", rate / found["dbos"]["steps_per_s"], 30),
        Goal("share of bare commits, one execution, idempotent", found["sequential"]["share"], 0.35),
        Goal("share of bare commits, one execution, once", found["sequential"]["once_share"], 0.2),
        Goal("cost of the last to the first 1,000 of 100,000 steps", found["flat"]["growth"], 1.2, at_most=True),
        Goal("ms to reopen 1,500 events", found["reopen"]["short_ms"], 20, at_most=True),
        Goal("ms to reopen 100,000 events", found["reopen"]["long_ms"], 250, at_most=True),
        Goal("s to export 100,000 events", found["carry"]["export_s"], 3, at_most=True),
        Goal("s to import 100,000 events", found["carry"]["import_s"], 3, at_most=True),
        Goal("CPU s of holdfast --help", found["startup"]["help_cpu_s"], 0.3, at_most=True),
        Goal("share of its rate limit that 200 http steps reach", found["http"]["share"], 0.95),
        Goal("share of its rate limit that 200 http steps keep to", found["http"]["share"], 1.05, at_most=True),
        Goal("µs that the guards add to a step", found["guards"]["overhead_us"], 50, at_most=True),
        Goal("ms that shell.run adds to a command", found["shell"]["overhead_ms"], 10, at_most=True),
        Goal("calls that reach a tool whose breaker is open", found["breaker"]["leaked"], 0, at_most=True),
        Goal("µs that asking for room adds to a step", found["pressure"]["overhead_us"], 10, at_most=True),
        Goal("MB with 100,000 executions waiting", found["waiting"]["resident_mb"], 200, at_most=True),
        Goal("s of holdfast list with 100,000 executions", found["listing"]["slowest_s"], 0.3, at_most=True),
        Goal("ms the longest commit takes during a backup", found["backup"]["longest_ms"], 50, at_most=True),
        Goal("CPU s of holdfast prune --dry-run, 10,000 executions", found["pruning"]["dry_s"], 2, at_most=True),
        Goal("CPU s of holdfast prune, 10,000 executions", found["pruning"]["prune_s"], 2, at_most=True),
        Goal("ms the event loop stands still, retention of 30,000", found["pruning"]["loop_ms"], 50, at_most=True),
        Goal("ms the longest commit takes, retention of 30,000", found["pruning"]["commit_ms"], 50, at_most=True),
    ]


def measure(measurement: Measurement) -> dict[str, Any]:
    if not measurement.python.exists():
        raise SystemExit(f"{measurement.python} is not there: run `make bench`, which sets up the peers' environment")
    command = [str(measurement.python), measurement.script, "--executions", str(measurement.size)]
    finished = subprocess.run(
        command, cwd=BENCH, capture_output=True, text=True, timeout=MEASUREMENT_TIMEOUT_S, check=False
    )
    if finished.returncode:
        raise SystemExit(f"{measurement.script} failed with exit code {finished.returncode}:\n{finished.stderr}")
    return json.loads(finished.stdout.splitlines()[-1])


def print_rates(found: dict[str, Any]) -> None:
    floor = found["bare"]["steps_per_s"]
    print(f"{'system':<16} {'version':<10} {'steps/s':>10} {'to SQLite alone':>16}  how")
    for name in ("bare", "steps", "langgraph", "dbos"):
        result = found[name]
        rate = result["steps_per_s"]
        how = result.get("variant", "one commit a step").replace("_", " ")
        print(f"{result['system']:<16} {result['version']:<10} {rate:>10,.0f} {rate / floor:>16.2f}  {how}")


def print_goals(promised: list[Goal]) -> None:
    print(f"\n{'goal':<55} {'measured':>10} {'promised':>12}")
    for goal in promised:
        sign = "≤" if goal.at_most else "≥"
        mark = "" if goal.is_met else "   missed"
        print(f"{goal.text:<55} {goal.value:>10,.2f} {sign:>4} {goal.limit:>7,g}{mark}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Durable steps per second, side by side, and what is promised.")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a goal is missed")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for turn in range(ROUNDS):
        for measurement in SIDE_BY_SIDE:
            print(f"measuring {measurement.name}, round {turn + 1} of {ROUNDS} …", file=sys.stderr, flush=True)
            result = measure(measurement)
            best = found.get(measurement.name)
            if best is None or result["steps_per_s"] > best["steps_per_s"]:
                found[measurement.name] = result
    for measurement in ALONE:
        print(f"measuring {measurement.name} …", file=sys.stderr, flush=True)
        found[measurement.name] = measure(measurement)
    promised = goals(found)
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        print_rates(found)
        print_goals(promised)
    if arguments.strict and not all(goal.is_met for goal in promised):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
