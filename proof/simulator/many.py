"""Many seeds, one after the other or in processes of their own. What never ends there is ended, and is a violation.

A history that turns in circles is cut short by the player itself (play.TURNS_MAX), always at the same place. The limit
here is for what does not even take turns any more: it is wall time, and only processes can be held to it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection, get_context
from typing import Any, NamedTuple

from proof.simulator.play import play
from proof.simulator.rare import draw
from proof.simulator.verdict import judge

SEED_LIMIT_S = 120.0  # for one history, which takes a tenth of a second; a busy machine may need some of the rest
LOOK_S = 0.5  # how often the clock is looked at while nobody has anything to tell
SAY_EVERY_S = 10.0

_spawning = get_context("spawn")


class Judged(NamedTuple):
    seed: int
    violations: list[str]
    seconds: float  # of virtual time


Judge = Callable[[int], Judged]


def judge_seed(seed: int) -> Judged:
    played = play(draw(seed))
    return Judged(seed, [str(violation) for violation in judge(played)], played.seconds)


def replay_command(seed: int) -> str:
    return f"python -m proof.simulator --seed {seed}"


def judged(
    seeds: Iterable[int], jobs: int = 1, *, limit_s: float = SEED_LIMIT_S, judge: Judge = judge_seed
) -> Iterator[Judged]:
    """The verdict on each seed, as it comes. With one job they are played here, without a limit of wall time."""
    if jobs <= 1:
        yield from map(judge, seeds)
        return
    left = deque(seeds)
    players = [_Player(judge) for _ in range(min(jobs, len(left)))]
    try:
        while players:
            told = connection.wait([player.pipe for player in players], LOOK_S)
            for player in list(players):
                if player.pipe in told:
                    verdict = player.hear()
                elif player.is_over(limit_s):
                    verdict = player.failed(f"did not end within {limit_s:.0f} s")
                else:
                    continue
                if player.is_gone or not left:
                    players.remove(player)
                    player.end()
                if player.is_gone and left:
                    players.append(_Player(judge))
                elif left:
                    player.give(left.popleft())
                if verdict is not None:
                    yield verdict
    finally:
        for player in players:
            player.end()


class _Player:
    """A process that plays one seed after the other. It says so when it is ready, and after each seed what it found."""

    def __init__(self, judge: Judge) -> None:
        self.pipe, theirs = _spawning.Pipe()
        self.is_gone = False
        self._process = _spawning.Process(target=_play, args=(theirs, judge), daemon=True)
        self._process.start()
        theirs.close()
        self._seed: int | None = None  # None: it is not ready yet
        self._since_s = time.monotonic()

    def give(self, seed: int) -> None:
        self._seed, self._since_s = seed, time.monotonic()
        self.pipe.send(seed)

    def hear(self) -> Judged | None:
        """What it found; nothing if it has only just got ready."""
        try:
            return self.pipe.recv()
        except EOFError:
            return self.failed("ended the process that played it")

    def is_over(self, limit_s: float) -> bool:
        return self._seed is not None and time.monotonic() - self._since_s > limit_s

    def failed(self, text: str) -> Judged:
        self.is_gone = True
        if self._seed is None:
            raise RuntimeError("a process that should play seeds could not be started")
        return Judged(self._seed, [f"every_history_comes_to_an_end: seed {self._seed} {text}"], 0.0)

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _play(pipe: Any, judge: Judge) -> None:
    pipe.send(None)
    while True:
        pipe.send(judge(pipe.recv()))


class Progress:
    """Says now and then how far a long run has come, so that people see that it lives."""

    def __init__(self, total: int, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._say = say
        self._clock = clock
        self._began_s = self._said_s = clock()
        self._played = self._wrong = 0

    def saw(self, verdict: Judged) -> None:
        self._played += 1
        self._wrong += bool(verdict.violations)
        now_s = self._clock()
        if now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            pace = self._played / (now_s - self._began_s)
            self._say(f"{self._played:,} of {self._total:,} histories, {pace:.1f}/s, {self._wrong} with violations")
