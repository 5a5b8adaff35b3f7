"""What `tts-orch store` does with a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tts_orch.cli.context_table import Texts, context_table, texts_of
from tts_orch.config import StoreConfig
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.context_delta import ContextDelta, coalesce
from tts_orch.store.folding import read_buckets
from tts_orch.store.redis_client import RedisClient
from tts_orch.store.redis_log import RedisLog
from tts_orch.store.redis_scopes import ScopeSize, all_scopes, drop, measure
from tts_orch.store.statistics_file import StatisticsFile, export_statistics, import_scope
from tts_orch.store_address import StoreAddress

__all__ = ["clear_scopes", "export_scopes", "import_scopes", "print_statistics"]

_TIMEOUT_S: Final = 10.0
_WIDTH: Final = 1000  # names of scopes stay in one piece, whatever the terminal makes of long lines
_COLUMNS: Final = ("contexts", "observations", "batches", "MiB", "bytes/context", "hours left")


def print_statistics(url: str, part: str, n_top: int, target: str | None) -> None:
    """Print a table of scopes, and the most observed contexts of each."""
    texts = texts_of(target) if target else None
    with _opened(url) as client:
        table = Table(box=None, pad_edge=False)
        for column in _COLUMNS:
            table.add_column(column, justify="right")
        table.add_column("scope", overflow="fold")
        tops = [_add_scope(table, client, scope, n_top, texts) for scope in _chosen(client, part)]
        console = Console(highlight=False, width=_WIDTH)
        console.print(table, f"\n{len(tops)} scopes in {client.address}", sep="", soft_wrap=True)
        for top in tops if n_top else ():
            console.print("", top, soft_wrap=True)


def _add_scope(table: Table, client: RedisClient, scope: str, n_top: int, texts: Texts | None) -> Table:
    contexts, size = _contents(client, scope), measure(client, scope)
    table.add_row(*_row(contexts, size), escape(scope))
    return context_table(scope, contexts, n_top, texts)


def _contents(client: RedisClient, scope: str) -> ContextDelta:
    buckets, _sequences = read_buckets(RedisLog(client, ttl_s=0), scope)
    return coalesce(list(buckets))


def _row(contexts: ContextDelta, size: ScopeSize) -> tuple[str, ...]:
    return (
        f"{contexts.n_contexts:,}",
        f"{contexts.count.sum():,}",
        f"{size.n_batches:,}",
        f"{size.size_bytes / 2**20:.1f}",
        f"{size.size_bytes / max(contexts.n_contexts, 1):.0f}",
        "" if size.ttl_s is None else f"{size.ttl_s / 3600:.1f}",
    )


def export_scopes(url: str, part: str, file: Path) -> None:
    """Write scopes to a file."""
    with _opened(url) as client:
        records = export_statistics(RedisLog(client, ttl_s=0), _chosen(client, part), file)
    n_contexts = sum(record.n_contexts for record in records)
    print(f"{file}: {n_contexts:,} contexts of {len(records)} scopes, {file.stat().st_size / 2**20:.1f} MiB")


def import_scopes(url: str, part: str, path: Path, ttl_s: int) -> None:
    """Add the scopes of a file."""
    with closing(StatisticsFile(path)) as file, _opened(url) as client:
        records = [record for record in file.records if part in record.scope]
        log = RedisLog(client, ttl_s)
        added = [record for record in records if import_scope(file, record, log)]
    n_known = len(records) - len(added)
    known = f"; {n_known} scopes have some of these statistics already and stay as they are" if n_known else ""
    print(f"{sum(record.n_contexts for record in added):,} contexts of {len(added)} scopes added{known}")


def clear_scopes(url: str, part: str, *, is_sure: bool) -> None:
    """Drop scopes, or say which would be dropped."""
    with _opened(url) as client:
        scopes = list(_chosen(client, part))
        for scope in scopes:
            print(scope)
            if is_sure:
                drop(client, scope)
    print(f"{len(scopes)} scopes dropped" if is_sure else f"{len(scopes)} scopes would be dropped; do it with --yes")


@contextmanager
def _opened(url: str) -> Iterator[RedisClient]:
    """Connect to a server; raises `ConfigError` for stores that end with their run, and `StoreError`."""
    config = StoreConfig(store=url)
    if not config.outlives_run:
        raise ConfigError("store: memory:// ends with its run; give --store redis://host, or set TTS_ORCH_STORE")
    client = RedisClient(StoreAddress.parse(config.store), "cli", timeout_s=_TIMEOUT_S)
    try:
        client.check()
        yield client
    finally:
        client.close()


def _chosen(client: RedisClient, part: str) -> list[str]:
    return [scope for scope in all_scopes(client) if part in scope]
