"""Writing a head that was made of others into a folder of its own."""

from __future__ import annotations

from pathlib import Path

from tts_orch.drafters.checkpoint import save_head
from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.run_folder import unusable

__all__ = ["write_head"]


def write_head(out: Path, head: DraftHead) -> None:
    """Save a head in a folder, which is made where it is missing.

    Raises:
        RunFolderError: the folder cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(out, error) from None
    save_head(out, head)
