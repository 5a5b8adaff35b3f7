"""SuffixDecoding against the definition: count, match every suffix, expand best first, keep the best draft."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.suffix_tries import SuffixTries
from tts_orch.records import SamplingParams

DEPTH = 6
Run = tuple[int, ...]
TEXT = st.lists(st.integers(0, 2), max_size=10)


class NaiveTrie:
    """For each run of tokens what followed it how often, the most frequent first, of equals who got there first."""

    def __init__(self) -> None:
        self.counts: dict[Run, int] = defaultdict(int)
        self.successors: dict[Run, list[int]] = defaultdict(list)

    def append(self, text: list[int], token: int) -> None:
        """Count the runs that end in a token that is added to a text."""
        for length in range(min(DEPTH - 1, len(text)) + 1):
            context = tuple(text[len(text) - length :])
            run = (*context, token)
            self.counts[run] += 1
            if self.counts[run] == 1:
                self.successors[context].append(token)
            self.successors[context].sort(key=lambda token: -self.counts[(*context, token)])
        text.append(token)

    def grow(self, context: Run, n_nodes: int, least: float, is_tree: bool) -> tuple[list[tuple[int, int]], float]:
        """Return (token, parent) of the most probable nodes, root excluded, and the sum of their probabilities."""
        runs, probabilities, nodes = [context], [1.0], []
        frontier: list[tuple[float, int, int]] = []  # probability, parent, slot

        def offer(parent: int, slot: int) -> None:
            tokens = self.successors.get(runs[parent], [])
            if slot < len(tokens):
                count = self.counts[(*runs[parent], tokens[slot])]
                probability = probabilities[parent] * count / self.counts[runs[parent]]
                if probability >= least:
                    frontier.append((probability, parent, slot))

        offer(0, 0)
        while frontier and len(nodes) < n_nodes:
            best = max(frontier, key=lambda candidate: candidate[0])
            frontier.remove(best)
            probability, parent, slot = best
            token = self.successors[runs[parent]][slot]
            nodes.append((token, parent))
            runs.append((*runs[parent], token))
            probabilities.append(probability)
            offer(len(nodes), 0)
            if is_tree:
                offer(parent, slot + 1)
        return nodes, sum(probabilities[1:])


def naive_draft(
    tries: list[NaiveTrie], text: list[int], n_nodes: int, per_match: float, least: float, is_tree: bool
) -> tuple[list[tuple[int, int]], int]:
    """Return (token, parent) of the best draft's nodes, root excluded, and its source."""
    best: tuple[list[tuple[int, int]], int] = ([], 0)
    best_score = 0.0
    for length in range(min(DEPTH - 1, len(text)), 0, -1):
        for source, trie in enumerate(tries, start=1):
            n = int(min(n_nodes, per_match * length))
            nodes, score = trie.grow(tuple(text[-length:]), n, least, is_tree)
            if score > best_score:
                best, best_score = (nodes, source), score
    return best


def start(name: str, tokens: list[int], scope: str = "scope") -> TrajectoryStart:
    return TrajectoryStart(name, np.array(tokens, np.int32), scope, 0, SamplingParams())


def commit(drafter: SuffixTries, **committed: list[int]) -> None:
    none, nothing = np.zeros((1, 0), np.int32), np.zeros(0, np.int32)
    drafter.observe(
        [
            VerifiedStep(
                name, DraftTree.root_only(0), nothing, np.array(tokens, np.int32), none, none.astype(np.float32)
            )
            for name, tokens in committed.items()
        ]
    )


def draft(drafter: SuffixTries, name: str, n_nodes: int = 10) -> DraftTree:
    return drafter.slots([name]).grow([n_nodes])[0]


def check_invariants(tree: DraftTree) -> None:
    """A trie with parents first; slots are ranks among siblings."""
    for node, parent in enumerate(tree.parent.tolist()[1:], start=1):
        assert 0 <= parent < node
        assert tree.depth[node] == tree.depth[parent] + 1
    for children in tree.children:
        assert tree.slot[children].tolist() == list(range(len(children)))
        assert len({*tree.token[children].tolist()}) == len(children)
    assert (tree.parent[0], tree.depth[0], tree.slot[0], tree.source[0], tree.kind[0]) == (-1, 0, 0, 0, 0)
    assert not tree.log_q.any()


