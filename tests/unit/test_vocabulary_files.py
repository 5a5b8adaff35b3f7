"""Which tokens a draft vocabulary keeps whatever is counted, and its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transformers import AutoTokenizer

from tests.toys import EOS_ID, VOCABULARY_SIZE, toy_tokenizer
from tts_orch.engine.demo_model import CACHE_NAME
from tts_orch.engine.model_cache import cache_folder
from tts_orch.errors import ConfigError
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary
from tts_orch.vocabulary.kept_tokens import kept_tokens
from tts_orch.vocabulary.vocabulary_file import VocabularyFile, read_vocabulary, write_vocabulary

TEMPLATE = "{% for turn in messages %}<{{ turn['role'] }}>{{ turn['content'] }}\n{% endfor %}"
WITHOUT_SYSTEM = (
    "{% for turn in messages %}{% if turn['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}%{% endfor %}"
)


def kept(template: str | None = None, wanted: tuple[str, ...] = ()) -> dict[str, set[str]]:
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = template
    found = kept_tokens(tokenizer, VOCABULARY_SIZE, [EOS_ID], ["\n\n"], wanted)
    return {reason: {tokenizer.convert_ids_to_tokens(i) for i in ids} for reason, ids in found.items()}


def test_ends_digits_and_special_tokens_are_kept() -> None:
    found = kept()
    assert found["special"] == {"<unk>", "<bos>", "<eos>"}
    assert found["stop"] == {"<eos>"}
    assert found["digits"] == {*"0123456789", " 1", "\n1", "10"}
    assert found["delimiters"] == {"\n\n"}
    assert found["template"] == found["wanted"] == set()


def test_what_a_chat_is_made_of_is_kept() -> None:
    written = kept(TEMPLATE)["template"]
    assert {"<", ">", "\n"} < written
    assert all(token in "".join(["<system>", "<user>", "<assistant>", "\n"]) for token in written)
    assert kept(WITHOUT_SYSTEM)["template"] == {"%"}


def test_wanted_texts_and_numbers_are_kept() -> None:
    assert kept(wanted=("the{", str(EOS_ID)))["wanted"] == {"the", "{", "<eos>"}
    with pytest.raises(ConfigError, match=r"^keep: there is no token 97, the target has 97"):
        kept(wanted=("97",))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    vocabulary = DraftVocabulary(np.array([1, 4, 7]), 9)
    path = tmp_path / "vocabulary.safetensors"
    write_vocabulary(path, VocabularyFile(vocabulary, np.array([5, 0, 2]), {"alpha": 0.5, "kept": {"stop": 1}}))
    return path


def test_a_file_says_what_was_written(file: Path) -> None:
    read = read_vocabulary(file)
    assert read.vocabulary == DraftVocabulary(np.array([1, 4, 7]), 9)
    assert read.counts.tolist() == [5, 0, 2]
    assert read.provenance == {"alpha": 0.5, "kept": {"stop": 1}}
    maps = load_file(file)
    assert (np.arange(3) + maps["d2t"]).tolist() == maps["ids"].tolist() == np.flatnonzero(maps["t2d"]).tolist()


def test_a_damaged_file_is_one_line(file: Path, tmp_path: Path) -> None:
    tensors = load_file(file)
    save_file({**tensors, "ids": tensors["ids"] + 1}, file, metadata={"provenance": "{}"})
    with pytest.raises(ConfigError, match="ids, counts and maps disagree"):
        read_vocabulary(file)
    save_file(tensors, file)
    with pytest.raises(ConfigError, match=r"vocabulary\.safetensors: not a draft vocabulary \('provenance'\)"):
        read_vocabulary(file)
    file.write_bytes(b"nothing of the kind")
    for path in (file, tmp_path / "absent"):
        with pytest.raises(ConfigError, match=r"^[^\n]*not a draft vocabulary[^\n]*$"):
            read_vocabulary(path)


def test_of_the_demo_model_little_is_kept() -> None:
    if not (cache_folder() / CACHE_NAME).is_dir():
        pytest.skip("the demo model is not there; `make model` fetches it")
    tokenizer = AutoTokenizer.from_pretrained(cache_folder() / CACHE_NAME)
    found = kept_tokens(tokenizer, 49_152, [2], ["\n\n"], [])
    texts = {reason: {tokenizer.decode([i]) for i in ids} for reason, ids in found.items()}
    assert texts["special"] == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
    assert texts["digits"] == set("0123456789")
    assert {"<|im_start|>", "<|im_end|>", "user", "\n"} < texts["template"]
    assert "\n\n" in texts["delimiters"]
    assert len({i for ids in found.values() for i in ids}) < 50
