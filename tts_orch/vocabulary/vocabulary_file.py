"""Files of draft vocabularies: which tokens, how often each was counted, the maps of heads, and where all that comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tts_orch.atomic_file import write_atomically
from tts_orch.errors import ConfigError, first_line
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["VocabularyFile", "read_vocabulary", "write_vocabulary"]

_PROVENANCE: Final = "provenance"


@dataclass(frozen=True, slots=True, eq=False)
class VocabularyFile:
    """What a file holds.

    Attributes:
        vocabulary: the tokens.
        counts: `[k]` how often each was found.
        provenance: target, texts, and how the size was chosen, by name.
    """

    vocabulary: DraftVocabulary
    counts: NDArray[np.int64]
    provenance: Mapping[str, Any]


def write_vocabulary(path: Path, content: VocabularyFile) -> None:
    """Write a file of safetensors: `ids`, `counts`, `d2t` and `t2d`, and the provenance in its metadata.

    Raises:
        RunError: it cannot be written.
    """
    vocabulary = content.vocabulary
    tensors = {"ids": vocabulary.ids, "counts": content.counts, "d2t": vocabulary.d2t, "t2d": vocabulary.t2d}
    write_atomically(path, save(tensors, metadata={_PROVENANCE: json.dumps(content.provenance)}))


def read_vocabulary(path: Path) -> VocabularyFile:
    """Read what `write_vocabulary` wrote.

    Raises:
        ConfigError: there is no such file, it is damaged, or its maps disagree.
    """
    try:
        with safe_open(path, "numpy") as file:
            ids, counts, d2t, t2d = (file.get_tensor(name) for name in ("ids", "counts", "d2t", "t2d"))
            provenance = json.loads((file.metadata() or {})[_PROVENANCE])
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise ConfigError(
            f"{path}: not a draft vocabulary ({first_line(error)}); make one with `tts-orch vocabulary trim`"
        ) from None
    vocabulary = DraftVocabulary.from_maps(d2t, t2d, str(path))
    if not np.array_equal(vocabulary.ids, ids) or counts.shape != ids.shape:
        raise ConfigError(f"{path}: ids, counts and maps disagree; make it again with `tts-orch vocabulary trim`")
    return VocabularyFile(vocabulary, counts, provenance)
