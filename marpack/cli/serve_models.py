"""What `marpack serve` is to serve: sources and names of the store → plans of models."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from marpack.cli.run_session import cache_of, isolated_python, load_of, tell_built
from marpack.errors import UsageError
from marpack.project.source import resolve
from marpack.render.console import show_findings, talk
from marpack.render.progress import byte_bar
from marpack.runner.client import Worker
from marpack.runner.session import Device, PreparedModel, prepare
from marpack.serving.models import ModelPlan
from marpack.serving.reloading import Reloadable, Reloader
from marpack.torchserve.messages import MAX_BODY, Load
from marpack.torchserve.targets import Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from marpack.archive.protocol import Archive
    from marpack.cli.options import Options
    from marpack.cli.serve_options import ServeSettings
    from marpack.project.source import ResolvedSource
    from marpack.serving.server import Beside


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


class Planner:
    """Makes plans of sources."""

    def __init__(self, options: Options, settings: ServeSettings) -> None:
        self._options = options
        self._settings = settings
        self._device = Device.parse(options["device"])
        self._cache = cache_of()

    def plan(self, named: NamedSource) -> ModelPlan:
        """Return how a source is served, its archive built first where it is a project's.

        Raises UsageError, ProjectError and ArchiveError.
        """
        prepared = prepare(
            resolve(named.source, bar=byte_bar),
            options=self._load(),
            target=Target(self._options["target"]) if self._options["target"] else None,
            cache=self._cache,
            opened=self._opened,
        )
        return self._planned(prepared, named.name)

    def _opened(self, resolved: ResolvedSource, archive: Archive) -> None:  # noqa: ARG002 - what listeners are told
        tell_built(resolved)
        show_findings(resolved.findings, talk())

    def _planned(self, prepared: PreparedModel, name: str | None) -> ModelPlan:
        model = prepared.archive.manifest.model
        name = name or str(model.name)
        version = str(model.version)
        settings = self._settings.asked(self._settings.base(name, version).tuned(prepared.config))
        python = isolated_python(prepared.archive) if self._options["env"] == "isolated" else sys.executable
        spawn = partial(
            Worker.spawn, environment=self._environment(), python=python, max_memory=self._options["max_memory"]
        )
        return ModelPlan(name=name, version=version, prepared=prepared, settings=settings, spawn=spawn)

    def _load(self) -> Load:
        config = self._settings.config
        load = load_of(
            {
                **self._options,
                "envelope": self._options["envelope"] or config.service_envelope,
                "metrics_config": self._options["metrics_config"] or _text(config.metrics_config),
                "max_response_size": self._options["max_response_size"] or config.max_response_size or MAX_BODY,
            },
            self._device,
            compiled=not self._options["no_compile"],
        )
        limits = config.limit_max_image_pixels
        return load if limits is None else replace(load, limit_max_image_pixels=limits)

    def _environment(self) -> Mapping[str, str]:
        config = self._settings.config
        environment = dict(self._device.environment() or os.environ)
        if config.blacklist_env_vars is not None:
            environment = {k: v for k, v in environment.items() if not config.blacklist_env_vars.fullmatch(k)}
        if config.decode_input_request is False:
            environment["TS_DECODE_INPUT_REQUEST"] = "false"
        return environment


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def plans_of(
    sources: Sequence[str], options: Options, settings: ServeSettings
) -> tuple[list[ModelPlan], Beside | None]:
    """Return what is served from the start, and what watches over its files; see `Planner.plan`."""
    planner = Planner(options, settings)
    named = [NamedSource.parse(text) for text in sources]
    if not named and not settings.start_models:
        named = [NamedSource(None)]
    plans = [planner.plan(each) for each in named]
    _refuse_same(plans)
    if not options["reload"]:
        return plans, None
    pairs = zip(named, plans, strict=True)
    reloadable = [Reloadable(plan, (Path(each.source or "."),), partial(planner.plan, each)) for each, plan in pairs]
    return plans, Reloader(reloadable).run


def _refuse_same(plans: Sequence[ModelPlan]) -> None:
    """Raise UsageError for a version of a model that is named twice."""
    seen: dict[tuple[str, str], str] = {}
    for plan in plans:
        source, model = plan.prepared.archive.source, (plan.name, plan.version)
        if model in seen:
            message = f"{seen[model]} and {source} are both {plan.name} {plan.version}"
            raise UsageError(message, hint=f"give one another name: other={source}")
        seen[model] = source
