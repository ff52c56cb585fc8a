import pytest

from marpack.torchserve.diagnostics import Explained, attempt


def test_an_exception_is_explained_on_its_way_out():
    said: list[Exception] = []
    with pytest.raises(KeyError) as caught, Explained(said.append):
        raise KeyError("a")
    assert said == [caught.value]
    with Explained(said.append):
        pass
    with pytest.raises(SystemExit), Explained(said.append):
        raise SystemExit
    assert len(said) == 1


def test_what_is_attempted_returns_what_it_raises_but_for_what_ends_a_process():
    assert attempt(lambda: 1) == 1
    assert isinstance(attempt(lambda: 1 / 0), ZeroDivisionError)
    with pytest.raises(KeyboardInterrupt):
        attempt(lambda: exec("raise KeyboardInterrupt"))
