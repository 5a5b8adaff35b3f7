"""What failures of Ray mean to us."""

from __future__ import annotations

import pickle
import traceback

import pytest
import ray.exceptions as failures
from ray.core.generated.common_pb2 import ActorDiedErrorContext

from tts_orch.actors._failures import meaning
from tts_orch.errors import (
    ClusterError,
    ConfigError,
    OrchestratorError,
    OutOfMemoryError,
    PlacementError,
    WorkerLostError,
)


class Silent(failures.RayError):
    def __str__(self) -> str:
        return ""


class SilentLoss(Silent, failures.NodeDiedError):
    pass


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (failures.ActorUnavailableError("no answer", None), WorkerLostError, "no answer"),
        (failures.NodeDiedError("node 7 died"), WorkerLostError, "node 7 died"),
        (failures.WorkerCrashedError(), WorkerLostError, "worker lost"),
        (failures.LocalRayletDiedError(), WorkerLostError, "worker lost"),
        (failures.OwnerDiedError("id", None, ""), WorkerLostError, "worker lost"),
        (failures.OutOfMemoryError("used 95 %"), OutOfMemoryError, "want of memory: used 95 %"),
        (failures.PendingCallsLimitExceeded("64 calls"), TimeoutError, "64 calls"),
        (failures.GetTimeoutError("late"), TimeoutError, "late"),
        (failures.TaskCancelledError(), TimeoutError, "TaskCancelledError"),
        (failures.ActorUnschedulableError("the node is gone"), PlacementError, "the node is gone; see `ray status`"),
        (failures.TaskUnschedulableError("nobody"), PlacementError, "nobody"),
        (
            failures.RuntimeEnvSetupError("pip\nfailed"),
            ClusterError,
            "Failed to set up runtime environment. pip failed",
        ),
        (failures.AuthenticationError("no"), ClusterError, "RAY_AUTH_MODE"),
        (failures.OutOfDiskError("full"), ClusterError, "free disk space"),
        (Silent(), ClusterError, "Ray: Silent"),
        (SilentLoss(""), WorkerLostError, "worker lost: SilentLoss"),
    ],
)
def test_each_failure_has_one_meaning_in_one_line(error: failures.RayError, kind: type[Exception], text: str) -> None:
    found = meaning(error)
    assert type(found) is kind
    assert text in str(found)
    assert "\n" not in str(found)


def test_why_an_actor_died_is_said_without_its_particulars() -> None:
    context = ActorDiedErrorContext(
        error_message="The actor is dead because its node has died.", actor_id=bytes(16), class_name="Core", pid=7
    )
    found = meaning(failures.ActorDiedError(context))
    assert str(found) == "worker lost: The actor is dead because its node has died."


def test_what_a_method_raised_is_seen_as_it_was_where_it_is_ours() -> None:
    def as_ray_brings_it(cause: Exception) -> Exception:
        return failures.RayTaskError("load", "trace", cause).as_instanceof_cause()

    assert meaning(as_ray_brings_it(ConfigError("device: none"))).__class__ is ConfigError
    kept = meaning(as_ray_brings_it(KeyError("x")))
    assert isinstance(kept, KeyError)


def test_every_error_survives_the_way_through_ray() -> None:
    def subclasses(kind: type[OrchestratorError]) -> list[type[OrchestratorError]]:
        return [kind, *(sub for child in kind.__subclasses__() for sub in subclasses(child))]

    ours = [kind for kind in subclasses(OrchestratorError) if kind.__module__ == OrchestratorError.__module__]
    assert len(ours) > 10
    for kind in ours:
        again = pickle.loads(pickle.dumps(kind("what, where, what to do")))
        assert type(again) is kind
        assert str(again) == "what, where, what to do"


def test_why_an_actor_could_not_be_made_is_the_end_of_its_traceback() -> None:
    try:
        raise ValueError("no such module")
    except ValueError as error:
        cause = failures.RayTaskError("Core.__init__", traceback.format_exc(), error, proctitle="p", pid=1, ip="h")
    found = meaning(failures.ActorDiedError(cause))
    assert str(found) == "worker lost: ValueError: no such module"