@settings(max_examples=100, deadline=None)
@given(
    prompts=st.tuples(TEXT.filter(len), TEXT.filter(len)),
    steps=st.lists(st.tuples(TEXT, TEXT), max_size=4),
    n_nodes=st.integers(0, 12),
    per_match=st.sampled_from([1.0, 2.5, math.inf]),
    least=st.sampled_from([0.0, 0.1, 0.4]),
    is_tree=st.booleans(),
)
def test_equals_the_definition(
    prompts: tuple[list[int], list[int]],
    steps: list[tuple[list[int], list[int]]],
    n_nodes: int,
    per_match: float,
    least: float,
    is_tree: bool,
) -> None:
    drafter = SuffixTries(max_depth=DEPTH, nodes_per_match=per_match, least_probability=least, is_tree=is_tree)
    shared, names = NaiveTrie(), ("a", "b")
    own = {name: NaiveTrie() for name in names}
    texts: dict[str, list[int]] = {name: [] for name in names}
    outputs: dict[str, list[int]] = {name: [] for name in names}
    for name, prompt in zip(names, prompts, strict=True):
        drafter.start(start(name, prompt))
        for token in prompt:
            own[name].append(texts[name], token)
    for step in [([], []), *steps]:
        commit(drafter, a=step[0], b=step[1])
        for name, tokens in zip(names, step, strict=True):
            for token in tokens:
                own[name].append(texts[name], token)
                shared.append(outputs[name], token)
        for name, tree in zip(names, drafter.slots(names).grow([n_nodes] * 2), strict=True):
            nodes, source = naive_draft([own[name], shared], texts[name], n_nodes, per_match, least, is_tree)
            check_invariants(tree)
            assert tree.token.tolist() == [texts[name][-1], *(token for token, _ in nodes)]
            assert tree.parent.tolist() == [-1, *(parent for _, parent in nodes)]
            assert tree.source.tolist() == [0] + [source] * len(nodes)
            assert (tree.kind < len(drafter.priors)).all()


def test_a_tree_and_its_path() -> None:
    text = [1, 2, 7, 1, 2, 8, 1, 2, 7, 1, 2]
    for is_tree, tokens, parents in ((True, [2, 7, 1, 2, 8], [-1, 0, 1, 2, 0]), (False, [2, 7, 1, 2], [-1, 0, 1, 2])):
        drafter = SuffixTries(max_depth=5, is_tree=is_tree)
        drafter.start(start("a", text))
        tree = draft(drafter, "a", len(tokens) - 1)
        assert (tree.token.tolist(), tree.parent.tolist()) == (tokens, parents)


def test_outputs_are_shared_at_once_and_prompts_are_not() -> None:
    drafter = SuffixTries()
    drafter.start(start("a", [1, 2, 3]))
    drafter.start(start("b", [9, 5, 6]))
    drafter.start(start("c", [9, 2]))
    drafter.start(start("stranger", [9, 5, 6], scope="another"))
    commit(drafter, a=[5, 6, 7, 8])
    tree = draft(drafter, "b")
    assert tree.token.tolist() == [6, 7, 8]
    assert tree.source.tolist() == [0, 2, 2]
    assert [draft(drafter, name).n_nodes for name in ("c", "stranger")] == [1, 1]


def test_outputs_outlive_their_trajectory_but_not_their_scope() -> None:
    drafter = SuffixTries()
    drafter.start(start("a", [1]))
    commit(drafter, a=[5, 6, 7])
    drafter.close("a")
    drafter.start(start("a", [6]))
    assert draft(drafter, "a").token.tolist() == [6, 7]
    drafter.start(start("b", [1, 5]))
    assert draft(drafter, "b").token.tolist() == [5, 6, 7]
    drafter.close_scope("scope")
    drafter.start(start("c", [6]))
    assert draft(drafter, "c").n_nodes == 1
    commit(drafter, b=[8])  # still running
    assert draft(drafter, "b").token.tolist() == [8]


def test_first_in_first_out() -> None:
    drafter = SuffixTries(max_depth=4, max_shared_nodes=40)
    for name, first in (("a", 0), ("b", 10), ("c", 20)):
        drafter.start(start(name, [99]))
        commit(drafter, **{name: list(range(first, first + 5))})  # 14 nodes
    for known, prompt in ((False, 1), (True, 11), (True, 21)):
        drafter.start(start("probe", [prompt]))
        assert (draft(drafter, "probe").n_nodes > 1) == known


def test_longer_contexts_promise_more() -> None:
    priors = SuffixTries().priors.reshape(5, 8)
    assert ((priors > 0) & (priors < 1)).all()
    assert (np.diff(priors, axis=0) > 0).all()
    assert (np.diff(priors, axis=1) > 0).all()
