"""After a warm-up no decode step waits for a compiler."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest
from numba.core.dispatcher import Dispatcher

from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.neural_toys import toy_head
from tests.toys import VOCABULARY_SIZE, save_toy
from tts_orch.config import DraftingConfig, UntrainedName
from tts_orch.drafters.checkpoint import save_head
from tts_orch.drafters.loading import load_drafter
from tts_orch.drafters.target_facts import target_facts
from tts_orch.drafting_config import RoutingName
from tts_orch.policies.drafting import (
    calibration,
    composed_kinds,
    draft_outcomes,
    law_candidates,
    stand_contexts,
    stand_growth,
    token_recycling,
    trie_growth,
    trie_kernels,
)
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.policies.drafting.warm_up import warm_up
from tts_orch.policies.routing import merged_tree, tree_confidence
from tts_orch.records import SamplingParams

MODULES = (
    calibration,
    composed_kinds,
    draft_outcomes,
    law_candidates,
    merged_tree,
    stand_contexts,
    stand_growth,
    token_recycling,
    tree_confidence,
    trie_growth,
    trie_kernels,
)


def _compiled(modules: tuple[ModuleType, ...]) -> dict[str, int]:
    """How many forms each compiled function was built in."""
    return {
        f"{module.__name__}.{name}": len(value.signatures)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Dispatcher)
    }


@pytest.mark.parametrize("verification", ["keyed", "rejection"])
@pytest.mark.parametrize("name", ["none", *get_args(UntrainedName)])
def test_decoding_compiles_nothing_more(name: str, verification: str) -> None:
    for node_budget in (True, False):
        config = DraftingConfig(drafter=name, verification=verification, node_budget=node_budget)
        warm_up(config)
        before = _compiled(MODULES)
        drafter = make_drafter(config, vocabulary_size=VOCABULARY_SIZE)
        decoder = new_decoder(toy_target(), drafter, verification=verification, node_budget=node_budget)
        decode(decoder, [request(str(i), prompt(30), SamplingParams(max_new_tokens=12)) for i in range(3)])
        assert _compiled(MODULES) == before


@pytest.mark.parametrize("routing", ["confidence", "merged"])
@pytest.mark.parametrize("name", ["neural", "stand"])
def test_trained_drafters_compile_nothing_more(name: str, routing: RoutingName, tmp_path: Path) -> None:
    target = toy_target()
    folders = {"head": tmp_path / "head", "model": save_toy(tmp_path / "model")}
    folders["head"].mkdir()
    save_head(folders["head"], toy_head(target_facts(target)))
    config = DraftingConfig(drafter=name, drafters=folders, routing=routing)
    warm_up(config)
    before = _compiled(MODULES)
    decoder = new_decoder(target, load_drafter(config, target, is_shared=False))
    law = SamplingParams(temperature=0.8, max_new_tokens=12)
    decode(decoder, [request(str(i), prompt(30), law) for i in range(3)])
    assert decoder.statistics()["draft_nodes"] > 0
    assert _compiled(MODULES) == before
