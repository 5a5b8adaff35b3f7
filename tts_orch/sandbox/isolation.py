"""What programs are kept from on this system: tried with a program, not guessed from what the system says of itself."""

from __future__ import annotations

import functools
import json
import logging
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tts_orch.errors import RunError
from tts_orch.sandbox.programs import run_python

__all__ = ["Isolation", "isolation"]

_TRYING: Final = threading.Lock()
_MISSING: Final = {
    "network": "reach the network",
    "files": "write files outside their folder",
    "processes": "reach other processes and leave some of their own behind",
}
_PROBE: Final = """
import json, os, socket, sys

def is_kept_from_network():
    try:  # a datagram socket sends nothing when it is connected; it looks for a route
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))
    except OSError:
        return not any(name != "lo" for _, name in socket.if_nameindex())
    return False

def is_kept_from_files(path):
    try:
        open(path, "x").close()
    except OSError:
        return True
    return False

print(json.dumps({
    "network": is_kept_from_network(),
    "files": is_kept_from_files(input()),
    "processes": os.getpid() == 2,  # after the first of the namespace
}))
"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Isolation:
    """What programs are kept from, besides what their user and their limits forbid.

    Attributes:
        network: from every network.
        files: from writing anywhere but in their own folder.
        processes: from other processes; all of theirs are ended with them, wherever they hid.
    """

    network: bool
    files: bool
    processes: bool

    @property
    def warning(self) -> str:
        """One line on what they are not kept from, empty where that is nothing."""
        missing = ", ".join(_MISSING[name] for name, holds in asdict(self).items() if not holds)
        return (
            missing and f"programs under test can {missing}: this system allows no namespaces; test only code you trust"
        )


def isolation() -> Isolation:
    """Return what `_tried` found; from however many threads it is asked for, it is tried once.

    Raises:
        RunError: no program can be run at all.
    """
    with _TRYING:
        return _tried()


@functools.cache
def _tried() -> Isolation:
    """Try what programs are kept from on this system, and log a warning of one line where that is not everything.

    Raises:
        RunError: no program can be run at all.
    """
    with tempfile.TemporaryDirectory(prefix="tts-orch-") as folder:
        Path(folder).chmod(0o777)
        outcome = run_python(_PROBE, str(Path(folder, "file")))
    if outcome.exit_code != 0:
        last_line = outcome.last_error or "no reason is given"
        raise RunError(
            f"programs cannot be tested here: {last_line}; use a Python that every user of the system may run"
        )
    found = Isolation(**json.loads(outcome.output))
    if found.warning:
        logger.warning(found.warning)
    return found
