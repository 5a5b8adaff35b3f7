"""Search policies by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tts_orch.policies.search.best_of_n import best_of_n
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.majority_vote import majority_vote
from tts_orch.records import Problem, SearchResult

__all__ = ["SEARCH_POLICIES", "SearchPolicy"]

SearchPolicy = Callable[[Problem, SearchContext, Any], Awaitable[SearchResult]]

SEARCH_POLICIES: Mapping[str, SearchPolicy] = {"best_of_n": best_of_n, "majority_vote": majority_vote}
