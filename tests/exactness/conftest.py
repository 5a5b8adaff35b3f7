"""Toy models are too small for a second thread: handing work over costs more than the work."""

from __future__ import annotations

import pytest

from tts_orch.engine.threads import set_threads


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    set_threads(1)
