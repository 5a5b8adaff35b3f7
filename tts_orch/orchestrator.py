"""The Python API: an orchestrator loads a target model on a cluster and searches for answers with it."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import ExitStack, closing
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

import numpy as np

from tts_orch.actors._cluster_nodes import Surveyor
from tts_orch.actors._event_loop import EventLoopThread
from tts_orch.actors._open_scopes import OpenScopes
from tts_orch.actors._ray_verifier import RayVerifier
from tts_orch.actors.cluster import Cluster
from tts_orch.actors.engine_loading import EngineFactory, load_engine
from tts_orch.actors.live_drafters import LiveDrafters
from tts_orch.actors.model_shipping import ship_models
from tts_orch.actors.reward_client import RewardClient, may_use_gpu, start_reward
from tts_orch.actors.reward_model import RewardDescription
from tts_orch.actors.router import RouterClient
from tts_orch.actors.search_controller import SearchController
from tts_orch.actors.search_plan import (
    BoundPolicy,
    CandidateJournal,
    Rewards,
    SearchPlan,
    SearchServices,
    VolatileJournal,
)
from tts_orch.actors.search_runner import search, search_many
from tts_orch.actors.shared_statistics import share_statistics, warm_up
from tts_orch.actors.target_verifier import VerifierDescription
from tts_orch.budget_config import NO_LIMITS, BudgetConfig
from tts_orch.config import EngineConfig, LawConfig, MajorityVote, MethodConfig, check_warm_start
from tts_orch.errors import ConfigError
from tts_orch.placement_config import ANYWHERE, PlacementConfig
from tts_orch.policies.drafting.scopes import ScopeNames
from tts_orch.policies.search import find_policy
from tts_orch.records import Candidate, IntArray, Problem, SearchResult
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.base import ScoreFunction
from tts_orch.rewards.own_scores import OWN_SCORES, OwnScores
from tts_orch.settings import Settings
from tts_orch.store.statistics_file import StatisticsFile
from tts_orch.store_config import StoreConfig
from tts_orch.task_config import DEFAULT_TASK, TaskConfig
from tts_orch.tasks.answers import classes_for, extract_for
from tts_orch.tasks.prompts import render
from tts_orch.tasks.thinking import text_decoder, thinking_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Method", "Orchestrator", "SearchOptions"]

Method: TypeAlias = MethodConfig | BoundPolicy
"""Settings of a built-in search method, or an async function `(problem, context) -> SearchResult`."""

Template: TypeAlias = Literal["auto", "raw", "chat"]

_DEFAULT_METHOD: Final = MajorityVote()
_DEFAULT_LAW: Final = LawConfig()
_SEARCHES: Final = 1 << 32  # more than one orchestrator will ever make; numbers of attempts stay apart by it


class SearchOptions(TypedDict, total=False):
    """What a search may be told beside its method.

    Attributes:
        seed: run seed; with the problem's id it fixes every token under keyed verification.
        law: sampling law.
        journal: where finished candidates are looked up and written down.
        use_drafts: False decodes plainly, to compare.
        attempt: how often this was begun before, in other processes too; rejection verification draws anew for each attempt.
        budget: what may be spent; what was found until then is the result.
    """

    seed: int | None
    law: LawConfig
    journal: CandidateJournal | None
    use_drafts: bool
    attempt: int
    budget: BudgetConfig


class Orchestrator:
    """Loads a target model on a cluster, once, and searches with it; ends with `close` or as a context manager.

    Works in plain code, in notebooks and beside a running event loop; the methods with an `a` in front are for callers
    that are coroutines themselves. Callbacks run in a thread of the orchestrator and must be quick.

    Args:
        target: the target model, where `engine` is not given.
        engine: all settings of a decoder.
        workers: target verifiers that share the work; see `RunConfig.workers`.
        placement: the place that each of them gets in the cluster.
        store: where draft statistics are shared: a URL, or all settings of it; `memory://` is an actor of the cluster.
        address: Ray cluster to connect to; else RAY_ADDRESS, a connection made before, or a local cluster.
        seed: run seed of searches that give none.
        template: how a prompt becomes tokens, see `RunConfig.template`.
        task: what kind of answer problems have, and how they are asked for it.
        reward: settings of the reward model, or a function from a problem and the steps of a solution to a probability for
            each step; None without one.
        on_candidate: called with every candidate that ended.
        on_tokens: called with the number of tokens whenever some arrive.
        show_worker_logs: print what workers log.
        make_engine: loads a decoder in a worker.
        settings: fields of `EngineConfig`, where `engine` is not given.

    Attributes:
        tokenizer: the target's.
        drafters: the trained drafters, which may change while searches go on.

    Raises:
        ConfigError: impossible settings.
        TargetError: the target model or the reward model cannot be found, read or served.
        ClusterError: Ray cannot be reached, or finds no place for the workers.
        StoreError: the store cannot be used, and is not optional.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        engine: EngineConfig | None = None,
        workers: int | None = None,
        placement: PlacementConfig = ANYWHERE,
        store: str | StoreConfig = "",
        address: str | None = None,
        seed: int = 0,
        template: Template = "auto",
        task: TaskConfig = DEFAULT_TASK,
        reward: RewardConfig | ScoreFunction | None = None,
        on_candidate: Callable[[Candidate], None] = lambda candidate: None,
        on_tokens: Callable[[int], None] = lambda n_tokens: None,
        show_worker_logs: bool = False,
        make_engine: EngineFactory = load_engine,
        **settings: Any,
    ) -> None:
        config = _engine_config(target, engine, settings)
        store = store if isinstance(store, StoreConfig) else StoreConfig(store=store)
        _check(workers)
        self._seed = seed
        self._occurrences: Counter[str] = Counter()
        self._numbers = itertools.count()
        with ExitStack() as opened:
            warm_start = _statistics_file(store, config, opened)
            cluster = Cluster(address, show_worker_logs=show_worker_logs)
            opened.callback(cluster.close)
            self._loop = EventLoopThread()
            opened.callback(self._loop.close)
            self.drafters = LiveDrafters(config, self._loop, workers or 1, placement, opened)
            make_engine = self.drafters.bound(make_engine)
            sent = ship_models(
                config, make_engine, opened, ships_target=placement.ship_target, ships_drafters=cluster.can_grow
            )
            make_engine = self._loop.run(sent)
            shares = cluster.share_out(config, workers, placement)
            is_shared = config.statistics_scope != "request" and (shares.at_most != 1 or store.reaches_beyond_run)
            open_log = self._loop.run(share_statistics(store, opened)) if is_shared else None
            start_verifier = self.drafters.kept_up_to_date(
                functools.partial(RayVerifier.start, shares, placement.place_within_s, make_engine, open_log)
            )
            surveyor = Surveyor(shares.resources, shares.n_places_on_gpu if may_use_gpu(reward) else 0)
            self._controller = SearchController(start_verifier, workers, on_tokens, surveyor.survey)
            opened.callback(lambda: self._loop.run(self._controller.close()))
            self._loop.run(self._controller.start())
            self.drafters.follow(self._controller.change_drafter)
            self.tokenizer = self._controller.descriptions[0].tokenizer
            if warm_start is not None and open_log is not None:
                names = _names(self._controller, config)
                self._loop.run(warm_up(warm_start, open_log, names, is_optional=store.store_optional))
            self._rewards = self._start_reward(reward, config.target, opened)
            surveyor.n_kept = 0  # the reward model has its place
            score = self._rewards.score if self._rewards else None
            self._services = _services(
                self._controller, config, template, task, on_candidate, score, _own_scores(reward)
            )
            opened.callback(self.forget)
            if config.chosen_routing == "problem":
                self._start_router(opened)
            self._opened = opened.pop_all()

    @property
    def workers(self) -> list[VerifierDescription]:
        """The verifiers at work, with their fingerprints."""
        return self._controller.descriptions

    @property
    def fingerprints(self) -> dict[str, str]:
        """Fingerprint of every verifier that was ever at work, by worker."""
        return self._controller.fingerprints

    @property
    def reward(self) -> RewardDescription | None:
        """What the reward model is, None without one; the target's own word has none."""
        return self._rewards.description if self._rewards else None

    def search(
        self, problem: str | Problem, method: Method = _DEFAULT_METHOD, **options: Unpack[SearchOptions]
    ) -> SearchResult:
        """Search one problem.

        Args:
            problem: a prompt, or a problem with an id. A prompt searched again is another problem, with other seeds.
            method: how to search.
            options: see `SearchOptions`.

        Raises:
            ProblemError: the problem cannot be rendered.
            ClusterError: no verifier is left.
        """
        return self._loop.run(search(self._as_problem(problem), 0, self._plan(method, **options), self._services))

    async def asearch(
        self, problem: str | Problem, method: Method = _DEFAULT_METHOD, **options: Unpack[SearchOptions]
    ) -> SearchResult:
        """Search one problem, from a coroutine; see `search`."""
        plan = self._plan(method, **options)
        return await self._loop.arun(search(self._as_problem(problem), 0, plan, self._services))

    def search_many(
        self, problems: Iterable[str | Problem], method: Method = _DEFAULT_METHOD, **options: Unpack[SearchOptions]
    ) -> Generator[SearchResult, None, None]:
        """Search problems, yielding results as they finish; closing the generator cancels the rest. See `search`."""
        stream = self._stream(problems, method, options)
        try:
            while (result := self._loop.run(_next(stream))) is not None:
                yield result
        finally:
            self._loop.run(_close(stream))

    async def asearch_many(
        self, problems: Iterable[str | Problem], method: Method = _DEFAULT_METHOD, **options: Unpack[SearchOptions]
    ) -> AsyncGenerator[SearchResult, None]:
        """Search problems, from a coroutine; see `search_many`."""
        stream = self._stream(problems, method, options)
        try:
            while (result := await self._loop.arun(_next(stream))) is not None:
                yield result
        finally:
            await self._loop.arun(_close(stream))

    def statistics(self) -> dict[str, float]:
        """Return the decoders' counters, summed over the workers, and those of the reward model."""
        of_rewards = self._rewards.statistics() if self._rewards else {}
        return {**self._loop.run(self._controller.statistics()), **of_rewards}

    def forget(self) -> None:
        """Drop the draft statistics that no search uses just now: later searches draft from what they see themselves."""
        self._loop.run(self._services.scopes.forget())

    def close(self) -> None:
        """Cancel what is open, stop the workers, and end the local cluster if one was started."""
        self._opened.close()

    def __enter__(self) -> Orchestrator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start_reward(
        self, reward: RewardConfig | ScoreFunction | None, target: str, opened: ExitStack
    ) -> RewardClient | None:
        if reward is None or _own_scores(reward):
            return None
        client = self._loop.run(start_reward(reward, target=target))
        opened.callback(lambda: self._loop.run(client.close()))
        return client

    def _start_router(self, opened: ExitStack) -> None:
        """Have drafters assigned to problems from now on."""
        router = RouterClient(self._controller.routing_reports, lambda: self.drafters.names)
        self._loop.run(router.start())
        opened.callback(lambda: self._loop.run(router.close()))
        self._services = replace(self._services, assign=router.assign)

    def _stream(
        self, problems: Iterable[str | Problem], method: Method, options: SearchOptions
    ) -> AsyncGenerator[SearchResult, None]:
        return search_many(map(self._as_problem, problems), self._plan(method, **options), self._services)

    def _plan(
        self,
        method: Method,
        seed: int | None = None,
        law: LawConfig = _DEFAULT_LAW,
        journal: CandidateJournal | None = None,
        use_drafts: bool = True,
        attempt: int = 0,
        budget: BudgetConfig = NO_LIMITS,
    ) -> SearchPlan:
        policy, n = _bind(method)
        run_seed = self._seed if seed is None else seed
        attempt = attempt * _SEARCHES + next(self._numbers)  # a problem searched again is another attempt at it
        return SearchPlan(
            policy, n, law.sampling_params(), run_seed, journal or VolatileJournal(), use_drafts, attempt, budget
        )

    def _as_problem(self, problem: str | Problem) -> Problem:
        """Give an ad-hoc prompt an id: its hash and how often it was searched before."""
        if isinstance(problem, Problem):
            return problem
        digest = hashlib.blake2b(problem.encode(), digest_size=8).hexdigest()
        occurrence = self._occurrences[digest]
        self._occurrences[digest] += 1
        return Problem(id=f"{digest}-{occurrence}", prompt=problem)


