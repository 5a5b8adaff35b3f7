"""Signals that end a command."""

from __future__ import annotations

import signal

__all__ = ["heed_signals"]


def heed_signals() -> None:
    """Make SIGINT and SIGTERM a `KeyboardInterrupt`, also where a shell starts its background jobs deaf to SIGINT."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
