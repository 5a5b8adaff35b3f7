"""Search policies: from a problem and a context to an answer."""

from tts_orch.policies.search.registry import SEARCH_POLICIES, SearchPolicy, find_policy

__all__ = ["SEARCH_POLICIES", "SearchPolicy", "find_policy"]
