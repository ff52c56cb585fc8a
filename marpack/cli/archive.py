"""The commands that make, show, move and sign archives, each: options → one operation → one page → exit code."""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click
from msgspec.structs import replace

from marpack.api import operations
from marpack.api.options import (
    BuildOptions,
    DiffOptions,
    ExportOptions,
    InitOptions,
    InspectOptions,
    MigrateOptions,
    SignOptions,
    UnpackOptions,
    VerifyOptions,
)
from marpack.cli.options import Command, command, json_option, project_above
from marpack.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from marpack.api.declaring import Key
    from marpack.project.scaffold.folder_scan import FolderScan
    from marpack.project.scaffold.proposal import Proposal
    from marpack.render.pages import Page

_Report = TypeVar("_Report")
_ENVIRONMENT = "env:"
_PASSWORD = "MARPACK_KEY_PASSWORD"  # noqa: S105 - the variable's name


def print_result(report: _Report, page: Callable[[_Report], Page], *, as_json: bool) -> None:
    """Print a result as JSON or as a page."""
    from marpack.render.console import show, show_page

    if as_json:
        show(report)
    else:
        show_page(page(report))


@command(InitOptions)
@click.option("-y", "--yes", is_flag=True, hidden=True, expose_value=False)  # old scripts have it; it has no effect
@json_option
def init(options: InitOptions, *, as_json: bool) -> None:
    """Start a project: a marpack.yaml and the files that it needs.

    \b
    Examples:
      marpack init                           around the model in this folder
      marpack init shop -t text_classifier   a new folder with a working example
      marpack init --from old.mar            a project that rebuilds an archive

    Existing files are used and never overwritten.
    """
    from marpack.render.build import init_page, survey_page
    from marpack.render.console import show_page

    def show_survey(scan: FolderScan, proposal: Proposal) -> None:
        if not as_json:
            show_page(survey_page(scan, proposal), err=True)

    print_result(operations.init(options, show_survey), init_page, as_json=as_json)


