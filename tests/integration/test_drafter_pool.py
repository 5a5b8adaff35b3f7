"""A pool of drafters in an actor: it drafts for decoders elsewhere, and whatever becomes of it changes no token."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.exactness.reference import Outcome
from tests.neural_toys import draft_vocabulary, toy_facts, toy_head, trained_weights
from tts_orch.actors import pool_keeper
from tts_orch.actors._event_loop import EventLoopThread
from tts_orch.actors._remote import Remote
from tts_orch.actors.drafter_pool import DrafterLoader, DrafterPoolCore
from tts_orch.actors.pool_keeper import PoolKeeper
from tts_orch.actors.pool_place import PoolPlace
from tts_orch.config import DraftingConfig, EngineConfig
from tts_orch.drafters.checkpoint import load_network, save_head
from tts_orch.drafters.neural_drafter import NeuralDrafter
from tts_orch.drafters.pool_client import PooledDrafter
from tts_orch.drafters.pool_link import PoolLink
from tts_orch.drafters.trimming import trimmed_head
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.records import SamplingParams

pytestmark = pytest.mark.timeout(90)

LAW = SamplingParams(temperature=0.0, max_new_tokens=60)
REQUESTS = [request(f"r{i}", prompt(20 + 7 * i, seed=i), LAW) for i in range(4)]


def make_loader(config: EngineConfig) -> DrafterLoader:
    """Load heads where there are any; an empty configuration stands for prompt lookup."""

    def load(folder: Path) -> Drafter:
        if not (folder / "config.json").exists():
            raise ConfigError(f"{folder}: no drafter")
        if (folder / "model.safetensors").exists():
            return NeuralDrafter(load_network(folder, toy_facts()), DraftingConfig(draft_depth=3, draft_width=4))
        return PromptLookup()

    return load


class KillablePool(DrafterPoolCore):
    """Says which process it is."""

    def process_id(self) -> int:
        return os.getpid()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drafter")
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def head_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a head of EAGLE-3 that has learned a little, and proposes half of the tokens."""
    head = toy_head(toy_facts(), architecture="eagle3")
    head.load_state_dict(trained_weights("eagle3"))
    folder = tmp_path_factory.mktemp("head")
    save_head(folder, trimmed_head(head, draft_vocabulary(range(20, 70))))
    return folder


@dataclass(frozen=True)
class KeptPool:
    loop: EventLoopThread
    keeper: PoolKeeper
    link: PoolLink

    def kill(self) -> None:
        actor: Remote[KillablePool] = Remote.named(self.keeper._name)
        os.kill(actor.begin(KillablePool.process_id).result(10), signal.SIGKILL)


@contextmanager
def kept_pool(drafters: dict[str, Path]) -> Iterator[KeptPool]:
    loop = EventLoopThread()
    config = EngineConfig(target="toy", device="cpu", drafters=drafters)
    keeper = PoolKeeper(PoolPlace(config, {"num_cpus": 0}), make_loader)
    try:
        yield KeptPool(loop, keeper, loop.run(keeper.start()))
    finally:
        loop.run(keeper.close())
        loop.close()


@pytest.fixture(scope="module")
def pool(folder: Path, head_folder: Path, ray_session: None) -> Iterator[KeptPool]:
    """Keep one pool for all tests: it takes seconds to start."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(pool_keeper, "_LOOK_EVERY_S", 0.2)
        patches.setattr(pool_keeper, "DrafterPool", replace(pool_keeper.DrafterPool, core=KillablePool))
        with kept_pool({"copies": folder, "head": head_folder}) as pool:
            yield pool


def pooled_run(
    drafter: PooledDrafter, before_step: Callable[[int], object] = lambda step: None
) -> tuple[dict[str, Outcome], int]:
    """Return what came out, and how many draft nodes were accepted."""
    decoder = new_decoder(toy_target(), drafter, node_budget=False)
    return decode(decoder, REQUESTS, before_step), decoder.counters.accepted_nodes


def plain() -> dict[str, Outcome]:
    return decode(new_decoder(toy_target()), REQUESTS)


@pytest.mark.parametrize("name", ["copies", "head"])
def test_a_pool_drafts_for_a_decoder_elsewhere(pool: KeptPool, name: str) -> None:
    drafter = pool.link.drafter(name, 12)
    tokens, n_accepted = pooled_run(drafter)
    assert tokens == plain()
    assert n_accepted > 0
    assert drafter.statistics()["pool_failures"] == 0


def test_drafters_come_and_go_while_the_pool_is_at_work(pool: KeptPool, folder: Path) -> None:
    facts = pool.loop.run(pool.keeper.put("more", folder))
    more = PoolLink(pool.link.transport, {"more": facts}).drafter("more", 12)
    assert pooled_run(more)[1] > 0
    with pytest.raises(ConfigError, match="no drafter"):
        pool.loop.run(pool.keeper.put("none", folder / "absent"))
    pool.loop.run(pool.keeper.remove("more"))
    tokens, n_accepted = pooled_run(more)
    assert tokens == plain()
    assert n_accepted == 0


def test_a_pool_that_is_killed_changes_no_token_and_is_found_again(pool: KeptPool) -> None:
    drafter = pool.link.drafter("head", 12)
    tokens, _ = pooled_run(drafter, lambda step: pool.kill() if step == 5 else None)
    assert tokens == plain()
    assert drafter.statistics()["pool_failures"] > 0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        drafter._line._rests_until = 0.0
        tokens, n_accepted = pooled_run(drafter)
        assert tokens == plain()
        if n_accepted:
            return
        time.sleep(0.3)
    raise AssertionError("the pool was not found again")


def test_mistakes_are_told_when_the_pool_starts(ray_session: None, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no drafter"), kept_pool({"copies": tmp_path}):
        pass
