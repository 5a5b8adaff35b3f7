"""Command-line options made from the settings: their names, types, defaults and help all come from `tts_orch.config`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from tts_orch.config import (
    BudgetConfig,
    DraftingConfig,
    EngineConfig,
    LawConfig,
    MethodConfig,
    PlacementConfig,
    RewardConfig,
    RunConfig,
    Settings,
    StoreConfig,
)
from tts_orch.errors import ConfigError
from tts_orch.stopping_config import StoppingConfig

__all__ = [
    "SectionedCommand",
    "SettingOption",
    "drafting_options",
    "given_settings",
    "merged",
    "run_options",
    "setting_option",
]

_METHODS: Final[tuple[type[Settings], ...]] = get_args(get_args(MethodConfig)[0])
_STOPPING_RULES: Final[tuple[type[Settings], ...]] = get_args(get_args(StoppingConfig)[0])
_RUN: Final = "Problems and method"
_REWARD: Final = "Reward model"
_CLUSTER: Final = "Cluster"
_CLUSTER_SETTINGS: Final = ("workers", *PlacementConfig.model_fields, *StoreConfig.model_fields, "address")
_NO_OPTIONS: Final = ("problems", "engine", "method", "law", "reward", "budget")  # the argument, and groups of settings
_CHOICES: Final = ("name", "stopping")  # made by `_choice`
_NAMED_PATH: Final = "NAME=FOLDER"


class SettingOption(click.Option):
    """The option of one setting; without a value it leaves the setting to the YAML file and the defaults.

    Args:
        section: heading in the help.
        place: where the setting is in `RunConfig`, from the outside in.
        flag: what a user types.
        kind: type of its value; `bool` makes a switch.
        text: help.
        multiple: whether it may be given several times.

    Attributes:
        is_mapping: whether its values are NAME=VALUE pairs.
    """

    def __init__(
        self, section: str, place: tuple[str, ...], flag: str, kind: Any, text: str, multiple: bool = False
    ) -> None:
        self.section = section
        self.place = place
        self.is_mapping = kind is _named_path
        flags = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
        metavar = _NAMED_PATH if self.is_mapping else None
        super().__init__(
            ["_".join(place), flags], type=kind, multiple=multiple, default=None, help=text, metavar=metavar
        )


def _named_path(text: str) -> tuple[str, Path]:
    """Return name and path of NAME=FOLDER."""
    name, _, path = text.partition("=")
    if not (name and path):
        raise click.BadParameter(f"{text!r}: write {_NAMED_PATH}, such as math=runs/math")
    return name, Path(path)


def run_options() -> list[SettingOption]:
    """Return an option for every setting of a run, section by section."""
    run = {name: field for name, field in RunConfig.model_fields.items() if name not in _NO_OPTIONS}
    return [
        _choice(("method",), _METHODS),
        *_settings_of(_METHODS, ("method",)),
        _choice(("method", "stopping"), _STOPPING_RULES),
        *_settings_of(_STOPPING_RULES, ("method", "stopping"), "stopping_"),
        *(setting_option(_RUN, ("budget", name), field) for name, field in BudgetConfig.model_fields.items()),
        *(setting_option(_RUN, (name,), field) for name, field in run.items() if name not in _CLUSTER_SETTINGS),
        *(setting_option("Sampling", ("law", name), field) for name, field in LawConfig.model_fields.items()),
        *(
            setting_option(_REWARD, ("reward", name), field, "reward_")
            for name, field in RewardConfig.model_fields.items()
        ),
        *_engine_settings(),
        *(setting_option(_CLUSTER, (name,), run[name]) for name in _CLUSTER_SETTINGS),
    ]


def drafting_options(*without: str) -> list[SettingOption]:
    """Return an option for every drafting setting that is not left out, all in a group of their own."""
    fields = DraftingConfig.model_fields.items()
    return [setting_option("Drafting", ("drafting", name), field) for name, field in fields if name not in without]


def _choice(place: tuple[str, ...], models: Sequence[type[Settings]]) -> SettingOption:
    """Return the option that chooses one of several groups of settings by its name."""
    purposes = {_name(model): model.__doc__ for model in models}
    text = " ".join(f"{name}: {purpose}" for name, purpose in purposes.items())
    return SettingOption(_RUN, (*place, "name"), f"--{place[-1]}", click.Choice(list(purposes)), text)


def _settings_of(models: Sequence[type[Settings]], place: tuple[str, ...], prefix: str = "") -> Iterator[SettingOption]:
    """Yield each setting of these groups once; the help says what is true of some groups only."""
    names = dict.fromkeys(name for model in models for name in model.model_fields if name not in _CHOICES)
    for name in names:
        fields = {_name(model): model.model_fields[name] for model in models if name in model.model_fields}
        option = setting_option(_RUN, (*place, name), next(iter(fields.values())), prefix)
        owners: dict[str, list[str]] = {}
        for owner, field in fields.items():
            owners.setdefault(_help(field, option.opts[0]), []).append(owner)
        if len(owners) > 1 or len(fields) < len(models):
            option.help = " ".join(f"{', '.join(those)}: {text}" for text, those in owners.items())
        yield option


def _name(model: type[Settings]) -> str:
    return str(model.model_fields["name"].default)


def _engine_settings() -> Iterator[SettingOption]:
    """Yield the settings of a decoder: those that say how it drafts under a heading of their own."""
    drafting = DraftingConfig.model_fields
    for name, field in EngineConfig.model_fields.items():
        if name not in drafting:
            yield setting_option("Engine", ("engine", name), field)
    for name, field in drafting.items():
        yield setting_option("Drafting", ("engine", name), field)


def setting_option(section: str, place: tuple[str, ...], field: FieldInfo, prefix: str = "") -> SettingOption:
    """Return the option of a field, named after the last part of its place."""
    name = f"{prefix}{place[-1]}".replace("_", "-")
    flag = f"--{name}" if len(name) > 1 else f"-{name}"
    is_multiple = any(get_origin(kind) in (tuple, dict) for kind in _kinds(field.annotation))
    return SettingOption(section, place, flag, _kind(field.annotation), _help(field, flag), is_multiple)


def _kind(annotation: Any) -> Any:
    first, *others = _kinds(annotation)
    if get_origin(first) is Literal:
        return click.Choice([choice for kind in (first, *others) for choice in get_args(kind)])
    if get_origin(first) is tuple:
        return _kind(get_args(first)[0])
    if get_origin(first) is dict:
        return _named_path
    return click.Path(path_type=Path) if first is Path else first


def _kinds(annotation: Any) -> list[Any]:
    """Return what a value may be, None and remarks left out."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for part in get_args(annotation) if part is not NoneType for kind in _kinds(part)]
    return [annotation]


