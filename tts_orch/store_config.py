"""Where draft statistics are kept and shared, as a user says it; changes the speed, never a token."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, field_serializer, field_validator

from tts_orch.settings import Settings, existing_file
from tts_orch.store_address import MEMORY_STORE, StoreAddress, masked

__all__ = ["StoreConfig"]


class StoreConfig(Settings):
    """The store of draft statistics, shared by workers and by runs."""

    store: str = Field("", validate_default=True, repr=False)
    """Where draft statistics are shared: memory:// within the run, or a Redis or Valkey server at redis://, rediss://,
    unix://, redis+sentinel:// or redis+cluster://, which keeps them. Else the URL of TTS_ORCH_STORE, else memory://."""
    store_optional: bool = False
    """Go on with each worker's own statistics while the store cannot be reached, rather than not begin."""
    store_ttl: int = Field(7 * 86400, ge=0)
    """Seconds after which statistics that nobody adds to leave the store; 0 keeps them."""
    warm_start: Path | None = None
    """File of `tts-orch store export` whose statistics the run begins with; those of other models are left out."""

    @property
    def outlives_run(self) -> bool:
        """Whether what is learned stays there when a run is over."""
        return self.store != MEMORY_STORE

    @property
    def reaches_beyond_run(self) -> bool:
        """Whether statistics come from before the run or stay when it is over, so that even one worker wants a store."""
        return self.outlives_run or self.warm_start is not None

    @field_validator("warm_start")
    @classmethod
    def _is_a_file(cls, path: Path | None) -> Path | None:
        return existing_file(path, "warm_start", "tts-orch store export")

    @field_validator("store")
    @classmethod
    def _is_a_store(cls, url: str) -> str:
        url = url or os.environ.get("TTS_ORCH_STORE") or MEMORY_STORE
        if url != MEMORY_STORE:
            StoreAddress.parse(url)
        return url

    @field_serializer("store", when_used="json")
    def _without_credentials(self, url: str) -> str:
        return masked(url)
