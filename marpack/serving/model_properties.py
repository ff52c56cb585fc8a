"""What a config.properties says of models: the JSON of its keys `models` and `model_snapshot`."""

from collections.abc import Iterator
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from marpack.archive.names import quoted
from marpack.errors import UsageError, first_line, nearest

T = TypeVar("T")

_HINT = 'write {"MODEL": {"VERSION": {"minWorkers": 1, "batchSize": 8}}}, with \\ before each line end'


class ModelProperties(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is said of one version of a model; a value of 0 or less says nothing."""

    min_workers: int | None = None
    max_workers: int | None = None
    batch_size: int | None = None
    max_batch_delay: int | None = None  # ms
    response_timeout: int | None = None  # s
    startup_timeout: int | None = None  # s
    default_version: bool | None = None
    mar_name: str | None = None


Models = dict[str, dict[str, ModelProperties]]  # {model: {version: …}}


class _Snapshot(Struct, frozen=True):
    """What the original writes of its models; some deployments write it by hand."""

    models: Models


def parse_models(text: str) -> Models:
    """Return the models of `models`; raise UsageError if it is no JSON of that form."""
    return _positive(_decoded(text, Models))


def parse_snapshot(text: str) -> Models:
    """Return the models of `model_snapshot`; raise UsageError if it is no JSON of that form."""
    return _positive(_decoded(text, _Snapshot).models)


def unknown_properties(text: str) -> Iterator[str]:
    """Yield a sentence for each property in `models` that says nothing here; raise UsageError as `parse_models`."""
    known = [field.encode_name for field in msgspec.structs.fields(ModelProperties)]
    for model, versions in _decoded(text, dict[str, dict[str, dict[str, object]]]).items():
        for version, properties in versions.items():
            for name in sorted(properties.keys() - known):
                meant = nearest(name, known)
                end = f"; did you mean {meant}?" if meant else ""
                yield f"models: {quoted(name)} of {quoted(model)} {quoted(version)} has no effect{end}"


def _decoded(text: str, form: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=form, strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise UsageError(f"this is no JSON of models and versions: {first_line(error)}", hint=_HINT) from None


def _positive(models: Models) -> Models:
    return {
        model: {version: _without_negative(properties) for version, properties in versions.items()}
        for model, versions in models.items()
    }


def _without_negative(properties: ModelProperties) -> ModelProperties:
    said = asdict(properties).items()
    return replace(properties, **{name: None for name, value in said if type(value) is int and value <= 0})
