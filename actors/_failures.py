"""What each failure of Ray means, and the rules by which nothing that is streamed is lost or doubled.

| Ray says                                        | callers see           | and do                                            |
|-------------------------------------------------|-----------------------|---------------------------------------------------|
| actor, node, worker, object or raylet is gone   | `WorkerLostError`     | start another; go on there from what was received |
| killed for want of memory                       | `OutOfMemoryError`    | the same, with a smaller batch                    |
| too many calls pend, a call timed out, cancelled| `TimeoutError`        | ask again, after a ping                           |
| nobody can ever host it                         | `PlacementError`      | wait for nodes, or give up                        |
| a node could not be prepared, or refuses us     | `ClusterError`        | report: the user can mend it                      |
| the method raised                               | what it raised        | report                                            |

Rules for streams, since a restarted actor has lost its state, a replayed generator drops as many items as were delivered
whatever is in them, and a generator of a lost node never ends:

1. Retries are ours: actors are created with `max_restarts=0, max_task_retries=0`.
2. Tokens leave by polls that name what they have seen (`TargetVerifierCore.exchange`), so that a poll can be asked again.
3. Every chunk has its absolute position; the controller takes what is due and drops what it has (`LiveCandidate.receive`).
4. What a lost verifier held is asked for elsewhere from the tokens received: same seed, same fingerprint, an id of its own.
5. No wait is without a deadline, the wait for a place least of all: what fits nowhere pends without a word.
6. What is cancelled is cancelled by an order to the verifier, which frees its memory; dropping a reply stops nobody.
"""

from __future__ import annotations

from typing import Final

import ray.exceptions as failures

from tts_orch.errors import (
    ClusterError,
    OrchestratorError,
    OutOfMemoryError,
    PlacementError,
    WorkerLostError,
    first_line,
)

__all__ = ["meaning"]

_LOST: Final = (
    failures.RayActorError,  # died or unavailable
    failures.NodeDiedError,
    failures.WorkerCrashedError,
    failures.ObjectLostError,
    failures.LocalRayletDiedError,
)
_ASK_AGAIN: Final = (failures.PendingCallsLimitExceeded, failures.GetTimeoutError, failures.TaskCancelledError)
_NO_PLACE: Final = (failures.ActorUnschedulableError, failures.TaskUnschedulableError)
_NO_ROOM: Final = (failures.ObjectStoreFullError, failures.OutOfDiskError)


def meaning(error: failures.RayError) -> Exception:
    """Return the exception that callers should see in place of one of Ray's."""
    if isinstance(error, failures.RayTaskError):
        return error.cause if isinstance(error.cause, OrchestratorError) else error
    if isinstance(error, failures.OutOfMemoryError):
        return OutOfMemoryError(f"worker lost for want of memory: {first_line(error)}")
    if isinstance(error, _LOST):
        return WorkerLostError(f"worker lost: {_reason(error)}")
    if isinstance(error, _ASK_AGAIN):
        return TimeoutError(first_line(error))
    if isinstance(error, _NO_PLACE):
        return PlacementError(f"{first_line(error)}; see `ray status`")
    return ClusterError(_advice(error))


def _reason(error: failures.RayError) -> str:
    """Return why an actor died: Ray says so after the actor's particulars, which are indented, or in the end of a traceback."""
    first, *others = (str(error).strip() or type(error).__name__).splitlines()
    if others and "creation task" in first:
        return others[-1].strip()
    return next((line.strip() for line in others if line.strip() and not line.startswith("\t")), first)


def _advice(error: failures.RayError) -> str:
    if isinstance(error, failures.AuthenticationError):
        return "Ray refused the connection; set RAY_AUTH_MODE to the cluster's mode and give its token"
    if isinstance(error, failures.RuntimeEnvSetupError):
        return f"a node could not prepare a worker: {' '.join(str(error).split())}; see `ray logs`, and mend the node"
    if isinstance(error, _NO_ROOM):
        return f"a node has no room for what Ray sends: {first_line(error)}; free disk space there"
    return f"Ray: {first_line(error)}"
