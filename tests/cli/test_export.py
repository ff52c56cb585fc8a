"""marpack export: the command, its output and its exit codes."""

from marpack.cli.export import TO
from marpack.exporting.export import TARGETS


def test_the_command_knows_the_targets_without_importing_them():
    assert set(TO) == set(TARGETS)
