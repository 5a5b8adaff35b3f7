"""`tts-orch store`: look at the draft statistics in a server, keep them in a file, and drop them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tts_orch.cli.output_file import OutputFile
from tts_orch.config import StoreConfig

__all__ = ["store"]

Command = TypeVar("Command", bound=Callable[..., Any])

_TTL: Final = StoreConfig.model_fields["store_ttl"]


def _with_store(command: Command) -> Command:
    """Add the options that say which store, and which scopes in it."""
    where = click.option("--store", "url", help="URL of the server [default: that of TTS_ORCH_STORE].", default="")
    which = click.option("--scope", "part", default="", help="Only scopes whose name contains this text.")
    return where(which(command))


@click.group()
def store() -> None:
    """Look at the draft statistics in a Redis or Valkey server, keep them in a file, and drop them.

    \b
    A scope is named MODEL/TOKENIZER/GENERATION/GROUP; the group says who shares it: a problem, a task or a run.
    Example: let statistics of yesterday warm a run of today on another server
      tts-orch store export --store redis://yesterday statistics.zip
      tts-orch run ... --store redis://today --warm-start statistics.zip
    """  # noqa: D301


@store.command()
@_with_store
@click.option("--top", "n_top", type=click.IntRange(0), default=0, help="Show so many contexts of each length.")
@click.option("--target", help="Model whose tokenizer turns them into text.")
def stats(url: str, part: str, n_top: int, target: str | None) -> None:
    """Print what is in each scope: contexts, observations, batches that wait to be folded, bytes, and the time left."""
    from tts_orch.cli.store_contents import print_statistics  # loaded late: --help must not wait for it

    print_statistics(url, part, n_top, target)


@store.command("export")
@click.argument("file", type=OutputFile())
@_with_store
def export_file(url: str, part: str, file: Path) -> None:
    """Write the statistics of all scopes to FILE."""
    from tts_orch.cli.store_contents import export_scopes

    export_scopes(url, part, file)


@store.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@_with_store
@click.option("--ttl", "ttl_s", type=click.IntRange(0), default=_TTL.default, show_default=True, help=_TTL.description)
def import_file(url: str, part: str, file: Path, ttl_s: int) -> None:
    """Add the statistics of FILE; scopes that have some of them already are left as they are."""
    from tts_orch.cli.store_contents import import_scopes

    import_scopes(url, part, file, ttl_s)


@store.command()
@_with_store
@click.option("--all", "takes_all", is_flag=True, help="Drop every scope.")
@click.option("--yes", is_flag=True, help="Do it, rather than say what would be dropped.")
def clear(url: str, part: str, takes_all: bool, yes: bool) -> None:
    """Drop scopes. Runs that use them go on with what their workers know."""
    from tts_orch.cli.store_contents import clear_scopes

    if bool(part) == takes_all:
        raise click.UsageError("give either --scope TEXT or --all")
    clear_scopes(url, part, is_sure=yes)
