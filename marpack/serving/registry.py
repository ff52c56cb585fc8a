"""All models of a server, by name and version."""

from collections.abc import Iterator

from marpack.errors import UsageError
from marpack.serving.models import ModelState, ServedModel
from marpack.torchserve.http import RequestError


class Registry:
    """All models of a server. The first version of a name is its default until another one is set."""

    def __init__(self) -> None:
        self._versions: dict[str, dict[str, ServedModel]] = {}
        self._defaults: dict[str, ServedModel] = {}
        self._started: set[str] = set()  # names with a version that was loaded at start
        self.is_complete = False  # whether the models of the start are in it

    def __iter__(self) -> Iterator[ServedModel]:
        """Yield every version of every model."""
        for versions in self._versions.values():
            yield from versions.values()

    def add(self, model: ServedModel) -> None:
        """Add a version; raise RequestError (409) if it exists."""
        versions = self._versions.setdefault(model.name, {})
        if model.version in versions:
            message = f"Model version {model.version} is already registered for model {model.name}"
            raise RequestError(message, status=409, kind="ConflictStatusException")
        versions[model.version] = model
        self._defaults.setdefault(model.name, model)
        if model.loaded_at_start:
            self._started.add(model.name)

    def find(self, name: str, version: str | None = None) -> ServedModel:
        """Return a version of a model, by default its default version; raise RequestError (404)."""
        versions = self.versions(name)
        if version is None:
            return self._defaults[name]
        if version not in versions:
            message = f"Model version: {version} does not exist for model: {name}"
            raise RequestError(message, status=404, kind="ModelVersionNotFoundException")
        return versions[version]

    def versions(self, name: str) -> dict[str, ServedModel]:
        """Return all versions of a model; raise RequestError (404)."""
        if name not in self._versions:
            raise RequestError(f"Model not found: {name}", status=404, kind="ModelNotFoundException")
        return self._versions[name]

    def is_default(self, model: ServedModel) -> bool:
        """Return whether a version is its model's default."""
        return self._defaults.get(model.name) is model

    def set_default(self, name: str, version: str) -> None:
        """Make a version its model's default; raise RequestError (404)."""
        versions = self.versions(name)
        if version not in versions:
            message = f"Model version {version} does not exist for model {name}"
            raise RequestError(message, status=404, kind="ModelVersionNotFoundException")
        self._defaults[name] = versions[version]

    def remove(self, name: str, version: str | None = None) -> ServedModel:
        """Remove and return a version, by default the default version.

        Raises RequestError: 404, and 403 for the default version while there are others.
        """
        model = self.find(name, version)
        if self.is_default(model) and len(self._versions[name]) > 1:
            message = f"Cannot remove default version for model {name}"
            raise RequestError(message, status=403, kind="InvalidModelVersionException")
        self.discard(model)
        return model

    def discard(self, model: ServedModel) -> None:
        """Remove a version, if it is registered; the oldest of the others replaces a default version."""
        versions = self._versions.get(model.name, {})
        if versions.get(model.version) is not model:
            return
        del versions[model.version]
        if not versions:
            del self._versions[model.name], self._defaults[model.name]
            self._started.discard(model.name)
        elif self._defaults[model.name] is model:
            self._defaults[model.name] = next(iter(versions.values()))

    def replace(self, old: ServedModel, new: ServedModel) -> bool:
        """Put a model in another's place, under its own name and version; return False if the other is not registered.

        Raises UsageError if a third model is registered under that name and version.
        """
        if self._versions.get(old.name, {}).get(old.version) is not old:
            return False
        if self._versions.get(new.name, {}).get(new.version) not in (None, old):
            what = f"version {new.version} of the model {new.name} is already registered"
            raise UsageError(what, hint="Give each version of a model its own modelVersion.")
        was_default = self.is_default(old)
        self.discard(old)
        self.add(new)
        if was_default:
            self._defaults[new.name] = new
        return True

    def only_model(self) -> ServedModel | None:
        """Return the model for requests without a model name: the only one that was loaded at start, in any version."""
        return self._defaults[min(self._started)] if len(self._started) == 1 else None

    @property
    def is_ready(self) -> bool:
        """Whether every default version is ready, once the models of the start are in the registry."""
        return self.is_complete and all(
            model.state in {ModelState.READY, ModelState.EMPTY} for model in self._defaults.values()
        )

    @property
    def is_healthy_for_torchserve(self) -> bool:
        """Whether every default version has workers, or may still get them."""
        return not any(model.workers and model.is_dead for model in self._defaults.values())
