from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from setuptools import find_packages

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """File names in a wheel built from a copy of the checkout, so that the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "actors", "policies", "tts_orch"):
        subprocess.run(["cp", "-R", str(ROOT / name), str(source)], check=True)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(built).namelist())


@pytest.mark.parametrize("name", ["actors", "policies"])
def test_inner_folders_are_links_to_the_outer_ones(name: str) -> None:
    link = ROOT / "tts_orch" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name


def test_wheel_has_every_module(wheel: set[str]) -> None:
    sources = {
        path.relative_to(ROOT) for top in ("actors", "policies", "tts_orch") for path in (ROOT / top).rglob("*.py")
    }
    expected = {path.as_posix() if path.parts[0] == "tts_orch" else f"tts_orch/{path.as_posix()}" for path in sources}
    assert {"tts_orch/policies/__init__.py", "tts_orch/actors/__init__.py"} <= expected
    assert {name for name in wheel if name.endswith(".py")} == expected


def test_wheel_is_typed_and_licensed(wheel: set[str]) -> None:
    assert "tts_orch/py.typed" in wheel
    assert any(name.endswith("licenses/LICENSE") for name in wheel)


def test_wheel_has_the_default_draft_tree(wheel: set[str]) -> None:
    assert "tts_orch/policies/drafting/trees/default.json" in wheel


def test_every_folder_with_modules_is_a_package() -> None:
    found = set(find_packages(str(ROOT), include=["tts_orch", "tts_orch.*"]))
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "tts_orch").rglob("*.py")}
    assert {".".join(folder.parts) for folder in folders} <= found


def test_every_module_is_on_the_map() -> None:
    described = (ROOT / "docs/architecture.md").read_text()
    modules = [path for top in ("actors", "policies", "tts_orch") for path in (ROOT / top).rglob("*.py")]
    names = {
        path.name for path in modules if not path.name.startswith("__") and f"`{path.parent.name}/`" not in described
    }
    assert {name for name in names if not re.search(rf"[`/]{re.escape(name)}`", described)} == set()


def test_imports_only_go_down_a_floor() -> None:
    """In a process of its own: the linter switches the loggers of its process off."""
    program = "import sys; from importlinter import cli; sys.exit(cli.lint_imports(no_cache=True))"
    linted = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout


def test_command_is_the_package_main() -> None:
    (command,) = metadata.entry_points(group="console_scripts", name="tts-orch")
    assert callable(command.load())


def test_bare_roots_are_banned() -> None:
    source = "import policies.voting\nfrom actors import router\n"
    options = ["--select", "TID251", "--stdin-filename", str(ROOT / "examples/own_policy.py")]
    command = [sys.executable, "-m", "ruff", "check", *options, "-"]
    result = subprocess.run(command, input=source, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert result.stdout.count("TID251") == 2
