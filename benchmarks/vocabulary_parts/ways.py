"""What is compared: heads of three domains, each with several draft vocabularies."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from tts_orch.config import DraftingConfig
from tts_orch.drafters.checkpoint import read_head, save_head
from tts_orch.drafters.trimming import trimmed_head
from tts_orch.engine.model_cache import file_digest
from tts_orch.engine.target import Target
from tts_orch.vocabulary.vocabulary_file import read_vocabulary
from vocabulary_parts.choices import vocabulary_path
from vocabulary_parts.corpora import FIXED

__all__ = ["FULL", "HEADS", "HOME", "VOCABULARIES", "Way", "drafting", "measured_path", "ways"]

HEADS: Final[Mapping[str, str]] = {"mixed": "general", "tools": "tools", "entities": "entities"}
"""Names of folders of heads, with the corpus of their domain."""
HOME: Final[Mapping[str, tuple[str, ...]]] = {
    "mixed": ("gsm8k_test", "mt_bench"),
    "tools": ("bfcl",),
    "entities": ("ner_wnut17",),
}
"""Workloads of a head's own domain."""
FULL: Final = "full"
VOCABULARIES: Final = (FULL, FIXED, "utility", "measured", "trained")
"""All tokens; the fixed list; the best of the domain by utility; the fastest with this head, as `tts-orch vocabulary trim
--objective measured` finds it; and a head that was trained with the best by utility, in a folder NAME-trimmed."""


@dataclass(frozen=True, slots=True)
class Way:
    """A head with a draft vocabulary.

    Attributes:
        loss: kind of the head.
        head: its name.
        vocabulary: one of `VOCABULARIES`.
        folder: where the head with this vocabulary is.
        layers: hidden states of the target that it reads.
        size: of the vocabulary.
        digest: of its weights and its vocabulary.
    """

    loss: str
    head: str
    vocabulary: str
    folder: Path
    layers: tuple[int, ...]
    size: int
    digest: str


def measured_path(out: Path, loss: str, head: str) -> Path:
    """Return where the fastest vocabulary of a head is expected."""
    return out / "measured" / loss / head / "vocabulary.safetensors"


def ways(arguments: argparse.Namespace, target: Target) -> list[Way]:
    """Return all ways for which there is a head and a vocabulary, trimmed now, head by head; say which there are not."""
    found = []
    for loss, head, vocabulary in product(arguments.losses, HEADS, arguments.vocabularies):
        folder = _folder(arguments, loss, head, vocabulary, target)
        if folder is None:
            print(f"{loss}/{head}, {vocabulary}: not there, left out", flush=True)
            continue
        network = read_head(folder)
        size = network.vocabulary.size if network.vocabulary else target.vocab_size
        digest = file_digest(folder / "model.safetensors")[:8]
        found.append(Way(loss, head, vocabulary, folder, network.config.feature_layers, size, digest))
    return found


def drafting(way: Way, **settings: object) -> DraftingConfig:
    """Return the settings of a way."""
    return DraftingConfig.model_validate({"drafter": "neural", "drafters": {way.head: way.folder}, **settings})


def _folder(arguments: argparse.Namespace, loss: str, head: str, vocabulary: str, target: Target) -> Path | None:
    """Return the folder of a head with a vocabulary, written here if it is trimmed without training."""
    whole = arguments.heads / loss / head
    if vocabulary in (FULL, "trained"):
        folder = whole if vocabulary == FULL else whole.with_name(f"{head}-trimmed")
        return folder if _has_head(folder) else None
    path = _vocabulary_file(arguments.out, loss, head, vocabulary)
    if not (_has_head(whole) and path.is_file()):
        return None
    folder = arguments.out / "heads" / loss / f"{head}-{vocabulary}"
    folder.mkdir(parents=True, exist_ok=True)
    save_head(folder, trimmed_head(read_head(whole), read_vocabulary(path).vocabulary))
    return folder


def _has_head(folder: Path) -> bool:
    return (folder / "model.safetensors").is_file()


def _vocabulary_file(out: Path, loss: str, head: str, vocabulary: str) -> Path:
    if vocabulary == "measured":
        return measured_path(out, loss, head)
    return vocabulary_path(out, FIXED if vocabulary == FIXED else HEADS[head])