def _help(field: FieldInfo, flag: str) -> str:
    text = " ".join((field.description or "").replace("`", "").split())
    shows_default = not (field.is_required() or field.default is False or field.default in (None, (), {}))
    return f"{text} [default: {_as_typed(field.default, flag)}]" if shows_default else text


def _as_typed(default: Any, flag: str) -> str:
    """Return a default as the command line would give it."""
    if default is True:
        return flag
    if isinstance(default, tuple):
        return ", ".join(_as_typed(part, flag) for part in default)
    is_printable = str(default).isprintable()
    return str(default) if is_printable else f"$'{str(default).encode('unicode_escape').decode()}'"


def given_settings(context: click.Context) -> dict[str, Any]:
    """Return the settings that the command line gives, nested as in `RunConfig`."""
    settings: dict[str, Any] = {}
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if isinstance(option, SettingOption) and value not in (None, ()):
            *groups, name = option.place
            group = settings
            for outer in groups:
                group = group.setdefault(outer, {})
            group[name] = _as_mapping(option, value) if option.is_mapping else value
    return settings


def _as_mapping(option: SettingOption, pairs: Sequence[tuple[str, Path]]) -> dict[str, Path]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ConfigError(f"{option.opts[-1]}: a name is given twice; give each drafter a name of its own")
    return mapping


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings in which those of `above` win; a group that `above` gives another `name` is replaced whole."""
    if "name" in above and below.get("name", above["name"]) != above["name"]:
        return dict(above)
    both = {
        name: merged(below[name], value)
        if isinstance(value, Mapping) and isinstance(below.get(name), Mapping)
        else value
        for name, value in above.items()
    }
    return {**below, **both}


class SectionedCommand(click.Command):
    """A command whose help lists its options by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections in the order of their options."""
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        for section, members in groupby(options, lambda option: getattr(option, "section", "Other")):
            records = [record for record in (option.get_help_record(ctx) for option in members) if record]
            with formatter.section(section):
                formatter.write_dl(records)
