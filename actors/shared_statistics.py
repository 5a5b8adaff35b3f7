"""Where the workers of an orchestrator share draft statistics: in an actor of the cluster, or in a server beside it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from tts_orch.actors.statistics_store import StatisticsClient, StatisticsStore
from tts_orch.actors.target_verifier import LogOpener
from tts_orch.errors import ConfigError, StoreError
from tts_orch.policies.drafting.scopes import ScopeNames
from tts_orch.store.statistics_file import ScopeRecord, StatisticsFile, import_scope
from tts_orch.store_address import MEMORY_STORE, StoreAddress
from tts_orch.store_config import StoreConfig

__all__ = ["share_statistics", "warm_up"]

logger = logging.getLogger(__name__)

_ACTOR_WITHIN_S: Final = 60.0


async def share_statistics(config: StoreConfig, opened: ExitStack) -> LogOpener:
    """Make the store ready.

    Args:
        config: which one.
        opened: gets what ends it.

    Returns:
        What a worker opens its log with.

    Raises:
        StoreError: the server cannot be used, and is not optional.
        ClusterError: there is no place for the actor.
    """
    if config.store == MEMORY_STORE:
        actor = await StatisticsStore.create(_ACTOR_WITHIN_S, {"num_cpus": 0})
        opened.callback(actor.kill)
        return functools.partial(StatisticsClient, actor)
    return await asyncio.to_thread(_use_server, config, opened)


async def warm_up(file: StatisticsFile, open_log: LogOpener, names: ScopeNames, *, is_optional: bool) -> None:
    """Add the statistics of a file to a store that is ready, unless it has them; those of other models are left out.

    Raises:
        ConfigError: the file is damaged, or has nothing of this model.
        StoreError: the store failed, and is not optional.
    """
    records = [record for record in file.records if names.owns(record.scope)]
    if not records:
        raise ConfigError(
            f"warm_start: {file.path} has no statistics of this target; give another file, or leave it out"
        )
    try:
        await asyncio.to_thread(_import_all, file, records, open_log)
    except StoreError as error:
        if not is_optional:
            raise
        logger.warning("%s; going on without all of %s", error, file.path)


def _import_all(file: StatisticsFile, records: Sequence[ScopeRecord], open_log: LogOpener) -> None:
    log = open_log()
    for record in records:
        import_scope(file, record, log)


def _use_server(config: StoreConfig, opened: ExitStack) -> LogOpener:
    from tts_orch.store.compactor import Compactor  # redis-py is not there where nobody wants it
    from tts_orch.store.redis_client import RedisClient
    from tts_orch.store.redis_log import RedisLogOpener

    address = StoreAddress.parse(config.store)
    client = RedisClient(address, "driver")
    opened.callback(client.close)
    is_away = False
    try:
        client.check()
    except StoreError as error:
        if not config.store_optional:
            raise StoreError(f"{error}; or go on without it: --store-optional") from None
        logger.warning("%s; going on with the statistics of each worker until it is there", error)
        is_away = True
    compactor = Compactor(client)
    compactor.start(has_warned=is_away)
    opened.callback(compactor.close)
    return RedisLogOpener(address, config.store_ttl)
