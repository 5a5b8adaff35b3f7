"""Settings of the search methods, each a small model of its own, chosen by `name`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator

from tts_orch.errors import ConfigError
from tts_orch.records import StepRule
from tts_orch.settings import Settings
from tts_orch.stopping_config import DeepConf, SequentialRule, StoppingConfig

__all__ = [
    "DVTS",
    "Aggregation",
    "BeamSearch",
    "BestOfN",
    "BudgetForcing",
    "Choice",
    "MajorityVote",
    "MethodConfig",
    "OwnMethod",
    "ParticleFiltering",
    "Rebase",
    "ScoredMethod",
    "StepwiseMethod",
]

Aggregation: TypeAlias = Literal["last", "min", "prod", "mean"]
Choice: TypeAlias = Literal["maximum", "weighted", "majority", "borda"]


class _Method(Settings):
    name: str
    n: int = Field(16, ge=1)
    """Candidates a problem."""

    samples_whole: ClassVar[bool] = True
    """Whether each candidate is one trajectory, so that a journal's count of them is the method's."""

    @property
    def n_at_once(self) -> int:
        """Candidates that a problem has open at once."""
        return self.n

    @property
    def uses_rewards(self) -> bool:
        """Whether it asks a reward model where there is one."""
        return True


class _Stoppable(_Method):
    """A method that may do with fewer candidates."""

    stopping: StoppingConfig | None = None
    """Rule that ends sampling before all n candidates are drawn, or chooses which of them may vote."""

    @property
    def n_at_once(self) -> int:
        """Candidates that a problem has open at once."""
        return min(self.n, self.stopping.n_at_once) if isinstance(self.stopping, SequentialRule) else self.n

    @model_validator(mode="after")
    def _leaves_some(self) -> _Stoppable:
        if isinstance(self.stopping, DeepConf) and self.stopping.warm_up >= self.n:
            raise ConfigError(
                f"stopping.warm_up: {self.stopping.warm_up} candidates of {self.n} leave none to cut; "
                "give fewer, or a larger n"
            )
        return self


class ScoredMethod(_Method):
    """A method whose candidates are scored by a reward model, or by their self-certainty where there is none."""

    aggregation: Aggregation = "last"
    """How step scores become one score."""
    choice: Choice = "maximum"
    """Take the best candidate, or let candidates vote: weighted by score, each the same, or by rank of score."""
    borda_power: float = Field(1.0, ge=0)
    """Exponent p of the rank weight (n - rank + 1)^p of choice borda."""


class BestOfN(ScoredMethod, _Stoppable):
    """Sample n candidates and choose by score."""

    name: Literal["best_of_n"] = "best_of_n"

    extendable: ClassVar[bool] = True


class MajorityVote(ScoredMethod, _Stoppable):
    """Sample n candidates and return the answer that most of them give."""

    name: Literal["majority_vote"] = "majority_vote"
    choice: Literal["majority", "weighted", "borda"] = "majority"
    """Each candidate votes the same, weighted by score, or by rank of score."""

    extendable: ClassVar[bool] = True

    @property
    def uses_rewards(self) -> bool:
        """Whether votes have weights."""
        return self.choice != "majority"


class BudgetForcing(_Method):
    """Have a thinking model think on where it would end, stop it at a budget, and vote over the answers."""

    name: Literal["budget_forcing"] = "budget_forcing"
    thinking_tokens: int = Field(192, ge=1)
    """Tokens of thinking after which it is ended, less than max_new_tokens, which the answer counts for too."""
    ignores: int = Field(1, ge=0)
    """Times that an end of thinking before the budget is taken back."""
    mark: str = Field("</think>", min_length=1)
    """Text that ends the thinking; best one token of the target."""
    wait: str = Field("Wait", min_length=1)
    """What is written where an end was taken back."""
    answer_prefix: str = "Final Answer:"
    """What the answer begins with where the budget ended the thinking."""

    extendable: ClassVar[bool] = True
    samples_whole: ClassVar[bool] = False

    @property
    def uses_rewards(self) -> bool:
        """Never: all votes are the same."""
        return False


class StepwiseMethod(ScoredMethod):
    """A method that searches step by step; it needs a reward model."""

    delimiters: tuple[Annotated[str, Field(min_length=1)], ...] = ("\n\n",)
    """Texts that end a step."""
    min_step_tokens: int = Field(1, ge=1)
    """A delimiter ends no step before so many tokens of it."""
    max_step_tokens: int = Field(2048, ge=1)
    """A step is cut after so many tokens."""
    max_steps: int = Field(40, ge=1)
    """Steps of a solution; the last one has no end but the solution's."""

    extendable: ClassVar[bool] = False
    samples_whole: ClassVar[bool] = False

    @model_validator(mode="after")
    def _has_steps(self) -> StepwiseMethod:
        if self.min_step_tokens > self.max_step_tokens:
            raise ConfigError(
                f"min_step_tokens: {self.min_step_tokens} are more than max_step_tokens {self.max_step_tokens}; change one"
            )
        return self

    @property
    def step(self) -> StepRule:
        """The rule by which steps end."""
        return StepRule(self.delimiters, self.min_step_tokens, self.max_step_tokens)


class _Branching(StepwiseMethod):
    """A method that samples several next steps of each partial solution."""

    beam_width: int = Field(4, ge=1)
    """Next steps sampled of each partial solution; n is a multiple of it."""

    @model_validator(mode="after")
    def _divides(self) -> _Branching:
        if self.n % self.beam_width:
            raise ConfigError(
                f"n: {self.n} candidates are not a multiple of beam_width {self.beam_width}; change one of both"
            )
        return self


class BeamSearch(_Branching):
    """Keep the best n / beam_width partial solutions, and sample beam_width next steps of each."""

    name: Literal["beam_search"] = "beam_search"


class DVTS(_Branching):
    """Search n / beam_width subtrees, each by itself: of beam_width next steps the best is kept."""

    name: Literal["dvts"] = "dvts"
    lookahead: int = Field(0, ge=0)
    """Steps that a step is continued by, greedily, before it is scored; they are thrown away."""
    emit: Literal["winner", "finished_siblings", "all_siblings"] = "winner"
    """What a subtree gives to the answer: its solution, all finished solutions of its last expansion, or all of it."""

    extendable: ClassVar[bool] = True


class ParticleFiltering(StepwiseMethod):
    """Advance n particles step by step, and draw the survivors by their scores."""

    name: Literal["particle_filtering"] = "particle_filtering"
    softmax_temperature: float = Field(1.0, gt=0)
    """Temperature at which particles are drawn by the log odds of their scores."""


class Rebase(StepwiseMethod):
    """Share n next steps out over the partial solutions by a softmax of their scores."""

    name: Literal["rebase"] = "rebase"
    choice: Choice = "weighted"
    """Take the best candidate, or let candidates vote: weighted by score, each the same, or by rank of score."""
    softmax_temperature: float = Field(0.2, gt=0)
    """Temperature of the softmax over scores."""


class OwnMethod(_Method):
    """A search policy of a package of your own."""

    name: Literal["own"] = "own"
    policy: str = Field(min_length=1)
    """Name of its entry point in the group tts_orch.search_policies."""

    extendable: ClassVar[bool] = False
    samples_whole: ClassVar[bool] = False


MethodConfig = Annotated[
    BestOfN | MajorityVote | BeamSearch | DVTS | ParticleFiltering | Rebase | BudgetForcing | OwnMethod,
    Field(discriminator="name"),
]
