"""Drafters that many verifiers share: what they ask for at the same time is drafted in one batch.

The host remembers trajectories, but nobody relies on it: whoever asks says what the host should know, and where it does
not, the trajectory is begun anew. So a host may be restarted, and its drafters may be replaced, at any time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from tts_orch.drafters.pool_member import PoolMember
from tts_orch.drafters.pool_messages import MemberFacts, PoolReply, PoolRequest
from tts_orch.policies.drafting.draft_tree import Drafter

__all__ = ["PoolHost"]

_MOST_TRAJECTORIES: Final = 1024


@dataclass(slots=True)
class _Waiting:
    """A request, and what became of it."""

    request: PoolRequest
    reply: PoolReply | None = None
    error: Exception | None = None


class PoolHost:
    """Hosts drafters by name; safe from any thread.

    Args:
        drafters: by name; the host alone uses them.
        max_trajectories: of one drafter that are remembered.
    """

    def __init__(self, drafters: Mapping[str, Drafter], *, max_trajectories: int = _MOST_TRAJECTORIES) -> None:
        self._max_trajectories = max_trajectories
        self._members = {name: PoolMember(drafter, max_trajectories) for name, drafter in drafters.items()}
        self._drafting = threading.Lock()
        self._waiting: deque[_Waiting] = deque()

    def propose(self, request: PoolRequest) -> PoolReply:
        """Return trees; requests that come in while others are being drafted share the next batch."""
        waiting = _Waiting(request)
        self._waiting.append(waiting)
        with self._drafting:  # whoever gets here first drafts for all that wait
            if waiting.reply is None and waiting.error is None:
                self._answer([self._waiting.popleft() for _ in range(len(self._waiting))])
        if waiting.error is not None:
            raise waiting.error
        assert waiting.reply is not None
        return waiting.reply

    def put(self, name: str, drafter: Drafter) -> None:
        """Add a drafter, or replace the one of that name; trajectories go on with it from their next tree but one."""
        with self._drafting:
            self._members[name] = PoolMember(drafter, self._max_trajectories)

    def remove(self, name: str) -> None:
        """Take a drafter out; who asks for it is told so. An unknown name is ignored."""
        with self._drafting:
            self._members.pop(name, None)

    def describe(self) -> dict[str, MemberFacts]:
        """Return what clients must know of each drafter."""
        with self._drafting:
            drafters = {name: member.drafter for name, member in self._members.items()}
        return {name: MemberFacts(drafter.priors, drafter.feature_layers) for name, drafter in drafters.items()}

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        by_name = sorted(batch, key=lambda waiting: waiting.request.member)
        for name, group in groupby(by_name, key=lambda waiting: waiting.request.member):
            self._answer_of(self._members.get(name), list(group))

    def _answer_of(self, member: PoolMember | None, batch: Sequence[_Waiting]) -> None:
        if member is None:
            for waiting in batch:
                waiting.reply = PoolReply((), has_member=False)
            return
        try:
            replies = member.propose([waiting.request for waiting in batch])
        except Exception as error:  # whoever asks gets it; what the drafter knows can no longer be relied on
            member.forget_all()
            for waiting in batch:
                waiting.error = error
        else:
            for waiting, reply in zip(batch, replies, strict=True):
                waiting.reply = reply
