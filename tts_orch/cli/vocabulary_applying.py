"""What `tts-orch vocabulary apply` does: a head and a vocabulary of one tokenizer become a smaller head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from tts_orch.cli.head_folder import write_head
from tts_orch.config import EngineConfig
from tts_orch.drafters.checkpoint import is_own_head, load_head, read_head
from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.drafters.target_facts import target_facts
from tts_orch.drafters.trimming import trimmed_head
from tts_orch.engine.target import load_target
from tts_orch.errors import ConfigError
from tts_orch.vocabulary.vocabulary_file import read_vocabulary

__all__ = ["apply_vocabulary"]


def apply_vocabulary(drafter: Path, file: Path, out: Path, target: str | None) -> None:
    """Write the head in `drafter`, trimmed to the vocabulary in `file`, into the folder `out`.

    Args:
        drafter: a head of our own, or with its target a published one.
        file: the vocabulary.
        out: folder to write.
        target: whose head it is, by name or folder.

    Raises:
        ConfigError: one of both cannot be read, or they do not go together.
        TargetError: the target cannot be loaded.
        RunFolderError: the folder cannot be written.
    """
    if out.resolve() == drafter.resolve():
        raise ConfigError(f"--out: {out} is the folder of the head itself; give another one, so that this head is kept")
    read = read_vocabulary(file)
    head = _head_alone(drafter) if target is None else _head_of(drafter, target)
    own, its = head.config.target_tokenizer_id, read.provenance.get("target_tokenizer_id", "")
    if own and its and own != its:
        raise ConfigError(
            f"{file}: counted with another tokenizer than that of {drafter}; trim one for the target of this head"
        )
    write_head(out, trimmed_head(head, read.vocabulary))
    size = head.config.draft_vocab_size or head.config.vocab_size
    use = f"draft with it by `tts-orch run ... --drafter neural --drafters NAME={out}`"
    click.echo(f"{out}: {read.vocabulary.size} of {size} tokens; {use}")


def _head_alone(drafter: Path) -> DraftHead:
    if not is_own_head(drafter):
        raise ConfigError(
            f"{drafter}: not a head of `tts-orch drafter train`; give its --target if it is a published one"
        )
    return read_head(drafter)


def _head_of(drafter: Path, target: str) -> DraftHead:
    """Return a head that says whose it is: files of published ones do not."""
    facts = target_facts(load_target(EngineConfig(target=target, drafter="none")))
    head = load_head(drafter, facts)
    if head is None:
        raise ConfigError(f"{drafter}: a language model; give the folder of a draft head")
    head.config = replace(head.config, target_weights_id=facts.weights_id, target_tokenizer_id=facts.tokenizer_id)
    return head
