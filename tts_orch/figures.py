"""Matplotlib, loaded where something is drawn: few commands do."""

from __future__ import annotations

from typing import Any

from tts_orch.errors import ConfigError

__all__ = ["load_figures"]


def load_figures() -> Any:
    """Return matplotlib's module of figures.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure as figures
    except ImportError:
        raise ConfigError("plots need matplotlib; install it with `pip install 'tts-orch[bench]'`") from None
    return figures
