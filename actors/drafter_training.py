"""Trains a draft head with Ray Train, in one process or many: the same result, up to rounding, whoever shares the steps."""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

import torch
import torch.distributed as distributed
from torch import Tensor

from tts_orch.actors._remote import SHORT_SPIN
from tts_orch.actors.cluster import Shares
from tts_orch.atomic_file import write_atomically
from tts_orch.errors import ConfigError, OrchestratorError, RunError, WorkerLostError, first_line
from tts_orch.training.drafters.member import MixtureParts, OnProgress, train_member
from tts_orch.training.drafters.settings import DrafterTrainingConfig

__all__ = ["train_on_cluster"]

logger = logging.getLogger(__name__)

_RESTARTS: Final = 2
_WAIT_S: Final = 6 * 3600.0  # of a member for the others, that may have more features to compute
_POLL_S: Final = 0.5


def train_on_cluster(
    config: DrafterTrainingConfig, parts: MixtureParts, shares: Shares, on_progress: OnProgress
) -> None:
    """Train a head in processes of the cluster, which is connected already; its folder is written when this returns.

    A process that dies is replaced, and all go on from the last checkpoint.

    Args:
        config: all settings; paths absolute, of folders that all nodes see.
        parts: the texts.
        shares: how many processes there are, and what each asks Ray for.
        on_progress: told how far it is.

    Raises:
        ConfigError: Ray Train is not installed.
        WorkerLostError: processes died again and again; the same call goes on.
        RunError: the training failed; what is not of this package is told with its type.
        OrchestratorError: otherwise what a process raised.
    """
    train = _ray_train()
    workplace = config.out / "cache" / "ray"
    progress = config.out / "cache" / "progress.json"
    progress.unlink(missing_ok=True)  # of an earlier command
    resources = {name.removeprefix("num_").removesuffix("s").upper(): n for name, n in shares.resources.items()}

    def train_once() -> None:
        trainer = train.torch.TorchTrainer(
            _train_member,
            train_loop_config={"config": config.model_copy(update={"engine": shares.config}), "parts": parts},
            torch_config=train.torch.TorchConfig(timeout_s=int(_WAIT_S)),
            scaling_config=train.ScalingConfig(
                num_workers=config.workers, use_gpu="GPU" in resources, resources_per_worker=resources
            ),
            run_config=train.RunConfig(
                name=uuid.uuid4().hex,
                storage_path=str(workplace),
                worker_runtime_env={"env_vars": dict(SHORT_SPIN)},
            ),
        )
        try:
            trainer.fit()
        except train.TrainingFailedError as error:
            raise _meaning(error) from None

    try:
        _follow(_begun(partial(_restarted, train_once)), progress, on_progress)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


def _ray_train() -> Any:
    try:
        import ray.train.torch
    except ImportError:
        raise ConfigError("training needs Ray Train; install it with `pip install 'tts-orch[train]'`") from None
    return ray.train


def _restarted(train_once: Callable[[], None], n_restarts: int = _RESTARTS) -> None:
    """Train, and again where a member was lost; Ray's own restarts would repeat what fails again, too."""
    try:
        train_once()
    except WorkerLostError as error:
        if not n_restarts:
            raise
        logger.warning("%s; it goes on from the last checkpoint", first_line(error))
        _restarted(train_once, n_restarts - 1)


def _begun(run: Callable[[], object]) -> Future[None]:
    """Run something on a thread that nobody waits for: who is interrupted leaves, and what is left ends with the cluster.

    Ray Train on the main thread would make an interrupt a success.
    """
    done: Future[None] = Future()

    def settle() -> None:
        try:
            run()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    Thread(target=settle, daemon=True).start()
    return done


def _follow(done: Future[Any], progress: Path, on_progress: OnProgress) -> None:
    """Pass on what member 0 says until the training is over."""
    told = b""
    while not done.done():
        wait([done], _POLL_S)
        if progress.exists() and (content := progress.read_bytes()) != told:
            told = content
            on_progress(*json.loads(told))
    done.result()


def _train_member(values: dict[str, Any]) -> None:
    config: DrafterTrainingConfig = values["config"]
    team = _ProcessGroup()

    def on_progress(*told: object) -> None:
        if team.rank == 0:
            write_atomically(config.out / "cache" / "progress.json", json.dumps(told))

    train_member(config, values["parts"], team, on_progress)


class _ProcessGroup:
    """The processes that Ray Train has brought together."""

    def __init__(self) -> None:
        self.rank = distributed.get_rank() if distributed.is_initialized() else 0
        self.size = distributed.get_world_size() if distributed.is_initialized() else 1

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all members."""
        if self.size == 1:
            return
        joined = torch.cat([tensor.flatten() for tensor in tensors])
        with _losses_noticed():
            distributed.all_reduce(joined)
        for tensor, part in zip(tensors, joined.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def wait(self) -> None:
        """Wait until all members have come here."""
        if self.size > 1:
            with _losses_noticed():
                distributed.barrier()


@contextmanager
def _losses_noticed() -> Iterator[None]:
    """Say that another member was lost: whoever talks to it knows before Ray does."""
    try:
        yield
    except RuntimeError as error:
        raise WorkerLostError(f"another process of the training does not answer ({first_line(error)})") from None


def _meaning(error: Exception) -> OrchestratorError:
    """Return why a training failed: what a member raised, before what that did to the others."""
    failures = [*getattr(error, "worker_failures", {}).values()] or [getattr(error, "controller_failure", error)]
    meanings = [_meaning_of_one(failure) for failure in failures]
    return next((one for one in meanings if not isinstance(one, WorkerLostError)), meanings[0])


def _meaning_of_one(failure: Exception) -> OrchestratorError:
    from ray.train.v2._internal import exceptions as losses  # Ray has no public names for them

    if isinstance(failure, OrchestratorError):
        return failure
    if isinstance(failure, (losses.WorkerHealthCheckFailedError, losses.WorkerHealthCheckTimeoutError)):
        return WorkerLostError(f"worker lost: {first_line(getattr(failure, 'health_check_failure', failure))}")
    if isinstance(failure, losses.WorkerGroupStartupFailedError):
        return WorkerLostError(f"worker lost as it began: {first_line(failure)}")
    return RunError(
        f"the training failed ({type(failure).__name__}: {first_line(failure)}); see `ray logs`, and once the cause is mended "
        "the same command goes on from the last report"
    )
