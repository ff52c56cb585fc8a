import inspect
import pickle
import re

from lazy import LazyModule

from marpack.weights.weights_only import ALLOWED, OPCODES

restricted = LazyModule("torch._weights_only_unpickler")


def test_the_allow_list_is_torchs_own() -> None:
    assert set(restricted._get_allowed_globals()) == ALLOWED


def test_the_opcodes_are_those_that_torchs_unpickler_knows() -> None:
    names = set(re.findall(r"\b([A-Z][A-Z_0-9]+)\[0\]", inspect.getsource(restricted.Unpickler)))

    assert {getattr(pickle, name)[0] for name in names} == OPCODES
