"""The model store: bare names only, whatever else a url may be."""

import errno
import os
from pathlib import Path

import pytest

from marpack.errors import UsageError
from marpack.serving.loading import ModelStore
from marpack.torchserve.http import RequestError


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    """Return a store with three archives, two folders and what is none; a secret lies outside."""
    folder = tmp_path / "store"
    folder.mkdir()
    for name in ("a.mar", "b.tar.gz", "c.model", "notes.txt", ".hidden.mar"):
        (folder / name).write_bytes(b"")
    for name in ("unpacked", ".git", "sub"):
        (folder / name).mkdir()
    (folder / "sub" / "d.mar").write_bytes(b"")
    (tmp_path / "secret.mar").write_bytes(b"")
    (folder / "out.mar").symlink_to(tmp_path / "secret.mar")
    (folder / "up.mar").symlink_to(tmp_path)
    (folder / "in.mar").symlink_to("sub/d.mar")
    (folder / "broken.mar").symlink_to("gone.mar")
    (folder / "circle.mar").symlink_to("circle.mar")
    return ModelStore(folder)


@pytest.mark.parametrize("name", ["a.mar", "b.tar.gz", "unpacked", "in.mar", "notes.txt"])
def test_a_bare_name_is_found(store: ModelStore, name: str) -> None:
    assert store.find(name) == store.folder / name


NOT_FOUND = "Model not found at: {}"
RELATIVE = "Relative path is not allowed in url: {}"
ADDRESS = "Given URL {} does not match any allowed URL(s)"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "empty url"),
        ("nope.mar", NOT_FOUND),
        ("A.MAR", NOT_FOUND),
        ("../secret.mar", RELATIVE),
        ("..", RELATIVE),
        ("sub/../a.mar", RELATIVE),
        ("sub/d.mar", NOT_FOUND),
        ("./a.mar", NOT_FOUND),
        (".", NOT_FOUND),
        ("a.mar/", NOT_FOUND),
        ("sub\\d.mar", NOT_FOUND),
        ("/etc/passwd", NOT_FOUND),
        ("a.mar\0", NOT_FOUND),
        ("a.mar\n", NOT_FOUND),
        ("out.mar", NOT_FOUND),
        ("up.mar", NOT_FOUND),
        ("broken.mar", NOT_FOUND),
        ("circle.mar", NOT_FOUND),
        ("ftp://host/a.mar", NOT_FOUND),
        ("http://host/a.mar", ADDRESS),
        ("HTTPS://host/a.mar", ADDRESS),
        ("file:///etc/passwd", ADDRESS),
        ("x" * 5000, NOT_FOUND.format("x" * 1024)),
    ],
)
def test_any_other_url_is_refused_in_the_originals_words(store: ModelStore, url: str, message: str) -> None:
    with pytest.raises(RequestError) as refused:
        store.find(url)
    error = refused.value
    assert (error.status, error.kind, error.message) == (404, "ModelNotFoundException", message.format(url))


def test_all_models_are_the_archives_and_the_folders(store: ModelStore) -> None:
    names = [path.name for path in store.all_models()]
    assert names == sorted(names)
    assert {"a.mar", "b.tar.gz", "c.model", "unpacked", "sub", "out.mar"} <= set(names)
    assert not {"notes.txt", ".hidden.mar", ".git"} & set(names)


def test_a_store_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=os.strerror(errno.ENOENT)) as caught:
        ModelStore(tmp_path / "gone").all_models()
    assert caught.value.code == "unreadable-model-store"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a.mar"], [(None, "a.mar")]),
        (["x=a.mar", "y=b.tar.gz"], [("x", "a.mar"), ("y", "b.tar.gz")]),
        (["x=a.mar,c.model , y=b.tar.gz,"], [("x", "a.mar"), (None, "c.model"), ("y", "b.tar.gz")]),
        (["missing.mar"], [(None, "missing.mar")]),
        (["sub/a.mar", "z=/elsewhere/c.model"], [(None, "a.mar"), ("z", "c.model")]),
        (["a.mar", "a.mar"], [(None, "a.mar")]),
        ([], []),
    ],
)
def test_start_models(store: ModelStore, words: list[str], expected: list[tuple[str | None, str]]) -> None:
    assert store.parse_models(words) == [(name, store.folder / file) for name, file in expected]


def test_all_as_a_start_model(store: ModelStore) -> None:
    assert store.parse_models(["ALL"]) == [(None, path) for path in store.all_models()]


def test_a_start_model_may_be_a_folder_elsewhere(store: ModelStore, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    assert store.parse_models([f"m={folder}"]) == [("m", folder)]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("=a.mar", "'=a.mar' does not name a model"),
        ("x=", "'x=' does not name a model"),
        ("x=/", "'x=/' does not name a model"),
        ("a\0.mar", "does not name a model"),
        ("m=https://host/a.mar", "models are served from the model store, not from 'https://host/a.mar'"),
    ],
)
def test_a_word_that_names_no_model(store: ModelStore, word: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        store.parse_models([word])
    assert refused.value.hint