class _LikeArgparse(Command):
    """A command that accepts two more notations of argparse, which scripts for torch-model-archiver may use."""

    verbose = ("--verbose",)  # -v is the version

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read `-v=1.0` as `-v 1.0`, and a unique prefix of a long option as this option."""
        end = args.index("--") if "--" in args else len(args)
        options = [option for option in self.get_params(ctx) if option.name != "verbosity"]  # --ver is the version
        known = [name for option in options for name in option.opts if name.startswith("-")]
        for number, word in enumerate(args[:end]):
            flag, equals, value = word.partition("=")
            near = [name for name in known if name.startswith(flag)] if flag.startswith("--") else []
            if equals and flag in known and not flag.startswith("--"):
                args[number] = f"{flag}{value}"
            elif len(near) == 1:
                args[number] = f"{near[0]}{equals}{value}"
        return super().parse_args(ctx, args)


@command(BuildOptions, cls=_LikeArgparse)
@click.option("--dry-run", is_flag=True, help="Show the members, output and findings; write nothing.")
@json_option
def build(options: BuildOptions, *, dry_run: bool, as_json: bool) -> None:
    """Pack a model into one archive.

    \b
    Examples:
      marpack build                     the project in this folder
      marpack build --vendor            with the packages of its requirements.txt
      marpack build --model-name resnet --version 1.0 --handler image_classifier \\
        --serialized-file resnet.pt --extra-files index_to_name.json

    PROJECT is a folder with a marpack.yaml. In a subfolder of a project, marpack uses the nearest marpack.yaml above,
    within the repository or the home folder. Without a project, the options of torch-model-archiver work as they do
    there.
    """
    from marpack.render.build import build_page, plan_page, show_warnings
    from marpack.render.console import byte_bar

    if options.project is None and not operations.archiver_flags(options):
        options = replace(options, project=project_above())
    if dry_run:
        plan = operations.describe_plan(options, byte_bar)
        if not as_json:
            show_warnings(plan.findings)
        print_result(plan, plan_page, as_json=as_json)
        return
    found = operations.plan_build(options, byte_bar)
    if not as_json:
        show_warnings(found.findings)
    report = operations.pack(found, byte_bar)
    vendored = found.plan.vendored or None
    print_result(report, lambda each: build_page(replace(each, findings=()), vendored), as_json=as_json)


@command(MigrateOptions)
@json_option
def migrate(options: MigrateOptions, *, as_json: bool) -> None:
    """Move a TorchServe deployment to marpack: one project per model, a start line and a report.

    \b
    Examples:
      marpack migrate config.properties             its settings and model store
      marpack migrate deployment/ -o new --check    also run the models
      marpack migrate docker-compose.yaml --to kserve

    SOURCE is a model store, a config.properties, a Dockerfile, compose file or script with a torchserve --start line, a
    Kubernetes manifest, a SageMaker model.tar.gz, or a folder that contains one of these. marpack changes nothing
    there, and runs nothing unless --check is given. It writes a project for each model, marpack-serve.sh,
    config.properties and MIGRATION.md, which lists every setting and every decision. Keys and passwords are not copied.
    The exit code is 1 if a model was not moved or failed, and 2 if SOURCE is not a deployment.
    """
    from marpack.api.migration import migrate as migrate_deployment
    from marpack.render.console import progress_bar
    from marpack.render.migrate import migration_page

    found = migrate_deployment(options, progress_bar)
    print_result(found, migration_page, as_json=as_json)
    click.get_current_context().exit(ExitCode.OK if found.complete else ExitCode.SHORT)


@command(InspectOptions)
@json_option
def inspect(options: InspectOptions, *, as_json: bool) -> None:
    """Show the contents and problems of an archive without running it.

    \b
    Examples:
      marpack inspect digits.mar                        contents and findings
      marpack inspect https://host/digits.mar --json    fetch only what is needed
      marpack inspect digits.mar --sbom digits.json     also write an SBOM

    SOURCE is a .mar, a .tar.gz, a model folder, an address (https, s3), or a project folder. Without it, marpack
    inspects the project in this folder. The static checks of a build run, too. The exit code is 1 if a finding is an
    error, and 3 if the archive is damaged, unsafe or changed.
    """
    gc.disable()  # there is nothing to collect in what takes a twentieth of a second
    try:
        from marpack.render.console import byte_bar

        facts = operations.inspect(options, byte_bar, parse_config=as_json)
    finally:
        gc.enable()
    from marpack.findings import Severity
    from marpack.inspection.members import DISTRUSTED, UNFIT
    from marpack.render.pages import inspection_page

    print_result(facts, inspection_page, as_json=as_json)
    errors = [finding for finding in facts.findings if finding.severity is Severity.ERROR]
    is_refused = any(finding.code in UNFIT | DISTRUSTED for finding in errors)
    code = ExitCode.ARCHIVE if is_refused else ExitCode.SHORT if errors else ExitCode.OK
    click.get_current_context().exit(code)


@command(DiffOptions)
@json_option
def diff(options: DiffOptions, *, as_json: bool) -> None:
    """Compare two archives: manifest, members, config, labels and every number of the tensors.

    \b
    Examples:
      marpack diff digits-1.0.mar digits-1.1.mar       changes of a release
      marpack diff https://host/digits.mar . --json    against this project

    A and B are each a .mar, a .tar.gz, a model folder, an address (https, s3), or a project folder. The exit code
    is 0 if they are the same, and 1 if they differ.
    """
    from marpack.render.console import byte_bar
    from marpack.render.pages import diff_page

    found = operations.diff(options, byte_bar)
    print_result(found, diff_page, as_json=as_json)
    click.get_current_context().exit(ExitCode.OK if found.same else ExitCode.SHORT)


@command(UnpackOptions)
@json_option
def unpack(options: UnpackOptions, *, as_json: bool) -> None:
    """Extract an archive into a new folder.

    \b
    Examples:
      marpack unpack digits.mar                            into digits/
      marpack unpack digits.mar -o look --only '*.py' --only MAR-INF

    SOURCE is a .mar, a .tar.gz, a model folder or an address (https, s3). Unsafe names, links, decompression bombs
    and damaged bytes are refused with exit code 3 before the folder appears. Existing files are not overwritten.
    """
    from marpack.render.console import byte_bar
    from marpack.render.pages import unpacked_page

    print_result(operations.unpack(options, byte_bar), unpacked_page, as_json=as_json)


@command(ExportOptions)
@json_option
def export(options: ExportOptions, *, as_json: bool) -> None:
    """Export an archive for Docker, KServe, SageMaker or Ray Serve.

    \b
    Examples:
      marpack export digits.mar --to docker                a Dockerfile, its files
      marpack export . --to docker --device cuda -o gpu    the project here
      marpack export digits.mar --to ray-serve             a Ray Serve application

    SOURCE is a .mar, a .tar.gz or a project folder. Without it, marpack exports the project in this folder. No part of
    the archive is run. The same archive, options and versions give the same bytes. Findings name the features that the
    platform does not support.
    """
    from marpack.render.console import progress_bar
    from marpack.render.pages import exported_page

    page = partial(exported_page, dry_run=options.dry_run)
    print_result(operations.export(options, progress_bar), page, as_json=as_json)


@command(SignOptions)
@json_option
def sign(options: SignOptions, *, as_json: bool) -> None:
    """Sign an archive's file, so that others can verify its origin.

    \b
    Examples:
      marpack sign digits.mar --key signer.pem           writes digits.mar.sig
      marpack sign digits.mar --key env:SIGNING_KEY      a key in a variable
    Create a key, and the public key for others:
      openssl ecparam -name prime256v1 -genkey -noout -out signer.pem
      openssl pkey -in signer.pem -pubout -out signer.pub

    ARCHIVE is a .mar or a .tar.gz. The signature is in the OpenSSF model-signing format and covers the file's SHA-256.
    A key is a file, or env:NAME for an environment variable. If the key has a password, marpack reads it from
    MARPACK_KEY_PASSWORD or asks for it. An archive that has changed since it was built is not signed (exit code 3).
    """
    from marpack.render.console import byte_bar, show_findings
    from marpack.render.pages import signed_page

    name = os.fsdecode(os.fspath(options.key))
    named = replace(
        options, key=read_key(options.key), password=_password(name), certificate=read_key(options.certificate)
    )
    signed = operations.sign(named, byte_bar, where=name)
    if as_json:
        show_findings(signed.findings)
    print_result(signed, signed_page, as_json=as_json)


@command(VerifyOptions)
@json_option
def verify(options: VerifyOptions, *, as_json: bool) -> None:
    """Verify an archive's signature.

    \b
    Examples:
      marpack verify digits.mar --key signer.pub
      marpack verify digits.mar --ca authority.pem

    ARCHIVE is a .mar or a .tar.gz. No part of it is run or unpickled. marpack compares the signature with the key, and
    every byte of the file with the signed digest. A key is a file, or env:NAME for an environment variable. To check
    only that an archive is as it was built, use marpack inspect --verify. The exit code is 3 if
    anything differs or the signer is not trusted; every difference is listed.
    """
    from marpack.render.console import byte_bar
    from marpack.render.pages import verification_page

    named = replace(options, key=read_key(options.key), ca=read_key(options.ca))
    verification = operations.verify(named, byte_bar)
    print_result(verification, verification_page, as_json=as_json)


def read_key(named: Key | None) -> Key | None:
    """Return the file of a key, or the content of the environment variable that env:NAME names. Raises UsageError."""
    if not isinstance(named, str) or not named.startswith(_ENVIRONMENT):
        return named
    name = named.removeprefix(_ENVIRONMENT)
    if not os.environ.get(name):
        raise UsageError("this environment variable is not set", where=named, hint="Set it to the key in PEM form.")
    return os.environb[name.encode()] if os.supports_bytes_environ else os.environ[name].encode()


def _password(named: str) -> str | None:
    """Return the password of a private key, from the environment or the terminal."""
    if password := os.environ.get(_PASSWORD):
        return password
    if named.startswith(_ENVIRONMENT) or not sys.stdin.isatty():
        return None
    from pathlib import Path

    from marpack.trust.keys import needs_password
    from marpack.trust.signatures import read_bounded

    if not needs_password(read_bounded(Path(named), what="the key")):
        return None
    typed: str = click.prompt(f"Password of {named}", hide_input=True, err=True)
    return typed
