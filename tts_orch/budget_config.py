"""How much a search may spend; what it has found until then is its result."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from tts_orch.settings import Settings

__all__ = ["DEADLINES", "NO_LIMITS", "PROBLEM_BUDGET_ENDS", "RUN_BUDGET_ENDS", "BudgetConfig"]

PROBLEM_BUDGET_ENDS: Final = ("deadline", "token budget")
"""What stopped the search of a problem whose seconds, or whose tokens, were spent."""
RUN_BUDGET_ENDS: Final = ("deadline of the run", "token budget of the run")
"""What stopped it where those of the whole run were."""
DEADLINES: Final = (PROBLEM_BUDGET_ENDS[0], RUN_BUDGET_ENDS[0])
"""Those that end the wait for a reward model too."""


class BudgetConfig(Settings):
    """Limits of time and tokens. Where one cuts in depends on the machine, so a seed does not fix the results."""

    problem_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Seconds for a problem, scoring included, from its first token on; its best answer until then counts."""
    problem_tokens: int | None = Field(None, ge=1)
    """Tokens to generate for a problem, those of runs before included; its best answer until then counts."""
    run_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Seconds for all problems, scoring included; the next run goes on with those that are not done."""
    run_tokens: int | None = Field(None, ge=1)
    """Tokens to generate for all problems; the next run goes on with those that are not done."""


NO_LIMITS: Final = BudgetConfig()
