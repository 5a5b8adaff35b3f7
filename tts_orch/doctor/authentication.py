"""Checks of how this process proves to a cluster that it may use it; tokens are never shown."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tts_orch.doctor.finding import Finding, failure, ok, warning

__all__ = ["check_authentication"]

_MODES: Final = ("token", "disabled")
_DEFAULT_TOKEN: Final = "~/.ray/auth_token"


def check_authentication(address: str | None) -> Iterator[Finding]:
    """Yield whether RAY_AUTH_MODE and the token fit a cluster at this address; None is a Ray of one's own."""
    mode = os.environ.get("RAY_AUTH_MODE", "").lower()
    if mode == "token":
        yield _token()
    elif mode == "disabled":
        yield ok("authentication", "RAY_AUTH_MODE=disabled: whoever reaches the cluster may run programs on it")
    elif mode:
        yield failure("authentication", f"RAY_AUTH_MODE={mode} is none of {', '.join(_MODES)}; set one of them")
    elif address:
        advice = "set it to `token`, or to `disabled` if the cluster was started so"
        yield warning("authentication", f"RAY_AUTH_MODE is unset, and then Ray sends no token; {advice}")
    else:
        yield ok("authentication", "RAY_AUTH_MODE is unset, which a Ray of one's own does not mind")


def _token() -> Finding:
    if os.environ.get("RAY_AUTH_TOKEN"):
        return ok("authentication", "RAY_AUTH_MODE=token, with the token of RAY_AUTH_TOKEN")
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or _DEFAULT_TOKEN).expanduser()
    if not file.is_file() or not file.read_text().strip():
        advice = "copy it from the head node, or make one for a new cluster: ray get-auth-token --generate"
        return failure("authentication", f"RAY_AUTH_MODE=token, but {file} holds no token; {advice}")
    if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return warning("authentication", f"{file} can be read by others; chmod 600 {file}")
    return ok("authentication", f"RAY_AUTH_MODE=token, with the token in {file}")
