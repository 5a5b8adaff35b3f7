"""Every exception of the package.

    OrchestratorError
    ├── UserError                 the user's mistake: one line, exit code 2
    │   ├── ConfigError           an impossible or unknown setting
    │   ├── ProblemError          a bad line in a problem file, a prompt that does not fit
    │   ├── TargetError           a model that cannot be found, read or served
    │   └── RunFolderError        a run folder that is unwritable, locked or of another identity
    └── RunError                  a failure at run time: exit code 1
        ├── ClusterError          Ray cannot be reached, or refuses
        │   └── PlacementError    no node has room for what was asked for
        ├── WorkerLostError       a worker died or stopped answering
        │   └── OutOfMemoryError  it was killed because its node ran out of memory
        └── StoreError            the statistics store failed

Each takes exactly one positional message: Ray pickles exceptions that way and would otherwise replace them. `first_line`
puts any exception into such a message.
"""

from __future__ import annotations

__all__ = [
    "ClusterError",
    "ConfigError",
    "OrchestratorError",
    "OutOfMemoryError",
    "PlacementError",
    "ProblemError",
    "RunError",
    "RunFolderError",
    "StoreError",
    "TargetError",
    "UserError",
    "WorkerLostError",
    "first_line",
]


class OrchestratorError(Exception):
    """Base of all errors; `exit_code` is what the command line returns for it."""

    exit_code = 1


class UserError(OrchestratorError):
    """A mistake the user can mend; the message says what, where and what to do."""

    exit_code = 2


class ConfigError(UserError):
    """An impossible or unknown setting."""


class ProblemError(UserError):
    """A problem that cannot be read or does not fit the target model."""


class TargetError(UserError):
    """A target model that cannot be found, read or served."""


class RunFolderError(UserError):
    """A run folder that is unwritable, in use, or belongs to another identity."""


class RunError(OrchestratorError):
    """A failure at run time."""


class ClusterError(RunError):
    """Ray cannot be reached, or refuses."""


class PlacementError(ClusterError):
    """No node has room for what was asked for."""


class WorkerLostError(RunError):
    """A worker died or stopped answering."""


class OutOfMemoryError(WorkerLostError):
    """A worker was killed because its node ran out of memory."""


class StoreError(RunError):
    """The statistics store failed."""


def first_line(error: BaseException) -> str:
    """Return the first line of what an exception says, its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
