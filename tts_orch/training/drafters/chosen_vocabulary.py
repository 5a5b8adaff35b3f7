"""The draft vocabulary that a training is given."""

from __future__ import annotations

from tts_orch.engine.model_files import tokenizer_id
from tts_orch.errors import ConfigError
from tts_orch.training.base_model import BaseFiles
from tts_orch.training.drafters.settings import DrafterTrainingConfig
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary
from tts_orch.vocabulary.vocabulary_file import read_vocabulary

__all__ = ["chosen_vocabulary"]


def chosen_vocabulary(config: DrafterTrainingConfig, base: BaseFiles) -> DraftVocabulary | None:
    """Read the file that the settings name; None where they name none.

    Raises:
        ConfigError: it is no vocabulary, or one for another target.
    """
    if config.vocabulary is None:
        return None
    content = read_vocabulary(config.vocabulary)
    if content.provenance.get("target_tokenizer_id", own := tokenizer_id(base.tokenizer)) != own:
        raise ConfigError(
            f"vocabulary: {config.vocabulary} is for a target with another tokenizer; make one with `tts-orch vocabulary "
            f"trim --target {config.engine.target}`"
        )
    return content.vocabulary
