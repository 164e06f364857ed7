"""Measures everything in one run and prints ratios, because a rate alone says more about the machine than the code.

Each measurement is a script of its own in a process of its own that prints one line of JSON. Peers run in
bench/.venv-peers, so that their dependencies never meet ours.
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
MEASUREMENT_TIMEOUT_S = 180


@dataclass(frozen=True)
class Measurement:
    script: str
    executions: int
    python: Path


MEASUREMENTS = [
    Measurement("peers/bare_commits.py", 500, Path(sys.executable)),
    Measurement("peers/langgraph_steps.py", 400, PEERS_PYTHON),
    Measurement("peers/dbos_steps.py", 200, PEERS_PYTHON),
]


def measure(measurement: Measurement) -> dict[str, Any]:
    if not measurement.python.exists():
        raise SystemExit(f"{measurement.python} is not there: run `make bench`, which sets up the peers' environment")
    command = [str(measurement.python), measurement.script, "--executions", str(measurement.executions)]
    finished = subprocess.run(
        command, cwd=BENCH, capture_output=True, text=True, timeout=MEASUREMENT_TIMEOUT_S, check=False
    )
    if finished.returncode:
        raise SystemExit(f"{measurement.script} failed with exit code {finished.returncode}:\n{finished.stderr}")
    return json.loads(finished.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description="Durable steps per second, side by side.")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    as_json: bool = parser.parse_args().json
    results = [measure(measurement) for measurement in MEASUREMENTS]
    if as_json:
        print(json.dumps(results, indent=2))
        return
    floor = results[0]["steps_per_s"]
    print(f"{'system':<16} {'version':<10} {'steps/s':>10} {'to SQLite alone':>16}  how")
    for result in results:
        rate = result["steps_per_s"]
        how = result.get("variant", "one commit a step").replace("_", " ")
        print(f"{result['system']:<16} {result['version']:<10} {rate:>10,.0f} {rate / floor:>16.2f}  {how}")


if __name__ == "__main__":
    main()
