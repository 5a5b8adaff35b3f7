"""What trainings sample from the target: on the cluster, and only what an earlier command has not sampled."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tts_orch.cli.signals import heed_signals
from tts_orch.journal import Journal
from tts_orch.records import Problem, SearchResult
from tts_orch.training.base_model import BaseFiles
from tts_orch.training.drafters.settings import DrafterTrainingConfig
from tts_orch.training.rollouts import Generate, Policy
from tts_orch.training.settings import RewardTrainingConfig

__all__ = ["sampled_by", "sampling"]


def sampled_by(config: RewardTrainingConfig | DrafterTrainingConfig, base: BaseFiles) -> dict[str, Any]:
    """Return what fixes the samples of any prompt, by name: part of the name of whatever is kept of them."""
    return {
        "target": base.weights_id,
        "dtype": base.dtype_name,
        "verification": config.engine.verification,
        "law": config.law.model_dump(),
        "template": config.template,
        "seed": config.seed,
    }


@contextmanager
def sampling(config: RewardTrainingConfig | DrafterTrainingConfig, folder: Path) -> Iterator[Generate]:
    """Have the target at hand.

    Args:
        config: of the training.
        folder: of the journal; it belongs to all that fixes the samples.
    """
    from tts_orch.orchestrator import Orchestrator  # loads Ray

    with ExitStack() as opened:
        journal = Journal(folder)
        opened.callback(journal.close)
        orchestrator = opened.enter_context(
            Orchestrator(engine=config.engine, workers=config.workers, address=config.address, template=config.template)
        )
        heed_signals()  # once more: Ray has set a handler of its own

        def generate(problems: Sequence[Problem], policy: Policy) -> Generator[SearchResult, None, None]:
            yield from orchestrator.search_many(problems, policy, seed=config.seed, law=config.law, journal=journal)

        yield generate
