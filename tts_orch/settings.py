"""The base of all settings: frozen, and an unknown or impossible value is one readable line."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from tts_orch.errors import ConfigError

__all__ = ["Settings", "existing_file", "existing_folder", "files_may_be_gone"]

_MAY_BE_GONE: Final = ContextVar("files may be gone", default=False)


class Settings(BaseModel):
    """Base of all settings: frozen, and an unknown or impossible value is one readable line."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_explain(type(self), error)) from None

    def __hash__(self) -> int:
        return hash(self.model_dump_json())  # of mappings too, which pydantic's own cannot hash


@contextmanager
def files_may_be_gone() -> Iterator[None]:
    """Take settings of what is over: the files and folders that they name are not looked for."""
    token = _MAY_BE_GONE.set(True)
    try:
        yield
    finally:
        _MAY_BE_GONE.reset(token)


def existing_file(path: Path | None, name: str, made_by: str) -> Path | None:
    """Return an optional file's path made absolute, because workers have other working directories.

    Args:
        path: as it was given.
        name: of the setting.
        made_by: the command that makes such files.

    Raises:
        ConfigError: there is no such file.
    """
    if path is not None and not path.is_file() and not _MAY_BE_GONE.get():
        raise ConfigError(f"{name}: {path} is no file; make one with `{made_by}`, or leave it out")
    return path and path.resolve()


def existing_folder(path: Path, name: str, made_by: str) -> Path:
    """Return a folder's path made absolute; see `existing_file`.

    Raises:
        ConfigError: there is no such folder.
    """
    if not path.is_dir() and not _MAY_BE_GONE.get():
        raise ConfigError(f"{name}: {path} is no folder; make one with `{made_by}`, or leave it out")
    return path.resolve()


def _owner(model: type[BaseModel]) -> str:
    """Say whose settings these are, where there are others of their kind, such as those of other search methods."""
    name = model.model_fields.get("name")
    return f" of {name.default}" if name and isinstance(name.default, str) else ""


def _explain(model: type[BaseModel], error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or model.__name__
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(first["loc"][-1]), list(model.model_fields), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known settings: {', '.join(sorted(model.model_fields))}"
        return f"{place}: unknown setting{_owner(model)}{hint}"
    if first["type"] in ("missing", "union_tag_not_found"):  # the latter: settings of a method, but not which
        return f"{place}: missing; give it as an option or in a settings file"
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"{place}: {message} (got {first['input']!r})"
