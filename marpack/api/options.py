"""The options of each command, declared once for the command line, the Python functions, validation and the docs.

A field's type says which values it takes, its `Option` how the command line spells it and what it means. Positional
arguments of the command are positional in Python.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Sequence
from functools import cache, wraps
from inspect import Parameter, Signature, cleandoc
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import UNSET, Meta, Struct
from msgspec.structs import fields, replace

from marpack.errors import UsageError, did_you_mean, shortened

if TYPE_CHECKING:
    from marpack.archive.protocol import Limits

_P = ParamSpec("_P")
_Options = TypeVar("_Options", bound=Struct)
_Result = TypeVar("_Result")

Name = str | os.PathLike[str]  # of a file or a folder, or an address
Key = Name | bytes  # a file in PEM form, or its content
_MAX_INTEGER = (1 << 63) - 1


def limits_of(*, max_members: int | None = None, max_size: int | None = None, max_ratio: int | None = None) -> Limits:
    """Return the limits of archives, with defaults for those that are None."""
    from marpack.archive.protocol import Limits

    given = {"members": max_members, "total": max_size, "ratio": max_ratio}
    return Limits(**{name: value for name, value in given.items() if value is not None})


class Option(Struct, frozen=True):
    """The spelling and the meaning of an option.

    Args:
        help: A sentence that makes sense without the option's name.
        flags: The spellings on the command line; empty: the field's name with dashes. An argument has none.
        metavar: What stands for the value in the help.
        parse: The notation of the value on the command line, such as "size" for 500M.
        complete: What completes the value: "sources", "members" or "templates".
        default: What happens without the option, where the field's default does not say so.
        group: The heading in the help; empty: none.
        only_python: Whether the command line has another way to ask for it.
        hidden: Whether the help leaves it out.
    """

    help: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    parse: Literal["size", "seconds"] | None = None
    complete: Literal["sources", "members", "templates"] | None = None
    default: str = ""
    group: str = ""
    only_python: bool = False
    hidden: bool = False


# --- What several commands take -----------------------------------------------------------------------------------

_Above0 = Annotated[int, Meta(ge=1)]
_SOURCE = "A .mar, .tar.gz, model folder, project or address (https, s3, oci)."


class _OutsideOption(Struct, frozen=True, kw_only=True):
    allow_outside: Annotated[bool, Option("Allow a project to pack files from outside its folder.")] = False


class LimitOptions(_OutsideOption, frozen=True, kw_only=True):
    """What an archive may hold at most."""

    max_members: Annotated[
        _Above0 | None, Option("Maximum number of members in an archive.", metavar="N", default="65536")
    ] = None
    max_size: Annotated[
        _Above0 | None,
        Option("Maximum unpacked size of an archive, in bytes.", metavar="SIZE", parse="size", default="256G"),
    ] = None
    max_ratio: Annotated[_Above0 | None, Option("Maximum compression ratio.", metavar="N", default="100")] = None

    @property
    def limits(self) -> Limits:
        """The limits, with defaults for those that were not given."""
        return limits_of(max_members=self.max_members, max_size=self.max_size, max_ratio=self.max_ratio)


class _SourceArgument(LimitOptions, frozen=True):
    source: Annotated[Name | None, Option(_SOURCE, complete="sources", default="the project in this folder")] = None


class ModelOptions(_OutsideOption, frozen=True, kw_only=True):
    """How a model is loaded."""

    target: Annotated[
        Literal["torchserve", "marpack"] | None,
        Option("Server whose behavior applies.", default="the project's or the archive's", group="Model"),
    ] = None
    device: Annotated[
        str, Option("Device: auto, cpu, cuda, cuda:N, xpu:N, mps or xla.", metavar="DEVICE", group="Model")
    ] = "auto"
    env: Annotated[
        Literal["current", "isolated"],
        Option("Environment: this one, or a new one with the archive's requirements.", group="Model"),
    ] = "current"
    yes: Annotated[
        bool, Option("Confirm a download for --env isolated over 500 MB or of unknown size.", group="Model")
    ] = False
    compile: Annotated[bool, Option("Do not use torch.compile.", ("--no-compile",), group="Model")] = True
    trust_pickle: Annotated[bool, Option("Allow weights that can run code when loaded (unsafe).", group="Model")] = (
        False
    )
    metrics_config: Annotated[
        Name | None,
        Option("The server's metrics_config file.", metavar="FILE", default="the project's", group="Model"),
    ] = None
    trust_url: Annotated[bool, Option("Run a remote archive without a pinned digest.", group="Model")] = False


# --- One struct for each command ----------------------------------------------------------------------------------


class _InitArguments(Struct, frozen=True):
    folder: Annotated[Name | None, Option("Folder of the project.", metavar="DIR", default="the current folder")] = None


class InitOptions(_InitArguments, frozen=True, kw_only=True):
    """The options of `marpack init`."""

    template: Annotated[
        str | None,
        Option(
            "Template of the project.", ("-t", "--template"), "NAME", complete="templates", default="chosen by weights"
        ),
    ] = None
    from_: Annotated[
        Name | None, Option("Archive to turn back into the project that rebuilds it.", ("--from",), "ARCHIVE")
    ] = None
    name: Annotated[
        str | None, Option("Name of the model.", metavar="NAME", default="after the weights or the folder")
    ] = None
    version: Annotated[str | None, Option("Version of the model.", metavar="TEXT", default="1.0")] = None
    weights: Annotated[
        Name | None, Option("File with the weights.", metavar="FILE", default="the weights in the folder")
    ] = None
    model_file: Annotated[
        Name | None, Option("Python file with the model's class, for a state_dict.", metavar="FILE")
    ] = None
    handler: Annotated[str | None, Option("Built-in handler, file.py or file.py:function.", metavar="NAME|FILE")] = None
    labels: Annotated[
        Name | None, Option("File with the labels.", metavar="FILE", default="the labels in the folder")
    ] = None
    target: Annotated[
        Literal["torchserve", "marpack"] | None, Option("Server that the project is for.", default="torchserve")
    ] = None
    force: Annotated[bool, Option("Replace existing files.", ("-f", "--force"))] = False


class _BuildArguments(_OutsideOption, frozen=True):
    project: Annotated[
        Name | None,
        Option("Folder with a marpack.yaml, or that file.", complete="sources", default="the current folder"),
    ] = None


class BuildOptions(_BuildArguments, frozen=True, kw_only=True):
    """The options of `marpack build`. The last ten are those of torch-model-archiver, in place of a project."""

    output: Annotated[
        Name | None,
        Option("Archive to write, or a folder for it.", ("-o", "--output"), "PATH", default="NAME.mar in the project"),
    ] = None
    archive_format: Annotated[
        Literal["default", "zip-store", "tgz", "no-archive"] | None,
        Option("Format of the archive: .mar (default, zip-store), .tar.gz or a folder.", default="the project's"),
    ] = None
    force: Annotated[
        bool, Option("Replace an existing output. A project's output is always replaced.", ("-f", "--force"))
    ] = False
    strict: Annotated[bool, Option("Treat warnings as errors.")] = False
    source_commit: Annotated[
        str | None, Option("Commit of the sources to record: 40 or 64 hexadecimal digits.", metavar="SHA")
    ] = None
    vendor: Annotated[bool, Option("Resolve the requirements to wheels, write vendor.lock and pack the wheels.")] = (
        False
    )
    vendor_python: Annotated[
        str | None,
        Option("Python version of the server, with --vendor.", metavar="X.Y", default="marpack.yaml's, or 3.9"),
    ] = None
    vendor_platform: Annotated[
        Literal["linux_x86_64", "linux_aarch64", "any"] | None,
        Option("Platform of the server, with --vendor.", default="linux_x86_64"),
    ] = None
    model_name: Annotated[str | None, Option("Name of the model and of its archive.", metavar="NAME")] = None
    version: Annotated[str | None, Option("Version of the model.", ("-v", "--version"), "TEXT")] = None
    handler: Annotated[str | None, Option("Built-in handler, file.py or file.py:function.", metavar="NAME|FILE")] = None
    serialized_file: Annotated[Name | None, Option("File with the weights.", metavar="FILE")] = None
    model_file: Annotated[
        Name | None, Option("Python file with the model's class, for a state_dict.", metavar="FILE")
    ] = None
    extra_files: Annotated[
        Name | Sequence[Name] | None, Option("Files, globs and folders, separated by commas.", metavar="LIST")
    ] = None
    runtime: Annotated[
        Literal["python", "python3", "LSP"] | None, Option("Runtime to record in the manifest.", default="python")
    ] = None
    export_path: Annotated[
        Name | None, Option("Folder for the archive.", metavar="DIR", default="the current folder")
    ] = None
    requirements_file: Annotated[
        Name | None, Option("The model's requirements.txt.", ("-r", "--requirements-file"), "FILE")
    ] = None
    config_file: Annotated[
        Name | None, Option("The model's configuration, as YAML.", ("-c", "--config-file"), "FILE")
    ] = None


class InspectOptions(_SourceArgument, frozen=True, kw_only=True):
    """The options of `marpack inspect`."""

    verify: Annotated[bool, Option("Read every byte and recompute all digests and CRCs.")] = False
    sbom: Annotated[Name | None, Option("File for a CycloneDX 1.6 SBOM of the archive.", metavar="FILE")] = None
    max_opcodes: Annotated[
        _Above0 | None, Option("Maximum number of pickle opcodes to read.", metavar="N", default="2500000")
    ] = None


class _DiffArguments(LimitOptions, frozen=True):
    before: Annotated[Name, Option(_SOURCE, metavar="A", complete="sources")]
    after: Annotated[Name, Option(_SOURCE, metavar="B", complete="sources")]


class DiffOptions(_DiffArguments, frozen=True, kw_only=True):
    """The options of `marpack diff`."""

    verify: Annotated[bool, Option("Read every member instead of trusting recorded digests.")] = False


class _UnpackArguments(LimitOptions, frozen=True):
    source: Annotated[Name, Option("A .mar, .tar.gz, model folder or address (https, s3, oci).", complete="sources")]
    directory: Annotated[
        Name | None,
        Option("New folder for the files.", ("-d", "--directory"), "DIR", default="the archive's name"),
    ] = None


class UnpackOptions(_UnpackArguments, frozen=True, kw_only=True):
    """The options of `marpack unpack`."""

    only: Annotated[
        Sequence[str],
        Option("Extract only matching members, such as '*.py', 'data/*' or data.", metavar="GLOB", complete="members"),
    ] = ()
    force: Annotated[bool, Option("Replace the folder if it holds an unpacked archive.")] = False


class _ExportArguments(_OutsideOption, frozen=True):
    source: Annotated[
        Name | None,
        Option("A .mar, .tar.gz or project.", complete="sources", default="the project in this folder"),
    ] = None


class ExportOptions(_ExportArguments, frozen=True, kw_only=True):
    """The options of `marpack export`."""

    to: Annotated[Literal["docker", "kserve", "sagemaker", "ray-serve"], Option("Platform to export for.")]
    output: Annotated[
        Name | None, Option("New folder for the export.", ("-o", "--output"), "DIR", default="NAME-TO")
    ] = None
    force: Annotated[bool, Option("Replace a folder that an export has written.")] = False
    device: Annotated[Literal["cpu", "cuda"], Option("Device that the installed torch supports.")] = "cpu"
    wheel: Annotated[
        Name | None, Option("Wheel of marpack to install.", metavar="FILE", default="made from the installed files")
    ] = None
    lock: Annotated[
        Name | None, Option("File requirements.lock of an earlier export to use again.", metavar="FILE")
    ] = None
    no_lock: Annotated[bool, Option("Do not resolve the requirements to pinned versions and hashes.")] = False
    image: Annotated[str | None, Option("Name of the image, with its registry.", metavar="NAME")] = None
    storage_uri: Annotated[
        str | None,
        Option("Address of the archive for the platform: s3://…, gs://…, oci+native://….", metavar="URI"),
    ] = None
    role: Annotated[str | None, Option("ARN of the role for SageMaker.", metavar="ARN")] = None


class DoctorOptions(Struct, frozen=True, kw_only=True):
    """The options of `marpack doctor`."""

    clear_cache: Annotated[bool, Option("Remove all cached files that are not in use.")] = False


class _ArchiveArgument(Struct, frozen=True):
    archive: Annotated[Name, Option("A .mar or .tar.gz file.", complete="sources")]


class SignOptions(_ArchiveArgument, frozen=True, kw_only=True):
    """The options of `marpack sign`."""

    key: Annotated[Key, Option("Private key in PEM form (P-256, P-384 or P-521).", metavar="PRIVATE")]
    password: Annotated[str | None, Option("Password of the key.", only_python=True)] = None
    certificate: Annotated[
        Key | None, Option("Certificates of the key in PEM form, the signer's first.", metavar="FILE")
    ] = None
    output: Annotated[
        Name | None, Option("File for the signature.", ("-o", "--output"), "FILE", default="ARCHIVE.sig")
    ] = None
    force: Annotated[bool, Option("Replace an existing signature.")] = False

    def __repr__(self) -> str:
        """Name the archive only: the key and its password are secret."""
        return f"SignOptions({self.archive!r})"


class VerifyOptions(_ArchiveArgument, frozen=True, kw_only=True):
    """The options of `marpack verify`."""

    key: Annotated[Key | None, Option("Public key of the signer in PEM form.", metavar="PUBLIC")] = None
    ca: Annotated[Key | None, Option("Certificates of the trusted authority in PEM form.", metavar="FILE")] = None
    signature: Annotated[Name | None, Option("File with the signature.", metavar="FILE", default="ARCHIVE.sig")] = None
    require_check: Annotated[
        Name | None,
        Option("Attestation by marpack check --attest, which must say that the file passed.", metavar="FILE"),
    ] = None
    check_key: Annotated[
        Key | None, Option("Public key of the checker in PEM form.", metavar="PUBLIC", default="the signer's key")
    ] = None
    allow_unsigned: Annotated[bool, Option("Accept an unsigned attestation.")] = False


class _PushArguments(Struct, frozen=True):
    source: Annotated[Name, Option("A .mar or .tar.gz file.", metavar="FILE", complete="sources")]
    reference: Annotated[str, Option("Address in the registry.", metavar="oci://HOST/REPOSITORY:TAG")]


class PushOptions(_PushArguments, frozen=True, kw_only=True):
    """The options of `marpack push`."""

    attach: Annotated[
        Sequence[Name],
        Option("Signature, attestation or SBOM to attach.", metavar="FILE", complete="sources"),
    ] = ()
    no_attach: Annotated[bool, Option("Do not attach FILE.sig, FILE.intoto.json and FILE.cdx.json.")] = False
    plain_http: Annotated[bool, Option("Use HTTP without TLS. Registries on this machine need no option.")] = False


class _PullArguments(Struct, frozen=True):
    reference: Annotated[
        str, Option("Address in the registry; @sha256:… names one manifest.", metavar="oci://HOST/REPOSITORY:TAG")
    ]


class PullOptions(_PullArguments, frozen=True, kw_only=True):
    """The options of `marpack pull`."""

    output: Annotated[
        Name | None,
        Option("File or folder to write to.", ("-o", "--output"), "FILE|DIR", default="the archive's name"),
    ] = None
    force: Annotated[bool, Option("Replace existing files.")] = False
    no_attached: Annotated[bool, Option("Do not fetch signatures, attestations and SBOMs.")] = False
    plain_http: Annotated[bool, Option("Use HTTP without TLS. Registries on this machine need no option.")] = False
    max_size: Annotated[
        _Above0 | None,
        Option("Maximum size of the archive, in bytes.", metavar="SIZE", parse="size", default="256G"),
    ] = None


# --- What is made of the declarations -----------------------------------------------------------------------------


class Declared(Struct, frozen=True):
    """A field of an options struct, as the command line, validation and docs read it."""

    name: str
    type: Any  # Any: a type, a union or a generic alias
    option: Option
    default: Any  # Any: of that type; `UNSET` if a value is required
    is_positional: bool  # in Python, and on the command line unless it has flags


@cache
def declared(kind: type[Struct]) -> tuple[Declared, ...]:
    """Return a struct's options: positional ones, the command's own, and those that it shares with other commands."""
    hints = get_type_hints(kind, include_extras=True)
    parameters = Signature.from_callable(kind).parameters
    found = []
    for info in fields(kind):
        hint, *extras = get_args(hints[info.name])
        [option] = [extra for extra in extras if isinstance(extra, Option)]
        default = UNSET if info.required else info.default
        is_positional = parameters[info.name].kind is Parameter.POSITIONAL_OR_KEYWORD
        found.append(Declared(info.name, hint, option, default, is_positional))
    own = kind.__annotations__
    return tuple(sorted(found, key=lambda each: (not each.is_positional, each.name not in own)))


def operation(kind: Callable[_P, _Options]) -> Callable[[Callable[[_Options], _Result]], Callable[_P, _Result]]:
    """Return a decorator for a function of one options struct: it takes the struct's fields as arguments instead.

    The arguments are checked first: a wrong value is a UsageError that names the argument.
    """

    def decorate(function: Callable[[_Options], _Result]) -> Callable[_P, _Result]:
        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _Result:
            return function(valid(kind(*args, **kwargs)))

        assert isinstance(kind, type)  # noqa: S101 - a callable for type checkers alone, which infer its parameters
        call.__signature__ = _signature(kind, function)  # type: ignore[attr-defined]
        call.__doc__ = _document(kind, function.__doc__ or "")
        return call

    return decorate


def _signature(kind: type[Struct], function: Callable[..., object]) -> Signature:
    hints = get_type_hints(kind)
    parameters = [
        Parameter(
            each.name,
            Parameter.POSITIONAL_OR_KEYWORD if each.is_positional else Parameter.KEYWORD_ONLY,
            default=Parameter.empty if each.default is UNSET else each.default,
            annotation=hints[each.name],
        )
        for each in declared(kind)
    ]
    return Signature(parameters, return_annotation=function.__annotations__["return"])


def _document(kind: type[Struct], text: str) -> str:
    """Return a docstring with the arguments before its other sections."""
    lines = []
    for each in declared(kind):
        default = f" Default: {each.option.default}." if each.option.default else ""
        lines.append(f"    {each.name}: {each.option.help}{default}")
    arguments = "\n".join(["Args:", *lines])
    body = cleandoc(text)
    before, section, rest = body.partition("\n\nReturns:\n")
    if not section:
        before, section, rest = body.partition("\n\nRaises:\n")
    return f"{before}\n\n{arguments}{section}{rest}"


def valid(options: _Options) -> _Options:
    """Return options with paths as text and lists as tuples; raises UsageError for a value that does not fit."""
    changed = {}
    for each in declared(type(options)):
        given = getattr(options, each.name)
        value = _plain(given)
        if not _fits(value, each.type):
            expected = _expected(each.type)
            near = did_you_mean(value, _choices(each.type)) if isinstance(value, str) else None
            what = f"{shortened(repr(value), 40)} is not {expected}"
            raise UsageError(what, where=each.name, hint=near or f"Set {each.name} to {expected}.")
        if value is not given:
            changed[each.name] = value
    return replace(options, **changed) if changed else options


def _plain(value: Any) -> Any:  # Any: whatever a caller gives
    """Return a path as text, and a list, set or tuple as a tuple of these."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | set | frozenset | tuple):
        return tuple(map(_plain, value))
    return value


def _fits(value: object, hint: Any) -> bool:  # Any: a type, a union or a generic alias
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is Annotated:
        return _fits(value, inner[0]) and value >= inner[1].ge and (inner[1].le is None or value <= inner[1].le)
    if origin is Sequence:
        return isinstance(value, tuple) and all(_fits(each, inner[0]) for each in value)
    if origin is os.PathLike:
        return False  # it is text by now
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and value <= _MAX_INTEGER
    return isinstance(value, hint)


def _choices(hint: Any) -> tuple[str, ...]:  # Any: as above
    """Return the values of a type that takes a few texts only."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(choice for each in get_args(hint) for choice in _choices(each))


def _expected(hint: Any) -> str:  # Any: as above
    """Return what a type takes, as it ends a sentence."""
    if choices := _choices(hint):
        return f"one of {', '.join(choices)}"
    kinds = {get_origin(each) or each for each in (hint, *get_args(hint))}
    if Sequence in kinds:
        return "a list"
    if os.PathLike in kinds:
        return "a path or bytes" if bytes in kinds else "a path"
    if bool in kinds:
        return "True or False"
    return "an integer of 1 or more" if kinds & {int, Annotated} else "a string"
