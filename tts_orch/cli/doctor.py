"""`tts-orch doctor`: what keeps runs from working, found before one is started."""

from __future__ import annotations

import os
from typing import Any, Final

import click

from tts_orch.cli.settings import given_settings, setting_option
from tts_orch.config import DraftingConfig, EngineConfig, RunConfig
from tts_orch.errors import RunError
from tts_orch.store_config import StoreConfig

__all__ = ["doctor"]

_SECTION: Final = "What to check"
_DEFAULT_TARGET: Final = "smollm2"
_COLOURS: Final = {"ok": "green", "warning": "yellow", "failure": "red"}


@click.command(
    params=[
        setting_option(_SECTION, ("target",), EngineConfig.model_fields["target"]),
        setting_option(_SECTION, ("drafters",), DraftingConfig.model_fields["drafters"]),
        setting_option(_SECTION, ("store",), StoreConfig.model_fields["store"]),
        setting_option(_SECTION, ("address",), RunConfig.model_fields["address"]),
    ]
)
@click.pass_context
def doctor(context: click.Context, /, **_options: Any) -> None:
    """Check installation, target model, trained drafters, statistics store, authentication and cluster, and say what to do.

    \b
    Example: a cluster, from its head node
      tts-orch doctor --target smollm2 --store redis://10.0.0.1:6380 --address 10.0.0.1:6379

    The address may also be the http address that jobs are sent to. Nothing is fetched, loaded or left behind; without an
    address a Ray is started here and stopped again. The exit code is 1 if anything would keep a run from working.
    """  # noqa: D301
    from tts_orch.doctor.checks import check_all  # loaded late: --help must not wait for Ray

    settings = given_settings(context)
    target = settings.get("target", _DEFAULT_TARGET)
    store = StoreConfig(store=settings.get("store", "")).store
    address = settings.get("address") or os.environ.get("RAY_ADDRESS")
    n_failures = 0
    for finding in check_all(target, settings.get("drafters", {}), store, address):
        click.echo(f"{click.style(f'{finding.state:8}', fg=_COLOURS[finding.state])} {finding.check}: {finding.text}")
        n_failures += finding.state == "failure"
    if n_failures:
        raise RunError(f"{n_failures} of the checks failed; each line above says what to do")
