"""The command `marpack doctor`."""

from __future__ import annotations

import click

from marpack.errors import ExitCode


@click.command()
@click.option("--clear-cache", is_flag=True, help="Remove what the cache holds and nobody uses.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
def doctor(*, clear_cache: bool, as_json: bool) -> None:
    """Tell what is here of what commands need, and what to do about the rest.

    \b
    Examples:
      marpack doctor                   versions, torch and its devices, the cache, extras
      marpack doctor --clear-cache     and make room

    The exit code is 1 only for what breaks a command: torch, a package that marpack needs, a cache that cannot be
    written. What the cache holds is made or fetched again when it is needed; nothing that is in use is removed, nor
    what was fetched within ten minutes.
    """
    import json
    from dataclasses import asdict

    from marpack.api.doctor import examine
    from marpack.render.console import show_lines
    from marpack.render.doctor import doctor_lines

    report = examine(clear_cache=clear_cache)
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    else:
        show_lines(doctor_lines(report))
    click.get_current_context().exit(ExitCode.OK if report.healthy else ExitCode.SHORT)
