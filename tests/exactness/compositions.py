"""Compositions of drafters that need no training, for tests of exactness."""

from __future__ import annotations

from itertools import count

from tests.exactness.stand_drafter import new_stand
from tests.toys import VOCABULARY_SIZE
from tts_orch.config import DraftingConfig
from tts_orch.drafting_config import RoutingName
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.policies.drafting.token_recycling import TokenRecycling
from tts_orch.policies.routing.registry import make_routing


def compose(members: dict[str, Drafter], routing: RoutingName) -> ComposedDrafter:
    """Return the composition of drafters by a routing with its usual settings; a look at its clock takes a microsecond."""
    config = DraftingConfig().model_copy(update={"routing": routing})
    ticks = count()
    return ComposedDrafter(members, make_routing(config, list(members)), lambda: next(ticks) * 1e-6)


def new_composition(routing: RoutingName, *, is_keyed: bool = True, is_nested: bool = False) -> ComposedDrafter:
    """Return STAND, Token Recycling and prompt lookup as one drafter, the latter two as one member of it if nested.

    Args:
        routing: between them, of every level.
        is_keyed: whether STAND may draw its drafts; under rejection it takes the most probable ones.
        is_nested: whether a composition is a member of another one.
    """
    stand = new_stand(draft_sampling="stochastic" if is_keyed else "deterministic")
    others: dict[str, Drafter] = {"recycling": TokenRecycling(VOCABULARY_SIZE), "lookup": PromptLookup()}
    return compose({"stand": stand, **({"pair": compose(others, routing)} if is_nested else others)}, routing)
