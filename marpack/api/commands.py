"""The commands as functions, by their names, with their options by theirs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from marpack.api import operations
from marpack.archive.protocol import no_progress
from marpack.errors import UsageError
from marpack.torchserve.messages import MAX_BODY

if TYPE_CHECKING:
    from marpack.api.results import BuildReport, Diff, GateReport, InitReport, Inspection, RunReport, Unpacked
    from marpack.archive.protocol import Archive
    from marpack.findings import Finding

Name = str | os.PathLike[str]  # of a file or a folder, or an address
_FILES = ("weights", "model_file", "labels")


def init(
    folder: Name | None = None,
    *,
    template: str | None = None,
    from_: Name | None = None,
    name: str | None = None,
    version: str | None = None,
    weights: Name | None = None,
    model_file: Name | None = None,
    handler: str | None = None,
    labels: Name | None = None,
    target: Literal["torchserve", "marpack"] | None = None,
    force: bool = False,
) -> InitReport:
    """Start a project: a marpack.yaml, and what else it needs, around the weights and labels in a folder.

    Args:
        folder: Where it goes; None: the current folder, or with `from_` a new one of the model's name.
        template: The kind of project; None: as the weights need.
        from_: An archive to turn back into the project that rebuilds it.
        name: The model's name; None: after the weights, or the folder.
        version: The model's version; None: "1.0".
        weights: The file of the weights; None: those in the folder.
        model_file: For a state_dict, the file with its class.
        handler: A built-in, "file.py" or "file.py:function".
        labels: The file of the labels; None: those in the folder.
        target: Who will serve it.
        force: Whether files that are there already are replaced.

    Returns:
        What was written, replaced and skipped, and what was noticed.

    Raises:
        UsageError: an option that cannot be.
        ScaffoldError: the files cannot be written.

    """
    options = operations.valid(locals())
    from marpack.api import results

    place, archive = options["folder"], options["from_"]
    options |= {name: Path(options[name]) for name in _FILES if options[name] is not None}
    if archive is None:
        return results.InitReport.of(operations.project_from_template(Path(place or ""), options))
    return results.InitReport.of(operations.project_from_archive(archive, Path(place) if place else None, options))


def build(
    project: Name | None = None,
    *,
    output: Name | None = None,
    archive_format: Literal["default", "zip-store", "tgz", "no-archive"] | None = None,
    force: bool = False,
    strict: bool = False,
    model_name: str | None = None,
    version: str | None = None,
    handler: str | None = None,
    serialized_file: Name | None = None,
    model_file: Name | None = None,
    extra_files: Name | Sequence[Name] | None = None,
    runtime: Literal["python", "python3", "LSP"] | None = None,
    export_path: Name | None = None,
    requirements_file: Name | None = None,
    config_file: Name | None = None,
) -> BuildReport:
    """Pack a model into one archive: a project's or, in its place, what the original archiver's arguments name.

    Args:
        project: The folder of a marpack.yaml, or that file itself; None: the current folder, or the arguments below.
        output: The archive's path, or a folder to put it in; None: `<name>.mar` beside marpack.yaml.
        archive_format: A .mar, a .tar.gz or a plain folder; None: the project's.
        force: With the arguments below: replace an existing output (a project's always is).
        strict: Whether warnings stop the build, too.
        model_name: Name of the model and of its archive.
        version: The model's version.
        handler: A built-in, "file.py" or "file.py:function".
        serialized_file: The weights.
        model_file: For eager models: the file with the model's class.
        extra_files: Files, globs and folders: several, or one text in which commas separate them.
        runtime: What runs the handler; None: "python".
        export_path: The folder for the archive; None: the current one.
        requirements_file: The model's requirements.txt.
        config_file: The model's configuration, as YAML.

    Returns:
        Path, format, size in bytes, digest, number of members, seconds, what was noticed.

    Raises:
        UsageError: arguments that do not go together.
        ProjectError: holding every finding that stops the build.
        BuildError: the archive cannot be written.

    """
    options = operations.valid(locals())
    from marpack.api import results
    from marpack.project.packing import pack

    options["extra_files"] = None if extra_files is None else _joined(extra_files)
    found = operations.planned(options["project"], options)
    return results.BuildReport.of(operations.build_report(found, pack(found.plan)))


def _joined(files: Name | Sequence[Name]) -> str:
    """Return files as the original archiver takes them; raises UsageError for a name that it would take for two."""
    if isinstance(files, str | os.PathLike):
        return operations.named(files, "extra_files")
    names = [operations.named(each, "extra_files") for each in files]
    torn = next((name for name in names if "," in name), None)
    if torn is not None:
        raise UsageError("a comma separates two files here", where=f"extra_files: {torn}", hint="rename the file")
    return ",".join(names)


def open(source: Name) -> Archive:  # noqa: A001 - `marpack.open` reads best
    """Open a .mar, a .tar.gz or a model folder, looking only: nothing of it is run, imported or unpickled.

    Raises NotAnArchiveError, DamagedArchiveError, UnsafeArchiveError or LimitExceededError.
    """
    from marpack.api.settings import cache_of
    from marpack.archive.reader import open_archive

    return open_archive(operations.named(source), cache=cache_of())


def inspect(
    source: Name | None = None,
    *,
    verify: bool = False,
    max_members: int | None = None,
    max_size: int | None = None,
    max_ratio: int | None = None,
    max_opcodes: int | None = None,
) -> Inspection:
    """Tell what is in an archive: nothing of it is run, imported or unpickled.

    Args:
        source: A .mar, a .tar.gz, a model folder, an address (https, s3) or a project; None: the current folder's.
        verify: Read every byte: recompute all digests and CRCs.
        max_members: Take that many members; None: 65536.
        max_size: Take that many bytes unpacked; None: 256 GiB.
        max_ratio: Take what expands that many times; None: 100.
        max_opcodes: Read that many opcodes of pickles; None: 2500000.

    Raises:
        UsageError, ProjectError: the source.
        ArchiveError: what is no archive, or none that can be opened safely.

    """
    name = operations.valid(locals())["source"]
    from marpack.api import results

    limits = operations.chosen_limits(max_members, max_size, max_ratio)
    seen = operations.inspected(name, limits, no_progress, verify=verify, parse_config=True, max_opcodes=max_opcodes)
    return results.Inspection.of(seen)


def diff(
    before: Name,
    after: Name,
    *,
    verify: bool = False,
    max_members: int | None = None,
    max_size: int | None = None,
    max_ratio: int | None = None,
) -> Diff:
    """Compare two archives: manifest, members, config, labels and, number by number, the tensors.

    Args:
        before: A .mar, a .tar.gz, a model folder, an address (https, s3) or a project.
        after: Likewise.
        verify: Read every member, instead of trusting recorded digests.
        max_members: As in `inspect`.
        max_size: Likewise.
        max_ratio: Likewise.

    Raises as `inspect` does.
    """
    operations.valid(locals())
    from marpack.api import results

    limits = operations.chosen_limits(max_members, max_size, max_ratio)
    first, second = operations.named(before, "before"), operations.named(after, "after")
    return results.Diff.of(operations.compared(first, second, limits, no_progress, verify=verify))


def unpack(
    source: Name,
    directory: Name | None = None,
    *,
    only: Sequence[str] = (),
    force: bool = False,
    max_members: int | None = None,
    max_size: int | None = None,
    max_ratio: int | None = None,
) -> Unpacked:
    """Extract an archive into a new folder, safely, or not at all.

    Args:
        source: A .mar, a .tar.gz, a model folder or the address of a .mar.
        directory: The new folder; None: one of the archive's name, in the current folder.
        only: Only members that match one of these: "*.py", "data/*", "data".
        force: Replace the folder, if it holds an archive unpacked before.
        max_members: As in `inspect`.
        max_size: Likewise.
        max_ratio: Likewise.

    Raises:
        UsageError: the source, or a folder that is there.
        ArchiveError: names that lead elsewhere, links, bombs, damaged bytes.
        ExtractionError: the files cannot be written.

    """
    options = operations.valid(locals())
    from marpack.api import results

    name = operations.named(source)
    folder = operations.folder_named_after(name) if directory is None else Path(options["directory"])
    if folder is None:
        raise UsageError("this has no name that a folder could have", where=name, hint="name the new folder")
    limits = operations.chosen_limits(max_members, max_size, max_ratio)
    return results.Unpacked.of(
        operations.unpacked(name, folder, limits, no_progress, only=options["only"], force=force)
    )


def check(
    source: Name | None = None,
    *,
    inputs: Iterable[Any] = (),  # Any: whatever JSON holds
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    seconds_per_check: float = 10.0,
    tolerance: float = 1e-3,
    allow_unproved: Sequence[str] = (),
    stand_ins: Literal["on", "off", "auto"] | None = None,
    content_type: str | None = None,
    headers: Mapping[str, str] | None = None,
    explain: bool = False,
    describe: bool = False,
    envelope: Literal["body", "json", "kserve", "kservev2"] | None = None,
    max_request_size: int = MAX_BODY,
    max_response_size: int = MAX_BODY,
    target: Literal["torchserve", "marpack"] | None = None,
    device: str = "auto",
    compile: bool = True,  # noqa: A002 - the option's name
    timeout: float | None = None,
    startup_timeout: float | None = None,
    env: Literal["current", "isolated"] = "current",
    trust_pickle: bool = False,
    metrics_config: Name | None = None,
    max_members: int | None = None,
    max_size: int | None = None,
    max_ratio: int | None = None,
    max_opcodes: int | None = None,
) -> GateReport:
    """Say whether an archive may be deployed.

    Args:
        source: A .mar, a .tar.gz, a model folder or a project (built first if need be); None: the current folder's.
        inputs: What is asked beside the packed samples: of the kinds that `Model.predict` takes.
        only: Run only these checks.
        skip: Leave these checks out.
        seconds_per_check: That each check which repeats samples may take: the command's `--patience`.
        tolerance: Between numbers that agree.
        allow_unproved: "inputs", "gpu": say yes although nothing answered, or nothing on a GPU.
        stand_ins: Whether requests are made up where there are none; None: the project's word.
        content_type: Of the inputs; None: their own.
        headers: The requests' headers.
        explain: Ask for explanations instead of predictions.
        describe: Ask the model to describe itself.
        envelope: The server's setting service_envelope.
        max_request_size: The server's setting of that name, in bytes.
        max_response_size: Likewise.
        target: Whose behaviour counts; None: the project's or the archive's.
        device: "auto", "cpu", "cuda", "cuda:1", "xpu", "xpu:1", "mps" or "xla".
        compile: False leaves torch.compile out, whatever the config says.
        timeout: Seconds for a batch; None: the config's responseTimeout, or 120.
        startup_timeout: Seconds for loading; None: the config's startupTimeout, or 120.
        env: "isolated": with the archive's requirements.
        trust_pickle: Load weights that may run code of their makers.
        metrics_config: The server's setting of that name; None: the project's.
        max_members: As in `inspect`.
        max_size: Likewise.
        max_ratio: Likewise.
        max_opcodes: Likewise.

    Returns:
        The verdict, and every check with what it found; `deployable` is its yes or no.

    Raises:
        UsageError, ProjectError: the source, an input or an option. What is wrong with the archive is in the report.

    """
    options = operations.valid(locals())
    from msgspec.structs import replace

    from marpack.api import requests, results, settings
    from marpack.gate.candidate import Candidate, held_inputs
    from marpack.gate.check import CheckSelection
    from marpack.gate.check import check as examined
    from marpack.project.source import resolve

    choice = CheckSelection.of(options["only"], options["skip"])
    shape = requests.shape_of(options)
    chosen = settings.check_options(
        options, device=device, compiled=compile, shape=requests.packed(shape), cache=settings.cache_of()
    )
    chosen = replace(chosen, inputs=held_inputs(requests.asked_of(inputs, shape)))
    with Candidate(resolve(options["source"]), chosen) as candidate:
        return results.GateReport.of(examined(candidate, choice))


def run(
    source: Name | None = None,
    inputs: Iterable[Any] = (),  # Any: whatever JSON holds
    *,
    batch_size: int = 1,
    workers: int = 1,
    content_type: str | None = None,
    headers: Mapping[str, str] | None = None,
    explain: bool = False,
    describe: bool = False,
    envelope: Literal["body", "json", "kserve", "kservev2"] | None = None,
    max_request_size: int = MAX_BODY,
    max_response_size: int = MAX_BODY,
    timeout: float | None = None,
    startup_timeout: float | None = None,
    max_memory: int | None = None,
    fail_fast: bool = False,
    target: Literal["torchserve", "marpack"] | None = None,
    device: str = "auto",
    env: Literal["current", "isolated"] = "current",
    compile: bool = True,  # noqa: A002 - the option's name
    trust_pickle: bool = False,
    metrics_config: Name | None = None,
) -> RunReport:
    """Answer all inputs as the server would, and return every answer with what they add up to, held in memory.

    For more answers than memory holds, `load` the model: `predict_many` gives one after the other.

    Args:
        source: A .mar, a .tar.gz, a model folder or a project (built first if need be); None: the current folder's.
        inputs: Of the kinds that `Model.predict` takes.
        batch_size: Requests per call of the handler.
        workers: Processes that share the inputs.
        content_type: Of the inputs; None: their own.
        headers: The requests' headers.
        explain: Ask for explanations instead of predictions.
        describe: Ask the model to describe itself.
        envelope: The server's setting service_envelope.
        max_request_size: The server's setting of that name, in bytes.
        max_response_size: Likewise.
        timeout: Seconds for a batch; None: the config's responseTimeout, or 120.
        startup_timeout: Seconds for loading; None: the config's startupTimeout, or 120.
        max_memory: Bytes of data that a worker may have; None: no bound.
        fail_fast: Stop at the first input that falls short.
        target: Whose behaviour is shown; None: the project's or the archive's.
        device: "auto", "cpu", "cuda", "cuda:1", "xpu", "xpu:1", "mps" or "xla".
        env: "isolated": with the archive's requirements.
        compile: False leaves torch.compile out, whatever the config says.
        trust_pickle: Load weights that may run code of their makers.
        metrics_config: The server's setting of that name; None: the project's.

    Raises:
        UsageError, ProjectError, ArchiveError: the source, an input or an option.
        LoadError: the handler could not be imported, constructed or initialised.

    """
    options = operations.valid(locals())
    from marpack.api import requests, settings
    from marpack.api.answering import report_of

    given = iter(requests.asked_of(inputs, requests.shape_of(options)))
    first = next(given, None)
    if first is None:
        raise UsageError("there is nothing to answer", where="inputs", hint="name some: marpack.run(source, [x])")
    findings: list[Finding] = []
    with settings.session_of(options, findings.extend) as session:
        return report_of(session, chain([first], given), findings, batch_size=batch_size, fail_fast=fail_fast)
