"""What `tts-orch vocabulary apply` does: a head and a vocabulary of one tokenizer become a smaller head."""

from __future__ import annotations

from pathlib import Path

import click

from tts_orch.drafters.checkpoint import read_head, save_head
from tts_orch.drafters.trimming import trimmed_head
from tts_orch.errors import ConfigError
from tts_orch.run_folder import unusable
from tts_orch.vocabulary.vocabulary_file import read_vocabulary

__all__ = ["apply_vocabulary"]


def apply_vocabulary(drafter: Path, file: Path, out: Path) -> None:
    """Write the head in `drafter`, trimmed to the vocabulary in `file`, into the folder `out`.

    Raises:
        ConfigError: one of both cannot be read, or they do not go together.
        RunFolderError: the folder cannot be written.
    """
    head, read = read_head(drafter), read_vocabulary(file)
    own, its = head.config.target_tokenizer_id, read.provenance.get("target_tokenizer_id", "")
    if own and its and own != its:
        raise ConfigError(
            f"{file}: counted with another tokenizer than that of {drafter}; trim one for the target of this head"
        )
    trimmed = trimmed_head(head, read.vocabulary)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(out, error) from None
    save_head(out, trimmed)
    size = head.config.draft_vocab_size or head.config.vocab_size
    click.echo(f"written: {out}, {read.vocabulary.size} of {size} tokens")
