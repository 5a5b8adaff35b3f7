"""How much of what the target really says the chosen vocabularies have."""

from __future__ import annotations

import argparse
import json
from itertools import product
from typing import Final

import numpy as np

from tts_orch.atomic_file import write_atomically
from tts_orch.replay.recording import Recording
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary
from tts_orch.vocabulary.vocabulary_file import read_vocabulary
from vocabulary_parts.choices import vocabulary_path
from vocabulary_parts.corpora import CORPORA, FIXED
from vocabulary_parts.recordings import VocabularyWorkshop

__all__ = ["COVERAGE", "coverage", "covered"]

COVERAGE: Final = "coverage.json"


def coverage(arguments: argparse.Namespace) -> None:
    """Record what is not recorded yet, and compare all of it with all vocabularies."""
    workshop = VocabularyWorkshop(arguments)
    names = (*CORPORA, FIXED)
    vocabularies = {name: read_vocabulary(vocabulary_path(arguments.out, name)).vocabulary for name in names}
    rows = []
    for workload, temperature in product(arguments.workloads, arguments.temperatures):
        recording = workshop.recording(workload, temperature)
        for name, vocabulary in vocabularies.items():
            row = {"vocabulary": name, "size": vocabulary.size, "workload": workload, "temperature": temperature}
            n_tokens = sum(len(one.tokens) for one in recording.trajectories)
            rows.append({**row, "tokens": n_tokens, "coverage": covered(vocabulary, recording)})
            print(rows[-1], flush=True)
    write_atomically(arguments.out / COVERAGE, json.dumps(rows, indent=1) + "\n")


def covered(vocabulary: DraftVocabulary, recording: Recording) -> float:
    """Return the share of recorded tokens that a vocabulary has."""
    tokens = np.concatenate([one.tokens for one in recording.trajectories])
    return float(np.isin(tokens, vocabulary.ids).mean())
