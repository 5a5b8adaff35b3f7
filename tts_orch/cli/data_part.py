"""The option type of a file of a mixture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tts_orch.training.drafters.settings import DataPart

__all__ = ["DataPartType"]


class DataPartType(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions alone
    """`FILE`, or `FILE:TOKENS` with the answer tokens to take of it."""

    name = "FILE[:TOKENS]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> DataPart:
        """Return the part; a usage error where the number is none."""
        file, colon, tokens = str(value).rpartition(":")
        if not colon:
            return DataPart(file=Path(tokens))
        if not tokens.isdecimal() or not int(tokens):
            self.fail(f"{value}: {tokens!r} is no number of tokens; give FILE:150000, or the file alone", param, ctx)
        return DataPart(file=Path(file), tokens=int(tokens))
