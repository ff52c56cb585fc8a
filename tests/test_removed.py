"""Every name that is gone is answered with its replacement, on the command line and in Python."""

import pytest
from invoking import invoke

import marpack
from marpack.errors import ExitCode, UsageError
from marpack.removed import COMMANDS, OPTIONS
from marpack.version import __version__


def test_the_table_is_for_one_release() -> None:
    assert __version__.startswith("0.2."), "remove marpack/removed.py, or what 0.3 no longer has to answer"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_removed_command_names_its_replacement(name: str) -> None:
    done = invoke(name, "a.mar", "--any-option", code=ExitCode.USAGE)
    assert done.error is not None
    assert done.error.code == "removed"
    assert done.error.hint == COMMANDS[name][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_removed_function_is_there_and_raises(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        getattr(marpack, name)("a.mar", "elsewhere", check=True)
    assert caught.value.code == "removed"


@pytest.mark.parametrize(("command", "option"), OPTIONS)
@pytest.mark.parametrize("value", [(), ("7",)])
def test_a_removed_option_names_its_replacement(command: str, option: str, value: tuple[str, ...]) -> None:
    done = invoke(command, "a.mar", option, *value, code=ExitCode.USAGE)
    assert done.error is not None
    assert (done.error.code, done.error.hint) == ("removed", OPTIONS[command, option][1])


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_a_removed_argument_names_its_replacement(command: str, option: str) -> None:
    with pytest.raises(UsageError) as caught:
        getattr(marpack, command)("a.mar", **{option.removeprefix("--").replace("-", "_"): "7"})
    assert caught.value.code == "removed"


def test_other_names_fail_as_before() -> None:
    assert not hasattr(marpack, "no_such_name")
    assert invoke("check", "a.mar", "--no-such-option", code=ExitCode.USAGE).cause == "usage"
    with pytest.raises(TypeError):
        marpack.check("a.mar", no_such_option=1)
