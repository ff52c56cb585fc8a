"""Which distribution provides which import."""

import pytest

from marpack.torchserve.server_modules import (
    INSTALLED,
    find_by_name_part,
    is_known,
    is_usual_file_name,
    provided,
    usual_provider,
)


@pytest.mark.parametrize(
    ("top", "name"),
    [
        ("cv2", "opencv-python"), ("llama_cpp", "llama-cpp-python"), ("mii", "deepspeed-mii"), ("lru", "lru-dict"),
        ("sentence_transformers", "sentence-transformers"), ("functorch", "torch"), ("vllm_handler", None),
        ("importlinter", None),  # in no table, although it is installed here
    ],
)  # fmt: skip
def test_what_to_install_for_an_import(top: str, name: str | None):
    assert usual_provider(top) == name


def test_everything_that_a_stock_server_has_is_known_by_its_distribution():
    assert not [top for top in INSTALLED if usual_provider(top) is None]


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
    assert provided(top, names) is is_provided


def test_whose_file_a_name_is():
    assert [(name, is_known(name), is_usual_file_name(name)) for name in ("cv2", "vllm", "utils", "mine")] == [
        ("cv2", True, False), ("vllm", True, False), ("utils", False, True), ("mine", False, False)
    ]  # fmt: skip


def test_a_name_may_be_part_of_a_distributions():
    assert find_by_name_part("thing", ["a-thing", "thing-b"]) == "a-thing"
    assert find_by_name_part("my_thing", ["my-thing-x"]) == "my-thing-x"
    assert find_by_name_part("thing", ["things", "plaything"]) is None
