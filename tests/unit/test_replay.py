"""Replay of hand-made recordings: who is told what and when, and what the figures mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.exactness.drafters import CheckingDrafter, OracleDrafter, RandomDrafter, TreeBuilder
from tests.recordings import LAW, VOCABULARY, K, continuations, one_token_step, recording
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.draft_size import FixedSize
from tts_orch.policies.drafting.draft_tree import DraftTree, SlotSource, TrajectoryId, VerifiedStep
from tts_orch.replay.acceptance import Acceptance
from tts_orch.replay.measured_drafter import MeasuredDrafter
from tts_orch.replay.recorder import NoDrafts
from tts_orch.replay.recording import RecordedTrajectory, problem_and_index
from tts_orch.replay.replayer import replay


def committed(passes: Sequence[Sequence[VerifiedStep]]) -> dict[TrajectoryId, list[int]]:
    tokens: dict[TrajectoryId, list[int]] = {}
    for steps in passes:
        for step in steps:
            tokens.setdefault(step.trajectory, []).extend(step.committed.tolist())
    return tokens


def names(passes: Sequence[Sequence[VerifiedStep]]) -> list[list[TrajectoryId]]:
    return [[step.trajectory for step in steps] for steps in passes]


def _positions(recorded: RecordedTrajectory) -> torch.Tensor:
    """Return the position of each token but the last in the place of its features."""
    return torch.arange(len(recorded.prompt) + len(recorded.tokens) - 1)[:, None]


class TestReplayer:
    def test_without_drafts_every_step_commits_one_token_from_its_law(self) -> None:
        recorded = recording({"a": [3], "b": [2]})
        passes = list(replay(recorded, NoDrafts(), FixedSize(5)))
        assert names(passes) == [["a/0"]] * 3 + [["b/0"]] * 2
        first = recorded.trajectories[0]
        for position, (step,) in enumerate(passes[:3]):
            assert step.committed.tolist() == [first.tokens[position]]
            assert np.array_equal(step.law_ids, first.law_ids[position : position + 1])
            assert np.array_equal(step.law_probs, first.law_probs[position : position + 1])

    def test_the_walk_takes_what_is_right_and_a_bonus_token(self) -> None:
        recorded = recording({"a": [9]})
        drafter = OracleDrafter(continuations(recorded), block=3)
        steps = [step for (step,) in replay(recorded, drafter, FixedSize(5))]
        assert [len(step.accepted) for step in steps] == [3, 3, 1]
        assert [len(step.committed) for step in steps] == [4, 4, 1]  # the end needs no draft, but a draft was right

    def test_a_drafted_end_leaves_no_bonus_token(self) -> None:
        recorded = recording({"a": [4]})
        (step,) = [step for (step,) in replay(recorded, OracleDrafter(continuations(recorded)), FixedSize(9))]
        assert len(step.accepted) == len(step.committed) == 4
        assert step.law_probs.any(axis=1).tolist() == [True] * 4 + [False] * (step.tree.n_nodes - 4)

    @given(
        st.lists(st.lists(st.integers(1, 10), min_size=1, max_size=6), min_size=1, max_size=3),
        st.integers(1, 4),
        st.data(),
    )
    def test_any_drafter_gets_every_token_once(
        self, lengths: list[list[int]], lockstep: int, data: st.DataObject
    ) -> None:
        """The drafter itself checks that it is told nothing else."""
        recorded = recording({str(p): of_problem for p, of_problem in enumerate(lengths)})
        drafter = RandomDrafter(VOCABULARY, [7, 8], seed=data.draw(st.integers(0, 99)))
        order = data.draw(st.sampled_from(["one_by_one", "alternating", "together"]))
        passes = list(replay(recorded, drafter, FixedSize(12), lockstep=lockstep, order=order))  # type: ignore[arg-type]
        assert committed(passes) == {one.name: one.tokens.tolist() for one in recorded.trajectories}
        assert all(told.is_closed for told in drafter.told.values())
        assert all(len(steps) <= lockstep for steps in passes)
        if order != "together":
            assert all(len({problem_and_index(name)[0] for name in of_pass}) == 1 for of_pass in names(passes))

    @pytest.mark.parametrize("prompt_length", [1, 4])
    def test_features_are_told_of_all_positions_but_the_root(self, prompt_length: int) -> None:
        """The drafter checks before each draft that none is missing."""
        recorded = recording({"a": [9, 1], "b": [2]}, prompt_length)
        drafter = OracleDrafter(continuations(recorded), block=3)
        drafter.feature_layers = (-1,)
        list(replay(recorded, drafter, FixedSize(5), lockstep=2, features=_positions))
        told = {name: [int(row) for row in one.features] for name, one in drafter.told.items()}
        last = prompt_length - 1  # position of the prompt's last token, the first root
        assert told == {"a/0": [*range(last + 8)], "a/1": [*range(last)], "b/0": [*range(last)]}

    def test_features_that_nobody_has_are_missed_in_one_line(self) -> None:
        drafter = CheckingDrafter()
        drafter.feature_layers = (-1,)
        with pytest.raises(ConfigError, match="hidden states, which no recording has"):
            next(replay(recording({"a": [1]}), drafter, FixedSize(1)))

    def test_the_next_trajectory_takes_the_place_of_one_that_ended(self) -> None:
        passes = list(replay(recording({"a": [1, 3, 2], "b": [1]}), NoDrafts(), FixedSize(1), lockstep=2))
        assert names(passes) == [["a/0", "a/1"], ["a/1", "a/2"], ["a/1", "a/2"], ["b/0"]]

    def test_problems_take_turns_by_lockstep_trajectories(self) -> None:
        recorded = recording({"a": [1, 1, 1], "b": [1, 2]})
        drafter = CheckingDrafter()
        passes = list(replay(recorded, drafter, FixedSize(1), lockstep=2, order="alternating"))
        assert names(passes) == [["a/0", "a/1"], ["b/0", "b/1"], ["b/1"], ["a/2"]]
        assert drafter.closed_scopes == ["b", "a"]

    def test_problems_are_replayed_together(self) -> None:
        recorded = recording({"a": [1, 2], "b": [3]})
        passes = list(replay(recorded, NoDrafts(), FixedSize(1), lockstep=2, order="together"))
        assert names(passes) == [["a/0", "a/1"], ["a/1", "b/0"], ["b/0"], ["b/0"]]

    def test_a_prompt_is_told_once_a_scope_and_a_scope_closed_after_its_last_trajectory(self) -> None:
        recorded = recording({"a": [1, 2], "b": [1]}, prompt_length=4)
        by_problem, alone, together = CheckingDrafter(), CheckingDrafter(), CheckingDrafter()
        list(replay(recorded, by_problem, FixedSize(1)))
        list(replay(recorded, alone, FixedSize(1), scope_of=lambda one: one.name))
        list(replay(recorded, together, FixedSize(1), scope_of=lambda one: "all"))
        assert {name: told.prompt_rows for name, told in by_problem.told.items()} == {
            "a/0": [0, 1, 2],
            "a/1": [],
            "b/0": [0, 1, 2],
        }
        assert by_problem.closed_scopes == ["a", "b"]
        assert all(told.prompt_rows == [0, 1, 2] for told in alone.told.values())
        assert alone.closed_scopes == ["a/0", "a/1", "b/0"]
        assert together.closed_scopes == ["all"]

    def test_leading_laws_that_nobody_computed_are_not_told(self) -> None:
        recorded = recording({"a": [1]})
        recorded.prompt_laws["a"][1][:2] = 0
        drafter = CheckingDrafter()
        list(replay(recorded, drafter, FixedSize(1)))
        assert drafter.told["a/0"].prompt_rows == [2]

    def test_the_drafter_learns_what_a_decoder_would_tell_it_of_the_trajectory(self) -> None:
        recorded = recording({"a": [2]})
        drafter = CheckingDrafter()
        list(replay(recorded, drafter, FixedSize(1)))
        start = drafter.told["a/0"].start
        assert (start.seed, start.law, start.scope, start.is_keyed) == (0, LAW, "a", True)
        assert start.token_ids.tolist() == recorded.trajectories[0].prompt.tolist()

    @pytest.mark.parametrize(("max_context", "first_room"), [(100, 9), (12, 7)])
    def test_rooms_end_where_the_law_or_the_context_does(self, max_context: int, first_room: int) -> None:
        seen: list[list[int]] = []

        class Spy(FixedSize):
            def draft(
                self, source: SlotSource, rooms: NDArray[np.int64], other_rows: int, n_roots: int
            ) -> list[DraftTree]:
                seen.append(rooms.tolist())
                assert (other_rows, n_roots) == (0, len(rooms))
                return super().draft(source, rooms, other_rows, n_roots)

        recorded = replace(recording({"a": [2, 1]}, prompt_length=4), max_context=max_context)
        list(replay(recorded, NoDrafts(), Spy(1), lockstep=2))
        assert seen == [[first_room, first_room], [first_room - 1]]


def branching_step(name: TrajectoryId, accepted: Sequence[int], n_committed: int) -> VerifiedStep:
    """Root with children 1 (source 4) and 2 (source 4), 3 below 1 (source 2) and 4 below 3 (source 4)."""
    builder = TreeBuilder(9)
    for parent, token in ((0, 11), (0, 12), (1, 13), (3, 14)):
        builder.add(parent, token)
    tree = replace(builder.build(), source=np.array([0, 4, 4, 2, 4], np.int32))
    nothing = np.zeros((5, K))
    return VerifiedStep(
        name,
        tree,
        np.array(accepted, np.int32),
        np.arange(n_committed, dtype=np.int32),
        nothing.astype(np.int32),
        nothing.astype(np.float32),
    )


class TestAcceptance:
    @pytest.fixture
    def tally(self) -> Acceptance:
        tally = Acceptance()
        tally.add([branching_step("a/0", [1, 3], 3), branching_step("a/1", [2], 2)])
        tally.add([branching_step("a/0", [], 1), one_token_step("a/1")])
        tally.add([branching_step("a/0", [1], 1)])  # cut: no bonus token, and nothing was judged behind it
        return tally

    def test_tau_counts_bonus_tokens_and_no_prefill(self, tally: Acceptance) -> None:
        assert (tally.total.committed_tokens, tally.total.verify_steps) == (8, 5)
        assert tally.tau == 8 / 5
        assert {index: count.tau for index, count in tally.by_index.items()} == {0: 5 / 3, 1: 3 / 2}

    def test_depths_are_shares_of_all_verify_steps(self, tally: Acceptance) -> None:
        assert [tally.at_depth(depth) for depth in (0, 1, 2, 3)] == [1, 3 / 5, 1 / 5, 0]

    def test_what_was_not_accepted_is_waste(self, tally: Acceptance) -> None:
        assert (tally.draft_nodes, tally.accepted_nodes, tally.wasted_nodes) == (16, 4, 12)
        assert tally.draft_acceptance_rate == 4 / 16
        assert tally.nodes_a_step == 16 / 5

    def test_sources_are_judged_where_they_had_a_child(self, tally: Acceptance) -> None:
        order4, order2 = tally.by_source[4], tally.by_source[2]
        assert (order4.roots, order4.nodes, order4.tried, order4.accepted) == (4, 12, 5, 3)
        assert (order2.roots, order2.nodes, order2.tried, order2.accepted) == (0, 4, 1, 1)
        assert (tally.hit_rate(4), tally.hit_rate(2), tally.hit_rate(1)) == (4 / 5, 0, 0)
        assert order4.acceptance == 3 / 5

    def test_nothing_counted_is_no_division_by_zero(self) -> None:
        empty = Acceptance()
        assert (empty.tau, empty.draft_acceptance_rate, empty.nodes_a_step, empty.at_depth(1)) == (0, 0, 0, 0)
        assert json.loads(json.dumps(empty.to_json()))["tau"] == 0

    def test_report_has_plain_numbers(self, tally: Acceptance) -> None:
        report = json.loads(json.dumps(tally.to_json()))
        assert report["tau"] == 8 / 5
        assert report["acceptance_at_depth"] == {"1": 3 / 5, "2": 1 / 5}
        assert report["by_source"]["2"] == {"hit_rate": 0, "acceptance": 1, "nodes": 4}

    def test_measuring_changes_nothing_and_takes_the_time(self) -> None:
        recorded = recording({"a": [10, 8]})
        plain = list(replay(recorded, OracleDrafter(continuations(recorded), block=2), FixedSize(4)))
        measured = MeasuredDrafter(OracleDrafter(continuations(recorded), block=2))
        passes = list(replay(recorded, measured, FixedSize(4)))
        assert committed(passes) == committed(plain)
        assert measured.acceptance.total.verify_steps == len(plain)
        assert measured.drafting_us > 0
        assert measured.observing_us > 0

    def test_a_source_that_ranks_its_slots_still_does(self) -> None:
        class Ranked(CheckingDrafter):
            def slots(self, trajectories: Sequence[TrajectoryId]) -> SlotSource:
                grown = [DraftTree.root_only(1)]
                return SimpleNamespace(grow=lambda n: grown, grow_while_paying=lambda growth: grown)  # type: ignore[return-value]

        assert hasattr(MeasuredDrafter(Ranked()).slots(["a/0"]), "grow_while_paying")
        assert not hasattr(MeasuredDrafter(NoDrafts()).slots([]), "grow_while_paying")
