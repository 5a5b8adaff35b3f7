from __future__ import annotations

import subprocess
import sys

import pytest

import tts_orch


def test_every_public_name_can_be_loaded_and_is_sorted() -> None:
    assert tts_orch.__all__ == sorted(tts_orch.__all__, key=lambda name: (not name.isupper(), name))
    for name in tts_orch.__all__:
        assert getattr(tts_orch, name).__name__ == name
        assert name in dir(tts_orch)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="'Orchestra'"):
        tts_orch.Orchestra  # noqa: B018


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import sys, tts_orch; tts_orch.ConfigError; print([m for m in ('ray', 'torch', 'numba') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert output.stdout.strip() == "[]"
