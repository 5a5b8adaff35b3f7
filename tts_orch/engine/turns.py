"""Turns: one half of the trajectories is verified while the drafter works on the other half.

It pays where drafting happens elsewhere and takes about as long as a pass. Which trajectories share a pass changes no
token, and is decided before anybody has seen what was drafted for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.engine.trajectory import Trajectory

__all__ = ["take_turn"]


def take_turn(drafting: Sequence[Trajectory]) -> tuple[list[Trajectory], list[Trajectory]]:
    """Divide trajectories into those that are verified in this pass, and those that are drafted meanwhile.

    First come those whose drafts were asked for before this pass; they are half of the trajectories but for those that came
    or went since. Where nobody's were, a half of them begins.
    """
    asked = [trajectory for trajectory in drafting if trajectory.is_asked]
    turn = (asked or list(drafting))[: -(-len(drafting) // 2)]
    chosen = set(map(id, turn))
    return turn, [trajectory for trajectory in drafting if id(trajectory) not in chosen]
