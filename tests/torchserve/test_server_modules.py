"""Which distribution provides which import."""

import pytest

from marpack.torchserve import server_modules as ts


@pytest.mark.parametrize(
    ("top", "name"),
    [
        ("cv2", "opencv-python"), ("llama_cpp", "llama-cpp-python"), ("mii", "deepspeed-mii"), ("lru", "lru-dict"),
        ("sentence_transformers", "sentence-transformers"), ("functorch", "torch"), ("vllm_handler", None),
        ("importlinter", None),  # in no table, although it is installed here
    ],
)  # fmt: skip
def test_what_to_install_for_an_import(top: str, name: str | None):
    assert ts.usual_provider(top) == name
    assert not [each for each in ts.INSTALLED if ts.usual_provider(each) is None]


@pytest.mark.parametrize(
    ("top", "names", "is_provided"),
    [
        ("PIL", ["pillow"], True),
        ("tokenizers", ["transformers"], True),
        ("importlinter", ["import-linter"], True),  # installed here
        ("importlinter", ["msgspec", "nowhere-to-be-found"], False),
        ("lru", ["lru"], True),
        ("lru", [], False),
    ],
)
def test_what_requirements_provide(top: str, names: list[str], is_provided: bool):
    assert ts.provided(top, names) is is_provided


def test_whose_file_a_name_is_and_which_distribution_has_it_in_its_name():
    found = [(ts.is_known(name), ts.is_usual_file_name(name)) for name in ("cv2", "vllm", "utils", "mine")]
    assert found == [(True, False), (True, False), (False, True), (False, False)]
    assert ts.find_by_name_part("thing", ["a-thing", "thing-b"]) == "a-thing"
    assert ts.find_by_name_part("my_thing", ["my-thing-x"]) == "my-thing-x"
    assert ts.find_by_name_part("thing", ["things", "plaything"]) is None
