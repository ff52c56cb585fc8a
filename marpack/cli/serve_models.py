"""What `marpack serve` is to serve: sources and names of the store → plans of models."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict, replace

from marpack.api.settings import Consent, isolated_python, load_of
from marpack.cli.run_session import cache_of, tell_aside, tell_built
from marpack.errors import MarpackError, UsageError
from marpack.project.source import resolve
from marpack.render.console import show_findings, talk
from marpack.render.progress import byte_bar
from marpack.runner.client import Worker
from marpack.runner.session import Device
from marpack.runner.zygote import Zygote
from marpack.serving.loading import Door, ModelLoader
from marpack.serving.models import ModelPlan
from marpack.serving.reloading import Reloadable, Reloader
from marpack.serving.server import Beside
from marpack.torchserve.messages import MAX_BODY, Load
from marpack.torchserve.targets import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from marpack.archive.protocol import Archive
    from marpack.cli.serve_options import ServeOptions, ServeSettings
    from marpack.serving.config_properties import ServerConfig
    from marpack.serving.listener import ServerListener


class NamedSource(Struct, frozen=True):
    """A SOURCE, and the name it is served under; None: the manifest's."""

    source: str | None  # None: the project in the current folder
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> NamedSource:
        """Read `NAME=SOURCE` or `SOURCE`; what is there under the whole text is a SOURCE."""
        name, equals, source = text.partition("=")
        named = equals and not Path(text).exists() and "/" not in name
        return cls(source, name) if named else cls(text)


def loader_of(options: ServeOptions, settings: ServeSettings) -> ModelLoader:
    """Return what plans the serving of archives, those that are registered later among them."""
    config, device = settings.config, Device.available(options.device)
    environment = _environment(config, device)
    zygote = None if options.env == "isolated" else Zygote(environment)

    def spawn(archive: Archive) -> Callable[[], Worker]:
        # No question on the terminal: archives are loaded beside requests, at any time.
        consent = Consent(options.yes, ask=lambda _: None)
        python = isolated_python(archive, tell_aside, consent) if options.env == "isolated" else sys.executable
        memory = options.max_memory
        return partial(Worker.spawn, environment=environment, python=python, max_memory=memory, zygote=zygote)

    return ModelLoader(
        load=_load(options, config, device),
        settings=settings.base(),
        models=config.models | config.model_snapshot,
        target=Target(options.target) if options.target else None,
        door=Door(
            require_safe=options.require_safe,
            trust_native=options.trust_native,
            digests=frozenset(options.digests),
        ),
        gpus=device.gpu_ids()[: config.number_of_gpu],
        asked=settings.asked(),
        spawn=spawn,
        zygote=zygote,
        cache=cache_of,
    )


def _load(options: ServeOptions, config: ServerConfig, device: Device) -> Load:
    given = {
        **asdict(options),
        "envelope": options.envelope or config.service_envelope,
        "metrics_config": options.metrics_config or (config.metrics_config and str(config.metrics_config)),
        "max_response_size": options.max_response_size or config.max_response_size or MAX_BODY,
    }
    load = load_of(given, device, compiled=options.compile)
    if config.number_of_gpu == 0:
        load = replace(load, gpu_id=None)
    limits = config.limit_max_image_pixels
    return load if limits is None else replace(load, limit_max_image_pixels=limits)


def _environment(config: ServerConfig, device: Device) -> Mapping[str, str]:
    environment = dict(device.environment() or os.environ)
    hidden = config.blacklist_env_vars
    if hidden is not None:
        environment = {name: value for name, value in environment.items() if not hidden.fullmatch(name)}
    if config.decode_input_request is False:
        environment["TS_DECODE_INPUT_REQUEST"] = "false"
    return environment


class StartModels(Struct, frozen=True):
    """What is served from the start, and what watches over its files."""

    plans: list[ModelPlan]
    beside: Beside | None = None


def start_models(
    options: ServeOptions, settings: ServeSettings, loader: ModelLoader, log: ServerListener
) -> StartModels:
    """Plan what the command line and the config file name: nothing, where they name but a model store.

    A SOURCE that cannot be served ends the start; a model of the store that cannot is told and left out, as on the
    original.

    Raises UsageError, ProjectError and ArchiveError.
    """
    named = [NamedSource.parse(text) for text in options.source]
    if not named and not settings.start_words:
        if settings.store is None:
            named = [NamedSource(None)]
        else:
            log.noted("no model is served from the start: --models all serves those of the model store")
    planned = [
        (partial(_plan, each, loader, options, trust_url=options.trust_url), Path(each.source or ".")) for each in named
    ]
    plans = [again() for again, _ in planned]
    for name, file in settings.stored_models():
        again = partial(_plan, NamedSource(str(file), name), loader, options)
        try:
            plans.append(again())
        except MarpackError as error:
            log.failed(name or file.name, None, error, given_up=True)
            continue
        planned.append((again, file))
    _refuse_same(plans)
    if not options.reload:
        return StartModels(plans)
    watched = zip(plans, planned, strict=True)
    return StartModels(plans, Reloader(Reloadable(plan, (path,), again) for plan, (again, path) in watched).run)


def _plan(named: NamedSource, loader: ModelLoader, options: ServeOptions, *, trust_url: bool = False) -> ModelPlan:
    """Return how a source is served, its archive built first where it is a project's."""
    outside = options.allow_outside
    resolved = resolve(named.source, bar=byte_bar, cache=cache_of(), trust_url=trust_url, allow_outside=outside)
    tell_built(resolved)
    show_findings(resolved.findings, talk())
    return loader.plan(resolved, name=named.name)


def _refuse_same(plans: Sequence[ModelPlan]) -> None:
    """Raise UsageError for a version of a model that is named twice."""
    seen: dict[tuple[str, str], str] = {}
    for plan in plans:
        source, model = plan.prepared.archive.source, (plan.name, plan.version)
        if model in seen:
            message = f"{seen[model]} and {source} are both {plan.name} {plan.version}"
            raise UsageError(message, hint=f"give one another name: other={source}")
        seen[model] = source
