"""The simulator's command line: play one seed and tell its history, or many and count.

python -m proof.simulator --seed 7 [--quiet]
python -m proof.simulator --seeds 0:1000 [--jobs 2]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable

import msgspec

from holdfast.core import events as ev
from holdfast.journal.codec import decode
from holdfast.journal.keyed import Put
from holdfast.journal.store import Claim, Entry, Forget, Hold, Mark, NewExecution, Quarantine, Write, Written
from proof.simulator import Scenario, Violation, draw, judge, play, shrink
from proof.simulator.history import Committed
from proof.simulator.many import Progress, judged, replay_command

READER_LEFT = 141  # what a shell says of a program that a closed pipe has ended


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.simulator", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="play this seed and tell its history")
    what.add_argument("--seeds", type=_span, help="play these seeds, such as 0:1000, and count")
    parser.add_argument("--jobs", type=_count, default=1, help="how many processes play at once")
    parser.add_argument("--quiet", action="store_true", help="do not tell the history")
    given = parser.parse_args(arguments)
    if given.seeds is not None:
        return _many(given.seeds, given.jobs)
    return _one(given.seed, quiet=given.quiet)


def _span(text: str) -> range:
    first, _, last = text.partition(":")
    try:
        seeds = range(int(first), int(last))
    except ValueError:
        raise argparse.ArgumentTypeError(f'expected two numbers such as 0:1000, got "{text}"') from None
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text} holds no seed; the second number must be larger than the first")
    return seeds


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f'expected a number of processes from 1 on, got "{text}"')
    return int(text)


def _one(seed: int, *, quiet: bool) -> int:
    played = play(draw(seed))
    if not quiet:
        for line in played.history.lines:
            print(_told(line))
    violations = judge(played)
    print(f"seed {seed}: {played.seconds:.0f} virtual seconds, history {played.history.digest()}")
    for violation in violations:
        print(f"  {violation}")
    if violations:
        print(_smallest(draw(seed), violations))
    return 1 if violations else 0


def _smallest(scenario: Scenario, violations: Iterable[Violation]) -> str:
    wanted = {violation.check for violation in violations}

    def fails(smaller: Scenario) -> bool:
        return any(violation.check in wanted for violation in judge(play(smaller)))

    smallest = msgspec.json.format(msgspec.json.encode(shrink(scenario, fails))).decode()
    return f"the smallest scenario that still fails:\n{smallest}"


def _told(line: object) -> str:
    """A line of the history for people: commits as the events they brought."""
    if isinstance(line, Committed):
        told = [_written(write, result) for write, result in zip(line.writes, line.results, strict=True)]
        return f"{line.at_us / 1e6:10.3f} {line.process:6} commit {'; '.join(told)}"
    encoded = msgspec.to_builtins(line)
    at_s, process = encoded.pop("at_us") / 1e6, encoded.pop("process")
    return f"{at_s:10.3f} {process:6} {encoded.pop('what')} {' '.join(str(value) for value in encoded.values())}"


def _written(write: Write, result: Written) -> str:
    refused = "" if result.ok else "REFUSED "
    match write:
        case Entry() | NewExecution():
            events = [f"{row.seq} {_event(decode(row))}" for row in write.rows]
            whose = write.execution_id if isinstance(write, Entry) else write.head.id
            return f"{refused}…{whose[-4:]} {', '.join(events) or 'nothing new'}"
        case Claim():
            return f"{refused}…{write.execution_id[-4:]} claimed at epoch {result.epoch}"
        case Mark():
            return f"{refused}marked {write.key}"
        case Put():
            return f"{refused}{write.space}/{write.key} put"
        case Quarantine():
            return f"…{write.execution_id[-4:]} set aside: {write.why}"
        case Hold() | Forget():
            return f"{type(write).__name__.lower()} {' '.join('…' + one[-4:] for one in write.execution_ids)}"
        case _:
            return f"{refused}…{write.execution_id[-4:]} command {write.verb} {write.id}"


def _event(event: ev.Event) -> str:
    return f"{ev.name_of(event)} {getattr(event, 'path', '')}".rstrip()


def _many(seeds: range, jobs: int) -> int:
    failed = 0
    progress = Progress(len(seeds), lambda line: print(line, file=sys.stderr, flush=True))
    for verdict in judged(seeds, jobs):
        progress.saw(verdict)
        if verdict.violations:
            failed += 1
            print(f"seed {verdict.seed} violates {verdict.violations[0]}\n  replay: {replay_command(verdict.seed)}")
    print(f"{len(seeds)} histories, {failed} with violations")
    return 1 if failed else 0


def _run(arguments: list[str]) -> int:
    try:
        code = main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read this has seen enough, as `head` does; but nothing was proven
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_LEFT
    return code


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1:]))
