"""Programs that nobody has read: what they may use, and what they are kept from."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tts_orch.sandbox.isolation import Isolation, _tried, isolation
from tts_orch.sandbox.limits import Limits
from tts_orch.sandbox.programs import Outcome, run_python

HERE = isolation()
SHORT = Limits(wall_s=20.0, cpu_s=1, memory_bytes=256 << 20, processes=8, file_bytes=100_000)


def ran(program: str, standard_input: str = "", limits: Limits = SHORT) -> Outcome:
    return run_python(textwrap.dedent(program), standard_input, limits)


def test_a_program_reads_writes_and_ends() -> None:
    assert ran("print(input()[::-1])", "abc\n", Limits()) == Outcome(0, "cba\n", "")
    assert ran("import sys; sys.exit(3)", limits=Limits()).exit_code == 3
    assert "ZeroDivisionError" in ran("1 / 0", limits=Limits()).errors
    assert ran("print('é')", limits=Limits()).output == "é\n"


def test_more_input_than_a_pipe_holds_may_be_left_unread() -> None:
    assert ran("print(1)", "x" * 1_000_000).output == "1\n"


def test_a_program_that_does_not_end_is_killed() -> None:
    assert ran("while True: pass").exit_code == 128 + 9  # by its CPU time
    started = time.monotonic()
    assert ran("import time; time.sleep(60)", limits=Limits(wall_s=1.0)).took_too_long
    assert time.monotonic() - started < 10


def test_memory_is_limited() -> None:
    assert "MemoryError" in ran("x = bytearray(300 << 20)").errors
    assert ran("print(len(bytearray(300 << 20)))", limits=Limits(memory_bytes=512 << 20)).output == f"{300 << 20}\n"


@pytest.mark.skipif(
    not HERE.processes and os.geteuid() == 0, reason="root's processes are not counted without namespaces"
)
def test_a_fork_bomb_stops_at_its_limit() -> None:
    outcome = ran(
        """
        import os, time
        n = 0
        try:
            while True:
                if not os.fork():
                    time.sleep(60)
                n += 1
        except BlockingIOError:
            print(n)
        """
    )
    assert 0 < int(outcome.output) < SHORT.processes


@pytest.mark.skipif(not HERE.processes, reason="this system allows no namespaces")
def test_processes_end_with_the_program_wherever_they_hide(tmp_path: Path) -> None:
    mark = f"hidden-{os.getpid()}"
    outcome = ran(
        f"""
        import os, sys
        if not os.fork():
            os.setsid()
            if not os.fork():
                os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", "{mark}"])
        else:
            print("done")
        """
    )
    assert outcome.output == "done\n"
    running = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert mark not in running


def test_output_and_files_are_limited() -> None:
    flood = ran("while True: print('x' * 999)")
    assert flood.exit_code != 0
    assert len(flood.output) <= SHORT.file_bytes
    assert "File too large" in ran("open('big', 'wb').write(bytes(200_000))").errors


def test_the_working_folder_is_empty_writable_and_gone_afterwards() -> None:
    outcome = ran(
        """
        import os
        open("here", "w").write("1")
        print(os.listdir(), os.getcwd() == os.environ["HOME"] == os.environ["TMPDIR"])
        print(os.getcwd())
        """
    )
    first, folder = outcome.output.splitlines()
    assert first == "['here'] True"
    assert not Path(folder).exists()


@pytest.mark.skipif(not HERE.files, reason="this system allows no namespaces")
@pytest.mark.parametrize("place", ["/tmp/outside-of-it", "/dev/shm/outside-of-it", "program.py", __file__])
def test_files_outside_cannot_be_written(place: str) -> None:
    outcome = ran(f"import sys; open({place!r} if {place!r} != 'program.py' else sys.argv[0], 'a')")
    assert any(
        error in outcome.errors for error in ("OSError", "PermissionError", "FileNotFoundError")
    )  # homes are hidden


def test_the_environment_holds_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    assert "hunter2" not in ran("import os; print(os.environ)").output


@pytest.mark.skipif(not HERE.network, reason="this system allows no namespaces")
def test_there_is_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = ran(f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)")
    assert "refused" in outcome.errors or "unreachable" in outcome.errors


def test_this_python_runs_the_programs() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert ran("import sys; print('%d.%d' % sys.version_info[:2])", limits=Limits()).output.strip() == version


def test_a_warning_names_what_is_missing(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Isolation(network=True, files=True, processes=True).warning == ""
    found = '{"network": false, "files": true, "processes": false}'
    monkeypatch.setattr("tts_orch.sandbox.isolation.run_python", lambda program, path: Outcome(0, found, ""))
    with caplog.at_level(logging.WARNING):
        assert _tried.__wrapped__() == Isolation(network=False, files=True, processes=False)
    (record,) = caplog.records
    assert "reach the network, reach other processes" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.skipif(not HERE.processes, reason="this system allows no namespaces")
def test_other_processes_are_out_of_reach() -> None:
    outcome = ran(f"import os; os.kill({os.getpid()}, 0)")
    assert "ProcessLookupError" in outcome.errors
