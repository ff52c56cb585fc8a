"""The Python API: `marpack.build`, `marpack.open`, `marpack.load`; the commands do the same.

In a copy of `examples/digits`:

>>> import marpack
>>> built = marpack.build(".")
>>> built.path.name, built.members
('digits.mar', 18)
>>> with marpack.open(built.path) as archive:
...     archive.manifest.model.handler
'handler.py'
>>> with marpack.load(built.path) as model:
...     answer = model.predict("samples/seven.png")
>>> answer.status, max(answer.json(), key=answer.json().get)
(200, '7')
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from marpack.archive.protocol import Archive
from marpack.archive.reader import open_archive
from marpack.errors import UsageError, shortened
from marpack.project.packing import pack
from marpack.project.plan import Built
from marpack.runner.inputs import Input as Named
from marpack.runner.inputs import RequestDefaults, request_id, type_of
from marpack.runner.pool import PoolSettings
from marpack.runner.results import Result, run
from marpack.runner.session import Device, Session
from marpack.torchserve.messages import MAX_BODY, Load, Part
from marpack.torchserve.targets import Target

Input = str | Path | bytes | Mapping[str, Any] | list[Any]  # Any: JSON


def build(project: str | Path = ".", *, output: str | Path | None = None, strict: bool = False) -> Built:
    """Build a project's archive.

    Args:
        project: The folder of a marpack.yaml, or that file itself.
        output: The archive's path, or a folder to put it in; `<name>.mar` beside marpack.yaml if None.
        strict: Whether warnings stop the build, too.

    Returns:
        Path, size in bytes, digest, number of members and seconds.

    Raises:
        ProjectError: holding every finding that stops the build.
        BuildError: the archive cannot be written.

    """
    from marpack.project.load import load_project  # noqa: PLC0415 - looking and loading do without
    from marpack.project.planning import plan_project  # noqa: PLC0415 - as above

    return pack(plan_project(load_project(Path(project)), output=output, strict=strict).plan)


def open(source: str | Path) -> Archive:  # noqa: A001 - `marpack.open` reads best
    """Open a .mar, a .tar.gz or a model folder, looking only: nothing of it is run, imported or unpickled.

    Raises NotAnArchiveError, DamagedArchiveError, UnsafeArchiveError or LimitExceededError.
    """
    return open_archive(source)


def load(  # noqa: PLR0913 - settings, each by its name
    source: str | Path | None = None,
    *,
    target: str | None = None,
    device: str = "auto",
    envelope: str | None = None,
    timeout: float | None = None,
    workers: int = 1,
    max_request_size: int = MAX_BODY,
    max_response_size: int = MAX_BODY,
) -> "Model":
    """Load a model in a worker process of its own, ready to answer; close it, or use it in a `with`.

    Args:
        source: An archive, a model folder or a project (built first if need be); None: the current folder's project.
        target: "torchserve" or "marpack", whose behaviour is shown; None: the project's or the archive's.
        device: "auto", "cpu", "cuda", "cuda:1", "xpu", "xpu:1", "mps" or "xla".
        envelope: The server's service_envelope: body, json, kserve or kservev2.
        timeout: Seconds that one request may take; None: as on the server, the config's responseTimeout or else 120.
        workers: Processes that share the requests of `predict_many`.
        max_request_size: Bytes of a request's body; beyond, it is a 413. The server's setting of that name.
        max_response_size: Bytes of an answer; beyond, its worker dies. The server's setting of that name.

    Raises:
        UsageError, ProjectError, ArchiveError: the source.
        LoadError: the handler could not be imported, constructed or initialised.

    """
    chosen = Device.parse(device)
    settings = PoolSettings(workers=workers, timeout=timeout, environment=chosen.environment())
    options = Load(model_dir="", gpu_id=chosen.gpu_id(), envelope=envelope, max_response_size=max_response_size)
    name = None if source is None else str(source)
    session = Session.open(name, options=options, target=Target(target) if target else None, settings=settings)
    return Model(session, max_request_size=max_request_size)


class Model:
    """A loaded model: give it inputs, get what a client of the server would get."""

    def __init__(self, session: Session, *, max_request_size: int = MAX_BODY) -> None:
        self._serving = session
        self._plain = RequestDefaults(max_request_size=max_request_size)
        self._sent = 0

    @property
    def handler(self) -> str:
        """The entry point: `module.Class` or `module:function`."""
        return self._serving.loaded.handler

    def predict(
        self,
        data: Input | None = None,
        *,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str | bytes | Path] | None = None,
        explain: bool = False,
    ) -> Result:
        """Answer one request.

        Args:
            data: A path to a file, `bytes` for a raw body, or anything else that JSON holds.
            content_type: Of the body; by default the file's, `application/json`, or none for bytes.
            headers: The request's headers.
            form: Form fields instead of `data`; a path sends the file.
            explain: Ask for an explanation instead of a prediction.

        Returns:
            The answer, with `status`, `body`, `json()` and, beside them, `troubles`: why it is what it is.

        Raises UsageError for a path that cannot be read.

        """
        headers_sent = tuple((headers or {}).items())
        shape = replace(self._plain, content_type=content_type, headers=headers_sent, explain=explain)
        return self._answered([self._input(shape, data, form)])[0]

    def predict_batch(self, batch: Iterable[Input]) -> list[Result]:
        """Answer several requests in one call of the handler, as the server does with `batchSize`."""
        asked = [self._input(self._plain, data, None) for data in batch]
        return self._answered(asked, batch_size=max(1, len(asked)))

    def predict_many(self, inputs: Iterable[Input]) -> list[Result]:
        """Answer several requests one by one, shared among the workers; results in the inputs' order."""
        return self._answered([self._input(self._plain, data, None) for data in inputs])

    def _input(
        self, shape: RequestDefaults, data: Input | None, form: Mapping[str, str | bytes | Path] | None
    ) -> Named:
        self._sent += 1
        name = request_id(self._sent)
        if form is not None:
            return shape.form(name, self._sent, [_field(key, value) for key, value in form.items()])
        content_type, body = _body(data)
        kind = content_type if shape.content_type is None else shape.content_type
        return shape.input(name, self._sent, kind, body)

    def _answered(self, asked: list[Named], *, batch_size: int = 1) -> list[Result]:
        return list(run(self._serving.pool, asked, batch_size=batch_size))

    def close(self) -> None:
        """End the worker and close the archive."""
        self._serving.__exit__(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bytes_of(path: str | Path) -> bytes:
    """Return a file's bytes; raises UsageError for what is none, such as a text that was meant for a body."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # the latter for a null byte
        hint = "text is sent as bytes: predict(text.encode(), content_type='text/plain')"
        what = f"a str or Path names a file, and this one cannot be read: {getattr(error, 'strerror', None) or error}"
        raise UsageError(what, where=shortened(str(path)), hint=hint) from error


def _body(data: Input | None) -> tuple[str, bytes]:
    if data is None:
        return "", b""
    if isinstance(data, bytes):
        return "", data
    if isinstance(data, str | Path):
        content = _bytes_of(data)
        return type_of(str(data), content), content
    return "application/json", json.dumps(data).encode()


def _field(name: str, value: str | bytes | Path) -> Part:
    if isinstance(value, Path):
        content = _bytes_of(value)
        return Part(name, content, type_of(str(value), content))
    return Part(name, value.encode() if isinstance(value, str) else value)
