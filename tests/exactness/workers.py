"""Several decoders in one thread that share their work and their draft statistics as the workers of a cluster do."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tts_orch.engine.decoder import Decoder
from tts_orch.policies.drafting.stand import Stand
from tts_orch.records import Chunk, DecodeRequest
from tts_orch.store.memory import MemoryStore
from tts_orch.store.replica import Replica


class DecodersInTurn:
    """Takes requests in turn."""

    def __init__(self, decoders: Sequence[Decoder]) -> None:
        self._decoders = decoders
        self._turns = itertools.cycle(decoders)

    @property
    def is_idle(self) -> bool:
        return all(decoder.is_idle for decoder in self._decoders)

    def submit(self, request: DecodeRequest) -> None:
        next(self._turns).submit(request)

    def step(self) -> list[Chunk]:
        return [chunk for decoder in self._decoders for chunk in decoder.step()]


class Workers(DecodersInTurn):
    """After every step what the drafters learned goes through one store.

    The replicas' own threads end at once: exchanges are made here, so that every run is the same.
    """

    def __init__(self, decoders: Sequence[Decoder]) -> None:
        super().__init__(decoders)
        store = MemoryStore()
        self.replicas = [
            Replica(
                decoder.drafter,
                store,
                f"worker-{i}",
                interval_s=1.0,
                clock=itertools.count().__next__,  # a second passes from one look at it to the next
            )
            for i, decoder in enumerate(decoders)
            if isinstance(decoder.drafter, Stand)
        ]
        for replica in self.replicas:
            replica.close()

    def step(self) -> list[Chunk]:
        chunks = super().step()
        for replica in self.replicas:
            replica.apply()
            replica._exchange()
        return chunks
