"""Search policies by name: those of this package, and those that others register.

Another package registers a policy, an `async` function `(problem, context, config) -> SearchResult`, by an entry point:

    [project.entry-points."tts_orch.search_policies"]
    until_agreed = "my_package:ask_until_agreed"
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final, TypeAlias, cast

from tts_orch.errors import ConfigError, first_line
from tts_orch.method_config import MethodConfig, OwnMethod
from tts_orch.policies.search.beam_search import beam_search
from tts_orch.policies.search.best_of_n import best_of_n
from tts_orch.policies.search.budget_forcing import budget_forcing
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.dvts import dvts
from tts_orch.policies.search.majority_vote import majority_vote
from tts_orch.policies.search.particle_filtering import particle_filtering
from tts_orch.policies.search.rebase import rebase
from tts_orch.records import Problem, SearchResult

__all__ = ["SEARCH_POLICIES", "SearchPolicy", "find_policy"]

SearchPolicy: TypeAlias = Callable[[Problem, SearchContext, Any], Awaitable[SearchResult]]
"""A search policy and its settings as the last argument. Tokens of the result are counted by who runs it."""

SEARCH_POLICIES: Final[Mapping[str, SearchPolicy]] = {
    "beam_search": beam_search,
    "best_of_n": best_of_n,
    "budget_forcing": budget_forcing,
    "dvts": dvts,
    "majority_vote": majority_vote,
    "particle_filtering": particle_filtering,
    "rebase": rebase,
}

_GROUP: Final = "tts_orch.search_policies"


def find_policy(method: MethodConfig) -> SearchPolicy:
    """Return the policy that a method's settings belong to.

    Raises:
        ConfigError: no installed package has the policy, or it cannot be imported.
    """
    if not isinstance(method, OwnMethod):
        return SEARCH_POLICIES[method.name]
    registered = {entry.name: entry for entry in entry_points(group=_GROUP)}
    if method.policy not in registered:
        known = ", ".join(sorted(registered)) or "none"
        raise ConfigError(
            f"policy: {method.policy} is no entry point of the group {_GROUP} (installed: {known}); install its package"
        )
    try:
        policy = registered[method.policy].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"policy: {method.policy} cannot be imported ({first_line(error)}); mend its package"
        ) from None
    return cast(SearchPolicy, policy)
