"""The options of the commands that make, inspect and move archives; `marpack.api.declaring` reads them."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from marpack.api.declaring import Key, Name, Option
from marpack.weights.hugging_face import Task

# --- Options of several commands ----------------------------------------------------------------------------------

Above0 = Annotated[int, Meta(ge=1)]
Platform = Literal["docker", "kserve", "sagemaker", "ray-serve"]
SOURCE = "A .mar, .tar.gz, model folder, project or address (https, s3)."
OptionalSource = Annotated[Name | None, Option(SOURCE, complete="sources", default="the project in this folder")]
MaxMembers = Annotated[Above0 | None, Option("Maximum number of members in an archive.", default="65536")]
MaxSize = Annotated[Above0 | None, Option("Maximum unpacked size of an archive.", parse="size", default="256G")]
MaxRatio = Annotated[Above0 | None, Option("Maximum compression ratio.", default="100")]
MaxOpcodes = Annotated[Above0 | None, Option("Maximum number of pickle opcodes to read.", default="2500000")]
_Handler = Annotated[str | None, Option("Built-in handler, file.py or file.py:function.", metavar="NAME|FILE")]
_ModelFile = Annotated[Name | None, Option("Python file with the model's class, for a state_dict.")]


class OutsideOption(Struct, frozen=True, kw_only=True):
    """Which files a project may pack."""

    allow_outside: Annotated[bool, Option("Allow a project to pack files from outside its folder.")] = False


class LimitOptions(OutsideOption, frozen=True, kw_only=True):
    """How an archive is opened."""

    max_members: MaxMembers = None
    max_size: MaxSize = None
    max_ratio: MaxRatio = None


class _SourceArgument(LimitOptions, frozen=True):
    source: OptionalSource = None


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
    version: Annotated[str | None, Option("Version of the model.", default="1.0")] = None
    weights: Annotated[Name | None, Option("File with the weights.", default="the weights in the folder")] = None
    model_file: _ModelFile = None
    handler: _Handler = None
    labels: Annotated[Name | None, Option("File with the labels.", default="the labels in the folder")] = None
    target: Annotated[
        Literal["torchserve", "marpack"] | None, Option("Server that the project is for.", default="torchserve")
    ] = None
    task: Annotated[
        Task | None,
        Option("Task of a Hugging Face model, such as fill-mask.", metavar="TASK", default="by its config.json"),
    ] = None
    trust_remote_code: Annotated[bool, Option("Let the handler run a Hugging Face model's Python code.")] = False
    force: Annotated[bool, Option("Replace existing files.", ("-f", "--force"))] = False


class _MigrateArguments(Struct, frozen=True):
    source: Annotated[
        Name,
        Option("Model store, config.properties, Dockerfile, compose file, manifest, script, model.tar.gz or folder."),
    ]


class MigrateOptions(_MigrateArguments, frozen=True, kw_only=True):
    """The options of `marpack migrate`."""

    output: Annotated[Name | None, Option("New or empty folder.", ("-o", "--output"), "DIR", default="migrated")] = None
    to: Annotated[Platform | None, Option("Platform to export every model for.", default="no export")] = None
    check: Annotated[bool, Option("Also load every model and check its responses.")] = False
    samples: Annotated[Name | None, Option("Folder with inputs for --check, as DIR/MODEL/FILE.", metavar="DIR")] = None


class _BuildArguments(OutsideOption, frozen=True):
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
        Literal["default", "zip-store", "tgz", "no-archive", "sagemaker"] | None,
        Option("Format: .mar (default, zip-store), .tar.gz, folder or SageMaker's tar.", default="the project's"),
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
    version: Annotated[str | None, Option("Version of the model.", ("-v", "--version"))] = None
    handler: _Handler = None
    serialized_file: Annotated[Name | None, Option("File with the weights.")] = None
    model_file: _ModelFile = None
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
        Name | None, Option("File with the model's requirements.", ("-r", "--requirements-file"))
    ] = None
    config_file: Annotated[
        Name | None, Option("YAML file with the model's configuration.", ("-c", "--config-file"))
    ] = None


class InspectOptions(_SourceArgument, frozen=True, kw_only=True):
    """The options of `marpack inspect`."""

    verify: Annotated[bool, Option("Read every byte and recompute all digests and CRCs.")] = False
    sbom: Annotated[Name | None, Option("File for a CycloneDX 1.6 SBOM of the archive.")] = None
    max_opcodes: MaxOpcodes = None


class _DiffArguments(LimitOptions, frozen=True):
    before: Annotated[Name, Option(SOURCE, metavar="A", complete="sources")]
    after: Annotated[Name, Option(SOURCE, metavar="B", complete="sources")]


class DiffOptions(_DiffArguments, frozen=True, kw_only=True):
    """The options of `marpack diff`."""

    verify: Annotated[bool, Option("Read every member instead of trusting recorded digests.")] = False


class _UnpackArguments(LimitOptions, frozen=True):
    source: Annotated[Name, Option("A .mar, .tar.gz, model folder or address (https, s3).", complete="sources")]
    directory: Annotated[
        Name | None,
        Option(
            "New folder for the files.",
            ("-o", "--output"),
            "DIR",
            default="the archive's name",
            old_flags=("-d", "--directory"),
        ),
    ] = None


class UnpackOptions(_UnpackArguments, frozen=True, kw_only=True):
    """The options of `marpack unpack`."""

    only: Annotated[
        Sequence[str],
        Option("Extract only matching members, such as '*.py', 'data/*' or data.", metavar="GLOB", complete="members"),
    ] = ()
    force: Annotated[bool, Option("Replace the folder if it holds an unpacked archive.")] = False


class _ExportArguments(OutsideOption, frozen=True):
    source: Annotated[
        Name | None,
        Option("A .mar, .tar.gz or project.", complete="sources", default="the project in this folder"),
    ] = None


class ExportOptions(_ExportArguments, frozen=True, kw_only=True):
    """The options of `marpack export`."""

    to: Annotated[Platform, Option("Platform to export for.")]
    output: Annotated[
        Name | None, Option("New folder for the export.", ("-o", "--output"), "DIR", default="NAME-TO")
    ] = None
    force: Annotated[bool, Option("Replace a folder that an export has written.")] = False
    dry_run: Annotated[bool, Option("Show the files and findings; write nothing.")] = False
    device: Annotated[Literal["cpu", "cuda"], Option("Device that the installed torch supports.")] = "cpu"
    wheel: Annotated[Name | None, Option("Wheel of marpack to install.", default="made from the installed files")] = (
        None
    )
    lock: Annotated[Name | None, Option("File requirements.lock of an earlier export, to use again.")] = None
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

    key: Annotated[Key, Option("Private key in PEM form (P-256, P-384 or P-521): a file, or env:NAME.", metavar="KEY")]
    password: Annotated[str | None, Option("Password of the key.", only_python=True)] = None
    certificate: Annotated[Key | None, Option("Certificates of the key in PEM form, the signer's first.")] = None
    output: Annotated[Name | None, Option("File for the signature.", ("-o", "--output"), default="ARCHIVE.sig")] = None
    force: Annotated[bool, Option("Replace an existing signature.")] = False

    def __repr__(self) -> str:
        """Name the archive only: the key and its password are secret."""
        return f"SignOptions({self.archive!r})"


class VerifyOptions(_ArchiveArgument, frozen=True, kw_only=True):
    """The options of `marpack verify`."""

    key: Annotated[Key | None, Option("Public key of the signer in PEM form: a file, or env:NAME.", metavar="KEY")] = (
        None
    )
    ca: Annotated[Key | None, Option("Certificates of the trusted authority in PEM form.")] = None
    signature: Annotated[Name | None, Option("File with the signature.", default="ARCHIVE.sig")] = None
