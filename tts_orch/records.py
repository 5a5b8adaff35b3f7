"""The small frozen values that everything passes around. No behaviour beyond checking and derived numbers.

Token ids are `int32`, positions are absolute (prompt + output, the first prompt token is 0), log-probabilities are
natural logarithms under the target's raw law (T=1, before every processor) unless a name says otherwise.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tts_orch.errors import ConfigError

__all__ = [
    "Candidate",
    "Chunk",
    "ConfidenceCut",
    "DecodeRequest",
    "FinishReason",
    "FloatArray",
    "IntArray",
    "Path",
    "Prefix",
    "Problem",
    "SamplingParams",
    "SearchResult",
    "StepRule",
]

IntArray: TypeAlias = NDArray[np.int32]
FloatArray: TypeAlias = NDArray[np.float32]
Path: TypeAlias = tuple[int, ...]


class FinishReason(str, enum.Enum):
    """Why a candidate ended. `cancelled` and `error` are done again on resume, the others are final.

    After `step` (a delimiter) and `step_length` (the longest that a step may be) a solution goes on; `low_confidence` cut it.
    A search gives `answer_found` to a solution that it ends with the step that has the answer.
    """

    EOS = "eos"
    STOP_STRING = "stop_string"
    LENGTH = "length"
    STEP = "step"
    STEP_LENGTH = "step_length"
    ANSWER_FOUND = "answer_found"
    LOW_CONFIDENCE = "low_confidence"
    CANCELLED = "cancelled"
    ERROR = "error"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampling law: logits processors in the order they are applied, and when a trajectory ends.

    Attributes:
        logit_bias: (token id, bias) pairs, added to the raw logits first.
        repetition_penalty: divides positive and multiplies negative logits of every token seen in prompt or output.
        presence_penalty: subtracted once from every token seen in the output.
        frequency_penalty: subtracted per occurrence in the output.
        min_new_tokens: stop ids (EOS among them) have probability 0 before this many output tokens.
        temperature: 0 takes the most probable token, ties to the lowest id.
        top_k: keep the k most probable tokens (all ties of the last); 0 keeps all.
        top_p: keep the smallest set of most probable tokens with at least this mass; 1 keeps all.
        min_p: keep tokens with at least this share of the largest probability; 0 keeps all.
        max_new_tokens: output length limit.
        stop_ids: token ids that end a trajectory, besides the target's own EOS.
        stop_strings: texts that end a trajectory where they first appear in the decoded output.

    Raises:
        ConfigError: a value that no law can have.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_new_tokens: int = 0
    max_new_tokens: int = 256
    stop_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        rules = (
            ("temperature", 0 <= self.temperature < math.inf, "0 (greedy) or a positive number"),
            ("top_k", self.top_k >= 0, "0 (off) or a positive number of tokens"),
            ("top_p", 0 < self.top_p <= 1, "in (0, 1]"),
            ("min_p", 0 <= self.min_p < 1, "in [0, 1)"),
            ("repetition_penalty", 0 < self.repetition_penalty < math.inf, "a positive number"),
            ("presence_penalty", math.isfinite(self.presence_penalty), "a finite number"),
            ("frequency_penalty", math.isfinite(self.frequency_penalty), "a finite number"),
            ("max_new_tokens", self.max_new_tokens >= 1, "at least 1"),
            ("min_new_tokens", 0 <= self.min_new_tokens <= self.max_new_tokens, "from 0 to max_new_tokens"),
            ("stop_strings", all(self.stop_strings), "non-empty texts"),
            (
                "logit_bias",
                all(i >= 0 and b == b and b < math.inf for i, b in self.logit_bias),
                "token ids with a number each",
            ),
        )
        for name, holds, want in rules:
            if not holds:
                raise ConfigError(f"{name}: {getattr(self, name)} is impossible; it must be {want}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One line of a problem file.

    Attributes:
        id: unique within a run; part of every seed.
        prompt: text that goes to the model, or None when `messages` is given.
        messages: chat turns with `role` and `content`, rendered with the target's chat template.
        answer: reference answer, or None.
        domain: free label; chooses how the answer is extracted when the run does not say.
        choices: texts of a multiple-choice problem, A first.
        tests: whatever the task's grader needs.
        step_answers: results of the steps of a reference solution, in order.
    """

    id: str
    prompt: str | None = None
    messages: tuple[Mapping[str, str], ...] | None = None
    answer: str | None = None
    domain: str | None = None
    choices: tuple[str, ...] | None = None
    tests: object = None
    step_answers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ConfidenceCut:
    """Ends a trajectory with the first token at which a whole window of tokens has too little confidence.

    Source: DeepConf, arXiv 2508.15260.

    Attributes:
        window: tokens of this call over which the mean confidence is taken.
        least: mean confidence below which the trajectory is cut.
    """

    window: int
    least: float


