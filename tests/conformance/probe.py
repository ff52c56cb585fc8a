"""A probe: one small archive, what is asked of it, and under which settings; it knows no transport."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HANDLERS = Path(__file__).parent / "handlers"
PICTURES = Path(__file__).parent / "pictures"


@dataclass(frozen=True)
class Field:
    """One field of a form; a file where it has a file name."""

    name: str
    value: bytes
    filename: str | None = None
    content_type: str | None = None


@dataclass(frozen=True, kw_only=True)
class Form:
    """A body made of fields."""

    fields: tuple[Field, ...]
    urlencoded: bool = False


@dataclass(frozen=True)
class Call:
    """One request: a raw body, or a form."""

    name: str  # unique in its probe; a recording is found by it
    body: bytes | str | Path | Form = b""
    content_type: str | None = None  # of a raw body; a form brings its own
    headers: tuple[tuple[str, str], ...] = ()
    route: str = "predictions"  # or explanations
    url_path: str = ""  # what follows the version in the path

    def raw(self) -> bytes:
        """Return the bytes of a raw body."""
        assert not isinstance(self.body, Form)
        if isinstance(self.body, Path):
            return self.body.read_bytes()
        return self.body.encode() if isinstance(self.body, str) else self.body


@dataclass(frozen=True)
class Batch:
    """Requests that the server hands to the handler together, in this order."""

    name: str
    calls: tuple[Call, ...]


Step = Call | Batch


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One archive and the requests to send to it, in order."""

    name: str  # a model's name: letters, digits, - and _
    files: Mapping[str, str | bytes | Path] = field(default_factory=dict)  # member → content, or a file to take
    make: Callable[[Path], Mapping[str, Path]] | None = None  # makes further members (weights) in a folder
    model: Mapping[str, Any] = field(default_factory=dict)  # the manifest's "model", over name, version and handler
    manifest: bytes | None = None  # the whole manifest, where it is one that marpack would not write
    archive: Callable[[Path], Path] | None = None  # writes the whole archive into a folder, in place of all these
    steps: tuple[Step, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)  # of the registration: response_timeout, …
    batch_size: int = 1
    envelope: str | None = None  # the server's setting service_envelope: nothing in an archive can ask for one
    numeric: bool = False  # answers hold floats whose last digits are the machine's: recordings hold to 1e-5
    live_only: bool = False  # too large to record
    settled: bool = False  # takes long or depends on chance: only the recording asks the server
    stricter: str | None = None  # why marpack refuses what the server takes
    unmatched: str | None = None  # what marpack does not do as the server does, as yet
    settings: Mapping[str, str] = field(default_factory=dict)  # of the server, in config.properties
    environment: Mapping[str, str] = field(default_factory=dict)  # what those settings are to a worker

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every request, those of batches too."""
        return tuple(call for step in self.steps for call in (step.calls if isinstance(step, Batch) else (step,)))


def handler(name: str) -> Path:
    """Return the path of one of the probe handlers kept beside this module."""
    return HANDLERS / f"{name}.py"


def asked(name: str, source: str | Path, bodies: Mapping[str, str | bytes], **options: Any) -> Probe:
    """Return a probe of a handler that is sent bodies by their names."""
    calls = tuple(Call(call, body) for call, body in bodies.items())
    return Probe(name=name, files={"handler.py": source}, steps=calls, **options)
