"""The result of `inspect` as data, and the shape of its JSON."""

from typing import Any

from msgspec import Struct

from marpack.archive.index import Metadata, Vendored
from marpack.archive.protocol import ArchiveForm, Method
from marpack.findings import Finding
from marpack.inspection.pickles import PickleScan
from marpack.weights.kind import Program, WeightsFormat
from marpack.weights.tensors import Port, ScriptMethod


class MemberFacts(Struct, frozen=True, kw_only=True):
    """One file of the archive."""

    name: str
    size: int  # bytes, uncompressed
    compressed_size: int  # bytes in the archive
    method: Method
    sha256: str | None = None  # as recorded in MAR-INF/marpack.json, or computed by `verify`


class LabelFacts(Struct, frozen=True, kw_only=True):
    """The labels in index_to_name.json."""

    count: int = 0
    first: tuple[str, ...] = ()  # the first five, by index
    problem: str | None = None  # why they cannot be read


class ConfigFacts(Struct, frozen=True, kw_only=True):
    """The model config."""

    file: str
    text: str
    value: Any = None  # Any: the YAML's values as JSON; None if they were not requested
    problem: str | None = None  # why it cannot be read


class HandlerFacts(Struct, frozen=True, kw_only=True):
    """Where requests enter, read from the source text."""

    entry_point: str  # the manifest's: "handler.py:function", "image_classifier"
    file: str | None = None  # None for a built-in
    function: str | None = None
    class_name: str | None = None
    bases: tuple[str, ...] = ()  # as they are written
    stages: tuple[str, ...] = ()  # the stages that the class defines itself, in the order they run
    problem: str | None = None  # why nothing more is known


class TensorFacts(Struct, frozen=True, kw_only=True):
    """One tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


class WeightsFacts(Struct, frozen=True, kw_only=True):
    """One weights file, from its headers."""

    member: str
    kind: WeightsFormat
    tensors: int = 0
    parameters: int = 0  # numbers in all tensors, buffers included
    bytes: int = 0  # that the tensors take, shared storages counted once
    dtypes: dict[str, int] = {}  # tensors of each
    largest: tuple[TensorFacts, ...] = ()  # ten at most
    methods: tuple[ScriptMethod, ...] = ()
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    metadata: dict[str, str] = {}
    facts: dict[str, str] = {}
    problem: str | None = None


class Verified(Struct, frozen=True, kw_only=True):
    """What `--verify` read: every byte of every member."""

    members: int
    bytes: int
    intact: bool
    signed_off: bool  # the digests were compared with those in MAR-INF/marpack.json


class Inspection(Struct, frozen=True, kw_only=True):
    """Everything that is known of an archive without running it."""

    source: str
    form: ArchiveForm
    content_digest: str | None  # SHA-256 of MAR-INF/marpack.json, if the archive has this file
    manifest: dict[str, Any]  # Any: JSON
    provenance: dict[str, str] = {}
    vendored: Vendored | None = None  # packages in the archive
    metadata: Metadata | None = None  # the author's description of the model
    target: str | None = None  # torchserve or marpack
    samples: int = 0  # number of packed samples
    members: tuple[MemberFacts, ...]
    handler: HandlerFacts
    labels: LabelFacts | None = None
    config: ConfigFacts | None = None
    requirements: tuple[str, ...] = ()
    weights: tuple[WeightsFacts, ...] = ()
    pickles: PickleScan = PickleScan()
    programs: tuple[Program, ...] = ()  # native and generated code
    verified: Verified | None = None
    findings: tuple[Finding, ...] = ()
