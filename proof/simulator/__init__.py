"""A deterministic simulator of whole histories: the real engine on virtual time, with everything around it simulated.

    scenario  what will happen, drawn from a seed          programs  random plans and functions
    play      war, peace, and the history they leave       hosts, processes, disk, world: what is simulated
    verdict   every check on that history                  witness, checks_*: how they look at it
    rare      what is added so that rare things happen
    shrink    the smallest scenario that still fails

`python -m proof.simulator --seed 7` plays one history and tells it.
"""

from __future__ import annotations

from proof.simulator.play import Played, play
from proof.simulator.rare import draw
from proof.simulator.scenario import Scenario
from proof.simulator.shrink import shrink
from proof.simulator.verdict import Violation, judge

__all__ = ["Played", "Scenario", "Violation", "draw", "judge", "play", "shrink"]
