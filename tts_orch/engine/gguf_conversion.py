"""GGUF files become what every other target is: a folder with float32 weights, configuration and tokenizer."""

from __future__ import annotations

from pathlib import Path

from tts_orch.errors import TargetError

__all__ = ["convert"]


def convert(gguf: Path, folder: Path) -> None:
    """Dequantise a GGUF file into `folder`, chat template included.

    Raises:
        TargetError: transformers cannot read the file.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    except Exception as error:  # whatever the readers raise over a file they cannot read
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TargetError(f"{gguf}: not a GGUF model that transformers can read ({reason})") from error
    # A model that came from GGUF is taken for a quantised one and cannot be saved; a fresh one with its weights can.
    settings = {name: value for name, value in loaded.config.to_dict().items() if name != "quantization_config"}
    with torch.device("meta"):
        fresh = type(loaded)(type(loaded.config).from_dict(settings))
    fresh.load_state_dict(loaded.state_dict(), assign=True)
    fresh.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
