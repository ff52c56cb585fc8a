"""`ts.model_loader`: load a model folder in this process, as handlers' own tests do."""

import json
from pathlib import Path
from typing import Any

from marpack.compat.entry import find_entry
from marpack.compat.service import Service
from marpack.runtime.envelopes.registry import envelope_of


class ModelLoader:
    """Loads a model folder that is on `sys.path`."""

    def load(  # noqa: PLR0913, PLR0917 - the contract's signature
        self,
        model_name: str,
        model_dir: str,
        handler: str | None = None,
        gpu_id: int | None = None,
        batch_size: int | None = None,
        envelope: str | None = None,
        limit_max_image_pixels: bool | None = True,
        metrics_cache: Any = None,  # Any: the contract names methods, not a class
    ) -> Service:
        """Return a service whose handler is initialised; raises whatever the handler raises."""
        entry = find_entry(str(handler))
        service = Service(
            model_name,
            model_dir,
            _manifest(model_dir),
            envelope_of(envelope, entry.handle),
            gpu_id,
            batch_size,
            bool(limit_max_image_pixels),
            metrics_cache,
        )
        entry.initialize(service.context)
        return service


class TsModelLoader(ModelLoader):
    """The one kind of loader there is."""


class ModelLoaderFactory:
    """Where the server gets its loader from."""

    @staticmethod
    def get_model_loader() -> TsModelLoader:
        """Return a loader."""
        return TsModelLoader()


def _manifest(model_dir: str) -> dict[str, Any] | None:
    path = Path(model_dir, "MAR-INF", "MANIFEST.json")
    if not path.exists():
        return None
    manifest: dict[str, Any] = json.loads(path.read_text())
    return manifest
