"""Which drafters may work together, and what is said of settings that do not fit them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tts_orch.config import DraftingConfig, EngineConfig
from tts_orch.errors import ConfigError


@pytest.fixture
def heads(tmp_path: Path) -> dict[str, Path]:
    folders = {name: tmp_path / name for name in ("math", "chat")}
    for folder in folders.values():
        folder.mkdir()
    return folders


def test_members_are_named_in_order_and_routed_by_what_they_are(heads: dict[str, Path]) -> None:
    assert DraftingConfig(drafter="none").members == ()
    assert DraftingConfig().members == ("stand",)
    mixed = DraftingConfig(drafters=heads)
    assert (mixed.members, mixed.chosen_routing) == (("stand", "math", "chat"), "expected_tokens")
    trained = DraftingConfig(drafter="neural", drafters=heads)
    assert (trained.members, trained.chosen_routing) == (("math", "chat"), "confidence")
    assert DraftingConfig(drafter="neural", drafters=heads, routing="merged").chosen_routing == "merged"


def test_folders_are_absolute_and_survive_every_way_to_a_worker(
    heads: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(heads["math"].parent)
    config = EngineConfig(target="t", drafters={"math": Path("math")})
    assert config.drafters == {"math": heads["math"]}
    stored = EngineConfig(**config.model_dump(mode="json"))
    assert stored == config == pickle.loads(pickle.dumps(config))
    assert hash(stored) == hash(config) != hash(EngineConfig(target="t"))


MISTAKES = [
    ({"drafter": "neural"}, "drafter: neural drafts by trained drafters; name one"),
    ({"drafter": "none", "drafters": ["math"]}, "drafters: drafter none drafts nothing"),
    ({"drafters": ["stand"]}, "drafters: 'stand' cannot be a name"),
    ({"drafters": ["a b"]}, "drafters: 'a b' cannot be a name"),
    ({"drafters": {"math": "nowhere"}}, "drafters: math: nowhere is no folder; make one with `tts-orch drafter train`"),
    ({"routing": "merged"}, "routing: merged is between several drafters"),
    ({"drafter": "neural", "drafters": ["math"], "routing": "merged"}, "routing: merged is between several drafters"),
    (
        {"drafter": "neural", "drafters": ["math"], "routing_steps": 2},
        "routing_steps: only routings first_steps, problem",
    ),
    ({"drafters": ["math"], "routing": "merged", "routing_probe_every": 2}, "routing_probe_every: only routings first"),
    (
        {"drafters": ["math"], "routing": "problem", "routing_probe_every": 2},
        "routing_probe_every: only routings first",
    ),
    (
        {"drafters": ["math"], "routing": "problem", "statistics_scope": "run"},
        "routing: problem needs statistics_scope problem",
    ),
    ({"drafter_placement": "pooled"}, "drafter_placement: only trained drafters are pooled"),
    ({"drafters": ["math"], "draft_overlap": True}, "draft_overlap: only pooled drafters draft meanwhile"),
    ({"draft_depth": 17}, "draft_depth: input should be less than or equal to 16"),
]


@pytest.mark.parametrize(("settings", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_what_does_not_fit_is_one_line(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    if isinstance(names := settings.get("drafters"), list):
        settings = {**settings, "drafters": dict.fromkeys(names, tmp_path)}
    with pytest.raises(ConfigError) as caught:
        DraftingConfig(**settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_what_fits_is_taken(heads: dict[str, Path]) -> None:
    DraftingConfig(drafters=heads, routing="first_steps", routing_steps=2, routing_probe_every=9)
    DraftingConfig(drafters=heads, routing="problem", routing_steps=2)
    DraftingConfig(drafters=heads, routing_steps=2, routing_probe_every=9)  # the routing is expected_tokens
    DraftingConfig(drafters=heads, drafter_placement="pooled", draft_overlap=True)
