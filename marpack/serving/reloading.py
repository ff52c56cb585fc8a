"""`--reload`: a model whose files change is loaded again; until that has worked, the one before goes on answering."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from msgspec import Struct

from marpack.archive.index import content_digest
from marpack.errors import MarpackError
from marpack.runner.watching import Watch
from marpack.serving.loading_threads import run_in_loading_thread
from marpack.serving.models import ModelPlan, ServedModel
from marpack.serving.server import Server

_EVERY = 0.2  # seconds between two looks
_SHARE = 20  # a look takes at most a twentieth of the time


class Reloadable(Struct, frozen=True):
    """A model, and how it came to be."""

    plan: ModelPlan  # as it is served from the start
    paths: tuple[Path, ...]  # which it depends on
    again: Callable[[], ModelPlan]  # makes a new plan of it


def _plan_again(reloadable: Reloadable, model: ServedModel) -> tuple[ModelPlan, str | None, str | None]:
    """Return a new plan, the content digest of its archive, and that of the archive that is served."""
    plan = reloadable.again()
    return plan, content_digest(plan.prepared.archive), content_digest(model.prepared.archive)


class Reloader:
    """Watches over files for as long as the server runs."""

    def __init__(self, reloadable: Iterable[Reloadable]) -> None:
        self._watched = [(each, Watch(each.paths)) for each in reloadable]
        self._tried: dict[str, str | None] = {}  # model → digest of the archive that was tried last
        self._told: dict[str, str] = {}  # model → why it could not be loaded again, as it was told last

    async def run(self, server: Server) -> None:
        """Load models again as their files change, for ever."""
        served = [server.registry.find(each.plan.name, each.plan.version) for each, _ in self._watched]
        while True:
            pause = _EVERY
            for number, (each, watch) in enumerate(self._watched):
                started = time.monotonic()
                changed = await asyncio.to_thread(watch.changed)
                pause = max(pause, _SHARE * (time.monotonic() - started))
                if changed and served[number] in tuple(server.registry):  # nobody has taken it off meanwhile
                    names = [os.path.relpath(path) for path in changed]
                    served[number] = await self._reloaded(server, served[number], each, names)
            await asyncio.sleep(pause)

    async def _reloaded(self, server: Server, model: ServedModel, each: Reloadable, changed: list[str]) -> ServedModel:
        """Return the model that answers from now on."""
        try:
            plan, digest, served = await run_in_loading_thread(partial(_plan_again, each, model))
            if digest is not None and digest == self._tried.get(model.name, served):
                plan.prepared.archive.close()  # it was a log, say, that lies beside the project's files
                return model
            self._tried[model.name] = digest
            new = await server.replace(model, plan)
            if new is None:
                return model
        except MarpackError as error:
            failure = f"{error!r} {getattr(error, 'findings', ())}"
            if self._told.get(model.name) != failure:
                self._told[model.name] = failure
                server.listener.reloaded(model.label, changed, error)
            return model
        self._told.pop(model.name, None)
        server.listener.reloaded(new.label, changed, None)
        return new
