"""Drafters in a pool: trees as those of a local one, whatever was lost, forgotten or replaced on the way."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.neural_toys import FakeEngine, toy_facts, toy_network
from tests.pooled import FeatureReader, LocalTransport, features, pooled
from tests.toys import toy_llama
from tts_orch.config import DraftingConfig
from tts_orch.drafters.neural_drafter import NeuralDrafter
from tts_orch.drafters.pool_client import PooledDrafter
from tts_orch.drafters.pool_host import PoolHost
from tts_orch.drafters.pool_messages import PoolReply, PoolRequest
from tts_orch.drafters.told_trajectory import ToldTrajectory
from tts_orch.policies.drafting.draft_tree import Drafter, DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.records import SamplingParams

N_NODES = 6


def start(name: str, tokens: list[int]) -> TrajectoryStart:
    return TrajectoryStart(name, np.array(tokens, np.int32), "scope", 0, SamplingParams())


class Verifier:
    """Tells drafters what a decoder would, and compares their trees."""

    def __init__(self, *drafters: Drafter) -> None:
        self.drafters = drafters
        self.tokens: dict[str, list[int]] = {}
        self.n_told: dict[str, int] = {}

    def start(self, name: str, tokens: list[int]) -> None:
        self.tokens[name], self.n_told[name] = list(tokens), 0
        for drafter in self.drafters:
            drafter.start(start(name, tokens))

    def tell(self, name: str) -> None:
        first, last = self.n_told[name], len(self.tokens[name]) - 1
        if first < last:
            for drafter in self.drafters:
                drafter.observe_features(name, first, features(first, last))
            self.n_told[name] = last

    def trees(self, *names: str) -> list[list[DraftTree]]:
        """Return the trees of each drafter."""
        for name in names:
            self.tell(name)
        return [drafter.slots(names).grow([N_NODES] * len(names)) for drafter in self.drafters]

    def commit(self, name: str, tokens: list[int]) -> None:
        n = len(tokens)
        tree = DraftTree.chain(self.tokens[name][-1], tokens[:-1])
        laws = np.zeros((n, 1), np.int32), np.ones((n, 1), np.float32)
        step = VerifiedStep(name, tree, np.arange(1, n, dtype=np.int32), np.array(tokens, np.int32), *laws)
        for drafter in self.drafters:
            drafter.observe([step])
        self.tokens[name] += tokens

    def close(self, name: str) -> None:
        del self.tokens[name]
        for drafter in self.drafters:
            drafter.close(name)


def assert_equal(left: DraftTree, right: DraftTree) -> None:
    for name in ("token", "parent", "depth", "slot", "log_q", "source", "kind"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def assert_no_drafts(tree: DraftTree, root: int) -> None:
    assert_equal(tree, DraftTree.root_only(root))


def first_of(tree: DraftTree, n_nodes: int) -> set[tuple[int, ...]]:
    """Return the token paths of the first nodes."""
    return {tuple(tree.token[tree.path(node)].tolist()) for node in range(1, n_nodes + 1)}


def paths(tree: DraftTree) -> set[tuple[int, ...]]:
    return {tuple(tree.token[tree.path(node)].tolist()) for node in range(1, tree.n_nodes)}


@pytest.mark.parametrize("layers", [(), (-1,)])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_trees_are_those_of_a_local_drafter(layers: tuple[int, ...], data: st.DataObject) -> None:
    local = FeatureReader(feature_layers=layers)
    transport = LocalTransport(PoolHost({"math": FeatureReader(feature_layers=layers)}))
    verifier = Verifier(pooled(transport))
    verifier.tell = verifier.tell if layers else lambda name: None  # type: ignore[method-assign]
    for number in range(data.draw(st.integers(1, 12))):
        names = sorted(verifier.tokens)
        match data.draw(st.sampled_from(["start", "draft", "draft", "commit", "commit", "close"])):
            case "start":
                verifier.start(f"t{number}", data.draw(st.lists(st.integers(3, 96), min_size=1, max_size=5)))
            case "commit" if names:
                name = data.draw(st.sampled_from(names))
                verifier.commit(name, data.draw(st.lists(st.integers(3, 96), min_size=1, max_size=4)))
            case "close" if names:
                verifier.close(data.draw(st.sampled_from(names)))
            case "draft" if names:
                asked = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
                for name, tree in zip(asked, verifier.trees(*asked)[0], strict=True):
                    reference = Verifier(local)
                    reference.start(f"{number}{name}", verifier.tokens[name])
                    if layers:
                        reference.tell(f"{number}{name}")
                    whole = local.tree(f"{number}{name}", 12)
                    assert paths(tree) == first_of(whole, N_NODES)


def test_tokens_and_features_are_sent_once() -> None:
    transport = LocalTransport(PoolHost({"math": FeatureReader()}))
    verifier = Verifier(pooled(transport))
    verifier.start("a", [5, 6, 7])
    verifier.trees("a")
    verifier.commit("a", [8, 9])
    verifier.trees("a")
    first, second = (request.news[0] for request in transport.requests)
    assert first.start is not None
    assert first.start.token_ids.tolist() == [5, 6, 7]
    assert len(first.features) == 2
    assert first.n_known == first.n_known_features == 0
    assert second.start is None
    assert second.committed.tolist() == [8, 9]
    assert second.n_known == 3
    assert second.n_known_features == 2
    assert len(second.features) == 2
    assert verifier.drafters[0].statistics()["pool_sent_bytes"] == 4 * (3 + 2) + 4 * 4 * (2 + 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize("event", ["restarted", "replaced", "forgotten", "reply lost"])
def test_what_was_forgotten_is_sent_again(event: str) -> None:
    host = PoolHost({"math": FeatureReader()}, max_trajectories=2)
    transport = LocalTransport(host, is_faulty=lambda number: event == "reply lost" and number == 2)
    verifier = Verifier(pooled(transport))
    verifier.start("a", [5, 6, 7])
    verifier.start("b", [9])
    verifier.trees("a", "b")
    verifier.commit("a", [8, 9])
    if event == "restarted":
        transport.host = PoolHost({"math": FeatureReader()})
    elif event == "replaced":
        host.put("math", FeatureReader(salt=1))
    elif event == "forgotten":
        other = Verifier(pooled(transport))
        other.start("c", [1, 2])
        other.start("d", [1, 2])
        other.trees("c", "d")
    [[first, _]] = verifier.trees("a", "b")
    assert_no_drafts(first, 9)
    verifier.commit("a", [11])
    [[tree]] = verifier.trees("a")
    local = Verifier(FeatureReader(salt=int(event == "replaced")))
    local.start("a", verifier.tokens["a"])
    local.tell("a")
    assert paths(tree) == first_of(local.drafters[0].tree("a", 12), N_NODES)  # type: ignore[attr-defined]


def test_a_dead_pool_gives_no_drafts_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    host = PoolHost({"math": FeatureReader()})
    transport = LocalTransport(host)
    verifier = Verifier(pooled(transport))
    verifier.start("a", [5, 6])
    transport.host = None
    with caplog.at_level(logging.INFO):
        for token in (7, 8, 9):
            assert_no_drafts(verifier.trees("a")[0][0], verifier.tokens["a"][-1])
            verifier.commit("a", [token])
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "does not draft for math: the pool is dead" in caplog.text
        transport.host = host
        assert verifier.trees("a")[0][0].n_nodes == N_NODES + 1
        assert "drafts for math again" in caplog.text
    assert transport.n_resets == 3


def test_pauses_grow_while_the_pool_is_dead() -> None:
    transport = LocalTransport(PoolHost({"math": FeatureReader()}))
    drafter = PooledDrafter(transport, "math", transport.host.describe()["math"], n_nodes=4)  # type: ignore[union-attr]
    transport.host = None
    drafter.start(start("a", [5]))
    for _ in range(5):
        assert_no_drafts(drafter.slots(["a"]).grow([4])[0], 5)
    assert transport.n_resets == 1
    assert drafter._line._pause_s == 2.0


def test_nothing_is_gathered_for_a_pool_that_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """All features of all trajectories would be copied in every step."""
    n_gathered = []
    gather = ToldTrajectory.news
    monkeypatch.setattr(ToldTrajectory, "news", lambda told: n_gathered.append(1) or gather(told))
    transport = LocalTransport(PoolHost({"math": FeatureReader()}))
    drafter = pooled(transport)
    drafter._line._pause_s = 60.0
    verifier, host = Verifier(drafter), transport.host
    verifier.start("a", [5, 6])
    transport.host = None
    for token in (7, 8, 9):
        assert_no_drafts(verifier.trees("a")[0][0], verifier.tokens["a"][-1])
        verifier.commit("a", [token])
    assert len(n_gathered) == 1
    transport.host, drafter._line._rests_until = host, 0.0
    assert verifier.trees("a")[0][0].n_nodes == N_NODES + 1


def test_a_late_pool_is_not_waited_for() -> None:
    is_open = threading.Event()

    class Slow(FeatureReader):
        def slots(self, trajectories):  # type: ignore[no-untyped-def]
            is_open.wait(10)
            return super().slots(trajectories)

    transport = LocalTransport(PoolHost({"math": Slow()}))
    verifier = Verifier(pooled(transport, deadline_s=0.05))
    verifier.start("a", [5, 6])
    assert_no_drafts(verifier.trees("a")[0][0], 6)
    is_open.set()
    statistics = verifier.drafters[0].statistics()  # type: ignore[attr-defined]
    assert statistics["pool_failures"] == 1
    assert statistics["pool_waited_seconds"] >= 0.04


@pytest.mark.parametrize("token", [6, 8])
def test_what_was_asked_for_before_a_step_is_not_taken_after_it(token: int) -> None:
    """Drafting may rest in between, and the last token may be the same as before."""
    drafter, local = pooled(LocalTransport(PoolHost({"math": FeatureReader()}))), FeatureReader()
    verifier = Verifier(drafter, local)
    verifier.start("a", [5, 6])
    verifier.tell("a")
    drafter.request(["a"])
    verifier.commit("a", [token])
    [[tree], _] = verifier.trees("a")
    assert paths(tree) == first_of(local.tree("a", 12), N_NODES)


def test_a_tree_on_another_token_than_the_last_is_none() -> None:
    class Repeating(LocalTransport):
        def send(self, request: PoolRequest) -> Future[PoolReply]:
            return super().send(self.requests[0] if self.requests else request)

    verifier = Verifier(pooled(Repeating(PoolHost({"math": FeatureReader()}))))
    verifier.start("a", [5, 6])
    assert verifier.trees("a")[0][0].n_nodes == N_NODES + 1
    verifier.commit("a", [7])
    assert_no_drafts(verifier.trees("a")[0][0], 7)


def test_a_removed_drafter_gives_no_drafts(caplog: pytest.LogCaptureFixture) -> None:
    host = PoolHost({"math": FeatureReader(), "chat": FeatureReader(1)})
    transport = LocalTransport(host)
    math, chat = Verifier(pooled(transport)), Verifier(pooled(transport, "chat"))
    for verifier in (math, chat):
        verifier.start("a", [5, 6])
    host.remove("math")
    host.remove("unknown")
    assert_no_drafts(math.trees("a")[0][0], 6)
    assert "it has no drafter 'math'" in caplog.text
    assert chat.trees("a")[0][0].n_nodes == N_NODES + 1


def test_proposals_are_drafted_while_nobody_waits() -> None:
    transport = LocalTransport(PoolHost({"math": FeatureReader()}))
    asked_first, asked_late = pooled(transport), pooled(transport)
    verifier = Verifier(asked_first, asked_late)
    for name in "ab":
        verifier.start(name, [5, 6])
        verifier.tell(name)
    asked_first.request(["a", "b"])
    threading.Event().wait(0.05)
    asked_first.close("b")
    [[early], [late]] = verifier.trees("a")
    assert_equal(early, late)
    assert len(transport.requests) == 2
    assert asked_first.statistics()["pool_hidden_seconds"] > 0
    assert asked_first.statistics()["pool_waited_seconds"] < 0.05


def test_what_is_asked_for_at_the_same_time_is_one_batch() -> None:
    gate, entered = threading.Event(), threading.Event()

    class Gated(FeatureReader):
        def observe_features(self, *arguments):  # type: ignore[no-untyped-def]
            entered.set()
            gate.wait(10)
            super().observe_features(*arguments)

    drafter = Gated()
    host = PoolHost({"math": drafter})

    def request_of(client: str) -> PoolRequest:
        told = ToldTrajectory(start("a", [5, 6]))
        told.add_features(features(0, 1))
        return PoolRequest(client, "math", (told.news(),), (), 4)

    with ThreadPoolExecutor(5) as threads:
        first = threads.submit(host.propose, request_of("first"))
        entered.wait(10)
        others = [threads.submit(host.propose, request_of(str(i))) for i in range(4)]
        while len(host._waiting) < 4:
            threading.Event().wait(0.001)
        gate.set()
        trees = [future.result(10).trees[0] for future in (first, *others)]
    assert drafter.batches == [1, 4]
    for tree in trees[1:]:
        assert_equal(tree, trees[0])


@pytest.mark.parametrize("later", ["begins it anew", "ends it"])
def test_what_a_later_request_of_the_batch_makes_void_is_not_told(later: str) -> None:
    """The client gave a late reply up, or closed a trajectory before the pool came to it."""
    reader = FeatureReader()
    host = PoolHost({"math": reader})
    told, other = (ToldTrajectory(start(name, [5, 6])) for name in ("a", "b"))
    for one in (told, other):
        one.add_features(features(0, 1))
    host.propose(PoolRequest("client", "math", (told.news(),), (), N_NODES))
    told.commit(np.array([7, 8], np.int32))
    told.add_features(features(1, 3))
    late = PoolRequest("client", "math", (told.news(),), (), N_NODES)
    told.begin_anew()
    news, closed = ((told.news(),), ()) if later == "begins it anew" else ((other.news(),), ("a",))
    _, reply = host._members["math"].propose([late, PoolRequest("client", "math", news, closed, N_NODES)])
    known = {"client/a": [5, 6, 7, 8]} if later == "begins it anew" else {"client/b": [5, 6]}
    assert reader.tokens == known
    assert reply.trees[0] is not None


def test_a_drafter_that_fails_fails_those_who_asked_and_starts_anew() -> None:
    class Failing(FeatureReader):
        n_calls = 0

        def slots(self, trajectories):  # type: ignore[no-untyped-def]
            self.n_calls += 1
            if self.n_calls == 2:
                raise RuntimeError("out of memory")
            return super().slots(trajectories)

    transport = LocalTransport(PoolHost({"math": Failing()}))
    verifier = Verifier(pooled(transport))
    verifier.start("a", [5, 6])
    n_nodes = []
    for token in (7, 8, 9):
        n_nodes.append(verifier.trees("a")[0][0].n_nodes)
        verifier.commit("a", [token])
    assert n_nodes == [N_NODES + 1, 1, N_NODES + 1]


def test_closed_trajectories_are_forgotten() -> None:
    reader = FeatureReader()
    transport = LocalTransport(PoolHost({"math": reader}))
    verifier = Verifier(pooled(transport))
    for name in "ab":
        verifier.start(name, [5, 6])
    verifier.trees("a", "b")
    assert len(reader.tokens) == 2
    verifier.close("a")
    verifier.trees("b")
    assert len(reader.tokens) == 1


def test_memory_for_features_is_bounded() -> None:
    host = PoolHost({"math": FeatureReader()})
    transport = LocalTransport(host)
    drafter = pooled(transport, kept_bytes=4 * 4 * 5)
    verifier = Verifier(drafter)
    verifier.start("old", [5, 6, 7, 8])
    verifier.trees("old")
    verifier.start("new", [5, 6, 7, 8])
    assert all(tree.n_nodes > 1 for tree in verifier.trees("old", "new")[0])
    assert sum(told.kept_bytes for told in drafter._told.values()) <= 4 * 4 * 5
    verifier.commit("old", [9])
    assert verifier.trees("old")[0][0].n_nodes > 1  # the pool still knows it
    host.put("math", FeatureReader(1))
    verifier.trees("old", "new")
    old, new = verifier.trees("old", "new")[0]
    assert_no_drafts(old, 9)  # nobody knows its features any more
    assert new.n_nodes > 1


@pytest.mark.parametrize("kind", ["head", "lm"])
def test_neural_drafters_draft_in_a_pool_what_they_draft_beside_the_target(kind: str) -> None:
    config = DraftingConfig(draft_depth=3, draft_width=4)
    facts, law = toy_facts(), SamplingParams(temperature=0.8)
    local = NeuralDrafter(toy_network(kind, facts), config)
    hosted = NeuralDrafter(toy_network(kind, facts), config)
    engines = [
        FakeEngine(drafter, toy_llama()) for drafter in (local, pooled(LocalTransport(PoolHost({"math": hosted}))))
    ]
    for engine in engines:
        engine.start("a", [1, *range(5, 20)], law)
        engine.start("b", [1, 7, 8, 9], law)
    for token, n_nodes in ((11, 12), (12, 12), (13, 5), (14, 12)):
        trees = [engine.draft(["a", "b"], n_nodes) for engine in engines]
        for left, right in zip(*trees, strict=True):
            assert left.n_nodes == n_nodes + 1
            assert_equal(left, right)
        for engine, (tree, _) in zip(engines, trees, strict=True):
            engine.commit("a", tree, [1], token)