def _bind(method: Method) -> tuple[BoundPolicy, int]:
    if not isinstance(method, Settings):
        return method, 1
    policy = find_policy(method)
    return lambda problem, context: policy(problem, context, method), method.n_at_once


def _statistics_file(store: StoreConfig, config: EngineConfig, opened: ExitStack) -> StatisticsFile | None:
    """Open the file that a run begins with; what is wrong with it is said before anything is loaded."""
    check_warm_start(store, config)
    return opened.enter_context(closing(StatisticsFile(store.warm_start))) if store.warm_start is not None else None


def _names(controller: SearchController, config: EngineConfig) -> ScopeNames:
    verifier = controller.descriptions[0]
    return ScopeNames(config, verifier.weights_id, verifier.tokenizer_id)


def _services(
    controller: SearchController,
    config: EngineConfig,
    template: Template,
    task: TaskConfig,
    on_candidate: Callable[[Candidate], None],
    rewards: Rewards | None,
    own_scores: OwnScores | None,
) -> SearchServices:
    verifier = controller.descriptions[0]

    def encode(text: str) -> IntArray:
        return np.array(verifier.tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)

    thinking = thinking_of(verifier.tokenizer, task.end_of_thinking, template)
    return SearchServices(
        controller=controller,
        scopes=OpenScopes(_names(controller, config), controller.close_scope),
        tokenise=functools.partial(render, tokenizer=verifier.tokenizer, template=template, task=task),
        encode=encode,
        decode=text_decoder(verifier.tokenizer, thinking),
        extract=functools.partial(extract_for, task=task.task, thinking=thinking),
        answer_classes=functools.partial(classes_for, task=task.task),
        on_candidate=on_candidate,
        rewards=rewards,
        own_scores=own_scores,
    )


def _own_scores(reward: RewardConfig | ScoreFunction | None) -> OwnScores | None:
    return OWN_SCORES.get(reward.kind) if isinstance(reward, RewardConfig) else None


def _engine_config(target: str | None, engine: EngineConfig | None, settings: dict[str, Any]) -> EngineConfig:
    if engine is None:
        return EngineConfig(**settings if target is None else {**settings, "target": target})
    if target is not None or settings:
        raise ConfigError(
            f"engine: given beside {', '.join([*(['target'] if target else []), *settings])}; give one of both"
        )
    return engine


def _check(workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise ConfigError(f"workers: {workers} decode nothing; give 1 or more")


async def _next(stream: AsyncGenerator[SearchResult, None]) -> SearchResult | None:
    return await anext(stream, None)


async def _close(stream: AsyncGenerator[SearchResult, None]) -> None:
    await stream.aclose()
