"""The `tts-orch` command: a file a sub-command, and here the one place where errors become lines and exit codes.

Exit codes: 0 done, 2 the user's mistake, 1 a failure at run time, 130 interrupted with a folder that can be resumed.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Final

import click

from tts_orch.cli.bench import bench
from tts_orch.cli.doctor import doctor
from tts_orch.cli.drafter import drafter
from tts_orch.cli.replay import replay
from tts_orch.cli.report import report
from tts_orch.cli.reward import reward
from tts_orch.cli.run import run
from tts_orch.cli.store import store
from tts_orch.cli.tree import tree
from tts_orch.cli.vocabulary import vocabulary
from tts_orch.errors import OrchestratorError, RunError, UserError

__all__ = ["execute", "main"]

logger = logging.getLogger(__name__)

_INTERRUPTED: Final = 130


@click.group(invoke_without_command=True)
@click.version_option(package_name="tts-orch")
@click.option("--debug", is_flag=True, help="Write what the package logs, tracebacks included, to stderr.")
@click.pass_context
def _command(context: click.Context, debug: bool) -> None:
    """Test-time scaling over Ray with lossless speculative decoding."""
    if debug:
        logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s: %(message)s")
        logging.getLogger("tts_orch").setLevel(logging.DEBUG)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


_command.add_command(bench)
_command.add_command(doctor)
_command.add_command(drafter)
_command.add_command(run)
_command.add_command(replay)
_command.add_command(report)
_command.add_command(reward)
_command.add_command(store)
_command.add_command(tree)
_command.add_command(vocabulary)


def main() -> None:
    """Run the command with the arguments of the process."""
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code; whatever went wrong, our own faults too, is one line on stderr."""
    try:
        with _command.make_context("tts-orch", list(arguments)) as context:
            _command.invoke(context)
    except click.exceptions.Exit as end:  # --help and --version
        return end.exit_code
    except click.ClickException as error:
        return _fail(error.format_message(), UserError.exit_code)
    except OrchestratorError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt as interrupt:
        return _fail(str(interrupt) or "interrupted", _INTERRUPTED)
    except _ray_errors() as error:
        *_traceback, cause = str(error).strip().splitlines() or [type(error).__name__]
        return _fail(f"Ray failed: {cause}", RunError.exit_code)
    except Exception as error:  # a fault of ours
        logger.debug("internal error", exc_info=True)
        where = "`tts-orch --debug ...` shows where"
        return _fail(f"internal error: {type(error).__name__}: {error}; {where}", RunError.exit_code)
    return 0


def _ray_errors() -> tuple[type[Exception], ...]:
    """Return what Ray may raise, without loading it."""
    ray = sys.modules.get("ray")
    return (ray.exceptions.RayError,) if ray else ()


def _fail(message: str, exit_code: int) -> int:
    click.echo(f"tts-orch: {' '.join(message.splitlines())}", err=True)
    return exit_code