@dataclass(frozen=True, slots=True)
class StepRule:
    """Where a search step ends: with the token whose text completes the first delimiter, within length bounds in tokens.

    Attributes:
        delimiters: texts that end a step and stay part of it; none for whole solutions.
        min_tokens: a delimiter that is complete before so many tokens of the step does not end it.
        max_tokens: the step is cut after so many tokens.
        confidence: cuts solutions that are not worth going on with.
    """

    delimiters: tuple[str, ...] = ("\n\n",)
    min_tokens: int = 1
    max_tokens: int = 2048
    confidence: ConfidenceCut | None = None


@dataclass(frozen=True, slots=True)
class Prefix:
    """A place in the search from which candidates are sampled.

    Attributes:
        problem_id: the problem it belongs to.
        token_ids: `[n]` prompt and output so far; never re-tokenised text.
        prompt_length: how many of them are prompt.
        path: place in the search; children append their index.
        statistics_from: first position whose law has not been counted into the draft statistics.
        parent: path of the candidate that it goes on from, where `path` does not say.
    """

    problem_id: str
    token_ids: IntArray
    prompt_length: int
    path: Path = ()
    statistics_from: int = 0
    parent: Path | None = None

    def after(self, candidate: Candidate, path: Path | None = None) -> Prefix:
        """Return the prefix that goes on from a candidate of the same prompt.

        Args:
            candidate: sampled from this prefix, or from another one of its prompt.
            path: place of the continuation, the candidate's own if not given.
        """
        output = np.asarray(candidate.token_ids, np.int32)
        token_ids = np.concatenate([self.token_ids[: self.prompt_length], output])
        return replace(
            self,
            token_ids=token_ids,
            path=candidate.path if path is None else path,
            statistics_from=len(token_ids) - 1,
            parent=candidate.path,
        )


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """One trajectory for a decoder to go on with.

    Attributes:
        candidate_id: unique among live requests of a decoder.
        token_ids: `[n]` prompt and what is already committed.
        prompt_length: how many of them are prompt.
        seed: trajectory seed (64 bit).
        law: sampling law.
        attempt: how often the trajectory was begun before, so that rejection verification draws afresh.
        scope: key of the draft statistics it shares.
        statistics_from: first position whose law may still be counted into the draft statistics.
        use_drafts: False decodes plainly whatever the drafter offers.
        priority: lower is admitted first; ties in order of arrival.
        step: where the trajectory may end before its solution does; None samples it whole.
        step_start: absolute position at which the step began; before `len(token_ids)` where a lost worker had begun it.
        confidences: token confidences from `step_start` on that are known already.
        domain: label of the problem, empty if it has none.
        drafter: member of a composed drafter that drafts for it, empty where the composition chooses.
    """

    candidate_id: str
    token_ids: IntArray
    prompt_length: int
    seed: int
    law: SamplingParams
    scope: str = ""
    statistics_from: int = 0
    use_drafts: bool = True
    priority: int = 0
    attempt: int = 0
    step: StepRule | None = None
    step_start: int | None = None
    confidences: tuple[float, ...] = ()
    domain: str = ""
    drafter: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Freshly committed tokens of one candidate; arrays have one entry a token.

    Attributes:
        candidate_id: as in the request.
        start: absolute position of the first token.
        token_ids: `[n]`.
        log_probs: `[n]` raw log-probability of each token.
        confidences: `[n]` DeepConf token confidence: minus the mean log-probability of the 20 most probable tokens.
        self_certainties: `[n]` KL(uniform || raw law).
        verify_steps: verify steps these tokens took.
        draft_nodes: draft nodes verified in those steps.
        finish_reason: set on the candidate's last chunk, which may be empty.
        message: what went wrong, with finish reason `error`.
    """

    candidate_id: str
    start: int
    token_ids: IntArray
    log_probs: FloatArray
    confidences: FloatArray
    self_certainties: FloatArray
    verify_steps: int = 0
    draft_nodes: int = 0
    finish_reason: FinishReason | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One finished trajectory, or one that ended with a step and can be continued.

    Attributes:
        problem_id, path, seed: where it belongs and what its noise was keyed by.
        token_ids: output tokens from the end of the prompt on, EOS included when it was drawn.
        text: decoded output without special tokens, cut before a stop string.
        finish_reason: why it ended.
        answer: extracted answer, None for an abstention; one of a candidate that can be continued is never voted for.
        step_scores: reward-model scores, one a step; empty without a reward model.
        self_certainty: mean KL(uniform || raw law) over its positions (arXiv 2502.18581).
        confidence: mean DeepConf token confidence.
        tail_confidence, bottom_confidence, lowest_confidence: of its last window of tokens, mean over the lowest tenth of all
            windows, and of the lowest one; 0 unless it was sampled with a `ConfidenceCut`, whose windows these are.
        log_prob: sum of raw log-probabilities of its tokens.
        verify_steps: verify steps it took; `tau` follows.
        worker: who decoded it, with the fingerprint of its numerics.
        message: what went wrong, with finish reason `error`.
        parent: path of the candidate that it continues, () for the prompt.
        n_before: how many of its tokens it was given by that candidate; means and sums are over the others.
        tail_confidence, bottom_confidence, lowest_confidence: by the windows of a confidence cut (arXiv 2508.15260); 0 without one.
        answer_is_fallback: whether nothing announced the answer, and it is only the last thing that may be one.
    """

    problem_id: str
    path: Path
    seed: int
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    answer: str | None = None
    step_scores: tuple[float, ...] = ()
    self_certainty: float = 0.0
    confidence: float = 0.0
    log_prob: float = 0.0
    verify_steps: int = 0
    worker: str = ""
    fingerprint: str = ""
    message: str = ""
    parent: Path = ()
    n_before: int = 0
    tail_confidence: float = 0.0
    bottom_confidence: float = 0.0
    lowest_confidence: float = 0.0
    answer_is_fallback: bool = False

    @property
    def n_tokens(self) -> int:
        """Number of output tokens."""
        return len(self.token_ids)

    @property
    def n_new(self) -> int:
        """Number of tokens that were generated for it, beyond those of the candidate that it continues."""
        return self.n_tokens - self.n_before

    @property
    def tau(self) -> float:
        """Committed tokens per verify step; 0 when nothing was decoded."""
        return self.n_new / self.verify_steps if self.verify_steps else 0.0

    @property
    def is_complete(self) -> bool:
        """Whether the candidate is final: neither cancelled nor failed."""
        return self.finish_reason not in (FinishReason.CANCELLED, FinishReason.ERROR)

    @property
    def can_continue(self) -> bool:
        """Whether it ended with a step, before its solution did."""
        return self.finish_reason in (FinishReason.STEP, FinishReason.STEP_LENGTH)

    @property
    def is_solution(self) -> bool:
        """Whether it came to an end of its own and may be chosen or vote: neither failed nor cut nor unfinished.

        What has reached `max_new_tokens` without announcing an answer is unfinished.
        """
        is_cut = self.finish_reason is FinishReason.LOW_CONFIDENCE or (
            self.finish_reason is FinishReason.LENGTH and self.answer_is_fallback
        )
        return self.is_complete and not self.can_continue and not is_cut

    @property
    def is_viable(self) -> bool:
        """Whether it is a solution, or may become one."""
        return self.is_solution or self.can_continue


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search policy found for one problem.

    Attributes:
        problem_id: the problem.
        method: name of the search policy.
        answer: the chosen answer, None when no candidate has one.
        candidates: all candidates in path order, failed ones included.
        chosen: path of the candidate that stands for the answer, None without one.
        votes: weight by answer class representative, heaviest first; empty for methods that do not vote.
        generated_tokens: every token the target generated for the problem, cancelled ones included.
        kept_tokens: those among them that candidates which came to an end consist of, shared beginnings counted once.
        verify_steps: verify steps that the generated tokens took.
        reward_tokens: tokens a reward model read.
        reward_tokens_whole: tokens that it would have read without what it kept of earlier steps.
        stopped_by: why it ended before the method would have: a stopping rule, or a budget; empty for none.
    """

    problem_id: str
    method: str
    answer: str | None
    candidates: Sequence[Candidate] = ()
    chosen: Path | None = None
    votes: Mapping[str, float] = field(default_factory=dict)
    generated_tokens: int = 0
    kept_tokens: int = 0
    reward_tokens: int = 0
    reward_tokens_whole: int = 0
    stopped_by: str = ""
    verify_steps: int = 0

    @property
    def tau(self) -> float:
        """Committed tokens per verify step over all that was generated; 0 when nothing was decoded."""
        return self.generated_tokens / self.verify_steps if self.verify_steps else 0.0
