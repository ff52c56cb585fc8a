import collections
import hashlib
import json
import pickle
import sys

import numpy as np
import pytest
import torch

from marpack.protocol.targets import Target
from marpack.worker.handlers import text
from marpack.worker.handlers.text import (
    TextClassifier,
    TextHandler,
    VocabularyError,
    VocabularyMissingError,
    basic_english,
)

MODEL_FILE = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(50, 4, mode="mean")
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, numbers, offsets):
        return self.layer(self.embedding(numbers, offsets))
"""
WORDS = ["<unk>", "the", "cat", "is", "not", "here", "the cat", "cat is", "is not", "not here"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "netfile.py").write_text(MODEL_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    from netfile import Net

    torch.manual_seed(0)
    torch.save(Net().state_dict(), tmp_path / "model.pt")
    yield tmp_path
    sys.modules.pop("netfile", None)


@pytest.fixture
def ready(folder, make_context):
    def make(**settings):
        counter = collections.Counter({word: number for number, word in enumerate(WORDS)})
        if not list(folder.glob("source_vocab*")):
            torch.save(counter, folder / "source_vocab.pt")
        handler, context = TextClassifier(), make_context("model.pt", "netfile.py", **settings)
        handler.initialize(context)
        return handler, context

    return make


def test_the_contractions_are_the_servers():
    data = json.dumps(text.CONTRACTION_MAP, sort_keys=True).encode()
    assert hashlib.sha256(data).hexdigest() == "2811dd16e428aa707465d750671ca1748da90257996dfa53d5809a0c9e262fdb"


def test_tokenizers_by_name():
    assert text.get_tokenizer("basic_english") is basic_english
    assert text.get_tokenizer(None)("A b") == ["A", "b"]
    assert text.get_tokenizer("spacy") is None
    with pytest.raises(ValueError, match="fr"):
        text.get_tokenizer("basic_english", "fr")


@pytest.mark.parametrize("value", ["The cat <b>isn't</b> here!", bytearray(b"the CAT is not here")])
def test_a_text_goes_through_every_step(ready, notes, value):
    handler, context = ready()
    assert handler.initialized
    numbers, tokens = handler.preprocess([{"data": value}])
    assert tokens == ["the", "cat", "is", "not", "here"]
    assert [WORDS[number] for number in numbers] == WORDS[1:]
    [answer] = handler.handle([{"body": value}], context)
    assert list(answer) == ["0", "1", "2"]
    assert sum(answer.values()) == pytest.approx(1.0)
    assert not notes()


def test_authors_override_the_steps(ready):
    handler, _ = ready()
    handler.tokenizer = lambda text: ["cat"]
    handler._expand_contractions = lambda text: text
    assert handler.preprocess([{"data": "The dog"}])[0].tolist() == [2]
    assert handler._remove_puncutation("a.b") == "ab"
    assert handler.get_word_token(["\u0120cat", "s"]) == ["cat", "s"]


WRONG = [
    # text, exception, note, words of the message
    ("", TypeError, "not-text", "empty"),
    (None, TypeError, "not-text", "empty"),
    (5, TypeError, "not-text", "a JSON int"),
    ({"data": "text"}, TypeError, "not-text", "a JSON dict"),
    (bytearray(b"\xff\xfe"), UnicodeDecodeError, "not-utf-8", "2 bytes"),
    ("<p></p>", RuntimeError, "no-words", "7 characters"),
    ("?!", RuntimeError, "no-words", "no word is left"),
]


@pytest.mark.parametrize(("text", "exception", "kind", "message"), WRONG)
def test_what_the_server_refuses_is_refused_with_its_reason(ready, notes, text, exception, kind, message):
    handler, context = ready()
    with pytest.raises(exception):
        handler.handle([{"data": text}], context)
    assert message in notes()[kind].message


def test_the_server_answers_one_request_a_batch_and_target_marpack_all(ready, notes):
    handler, context = ready()
    rows = [{"data": text} for text in ("the cat", "here", "the cat is not here")]
    assert len(handler.handle(rows[:2], context)) == 1
    assert "2" in notes()["text-batch"].message
    handler, context = ready(target=Target.MARPACK)
    assert handler.handle(rows, context) == [
        {label: pytest.approx(value) for label, value in handler.handle([row], context)[0].items()} for row in rows
    ]
    assert not notes()
    handler, _ = ready(target=Target.MARPACK, config={"handler": {"ngrams": 1}})
    assert len(handler.preprocess([{"data": "the cat"}])[0]) == 2


def test_an_unknown_word(folder, ready, notes):
    torch.save({"cat": 1}, folder / "source_vocab.pt")
    handler, context = ready()
    with pytest.raises(KeyError):
        handler.handle([{"data": "dog"}], context)
    assert "Counter" in notes()["unknown-word"].hint
    with pytest.raises(KeyError):
        text.Vocabulary({"cat": 1})["dog"]
    (folder / "source_vocab.pt").unlink()
    with pytest.raises(VocabularyMissingError, match=r"source_vocab\.pt"):
        handler.initialize(context)


PLAIN = [
    ("source_vocab.json", json.dumps({word: number for number, word in enumerate(WORDS)})),
    ("source_vocab.json", json.dumps(WORDS)),
    ("source_vocab.txt", "\n".join(WORDS) + "\n"),
]


@pytest.mark.parametrize(("name", "content"), PLAIN)
def test_vocabularies_without_pickles(folder, ready, make_context, name, content):
    (folder / name).write_text(content)
    handler, _ = ready(target=Target.MARPACK)
    assert handler.preprocess([{"data": "the unseen cat"}])[0].tolist() == [1, 0, 2, 0, 0]
    with pytest.raises(VocabularyMissingError) as failure:  # nothing the server reads
        TextClassifier().initialize(make_context("model.pt", "netfile.py"))
    assert name in failure.value.hint


def test_broken_vocabularies(folder):
    for content in ("{", "3", '{"cat": "1"}', '{"cat": 1, "dog": "2"}', "[1]", '["cat", 1]'):
        (folder / "source_vocab.json").write_text(content)
        with pytest.raises(VocabularyError, match=r"source_vocab\.json"):
            text.load_vocabulary(str(folder / "source_vocab.json"), Target.MARPACK)


def test_the_server_takes_every_vocabulary_for_a_pickle(folder):
    for name in ("words.json", "words.txt"):
        torch.save({"cat": 1}, folder / name)
        assert text.load_vocabulary(str(folder / name), Target.TORCHSERVE) == {"cat": 1}
        (folder / name).write_text('{"cat": 1}')
        with pytest.raises(pickle.UnpicklingError):
            text.load_vocabulary(str(folder / name), Target.TORCHSERVE)


@pytest.mark.parametrize("tokens", [("a", "b"), ["a", "b"], np.array(["a", "b"])])
def test_tokens_of_any_kind(folder, ready, tokens):
    handler, _ = ready()
    handler._tokenize = lambda text: tokens
    numbers, kept = handler.preprocess([{"data": "the cat"}])
    assert len(numbers) == 3
    assert kept is tokens
    assert handler.inference((numbers, kept)).shape[0] == 1


def test_the_manifest_may_name_the_vocabulary_whose_code_does_not_run(folder, make_context, monkeypatch, notes):
    torch.save({"cat": 7}, folder / "words.pt")
    monkeypatch.chdir(folder)  # as the worker does
    handler, context = TextClassifier(), make_context("model.pt", "netfile.py")
    context.manifest["model"]["sourceVocab"] = "words.pt"
    handler.initialize(context)
    assert handler.source_vocab == {"cat": 7}
    torch.save(collections.UserDict({"cat": 1}), folder / "words.pt")
    with pytest.raises(Exception, match="Weights only load failed"):
        handler.initialize(context)
    assert "UserDict" in notes()["pickle-needs-code"].message


def test_a_model_without_embedding(folder, make_context, notes):
    torch.save({"cat": 7}, folder / "source_vocab.pt")
    torch.jit.script(torch.nn.Identity()).save(folder / "script.pt")
    with pytest.raises(AttributeError):
        TextClassifier().initialize(make_context("script.pt"))
    assert "embedding" in notes()["no-embedding"].hint


def test_text_handlers_begin_uninitialized():
    handler = type("Own", (TextHandler,), {})()
    assert (handler.lig, handler.initialized, handler.source_vocab) == (None, None, None)


def test_explanations_weigh_every_ngram(ready):
    pytest.importorskip("captum")
    handler, context = ready(headers={"explain": "True"})
    [answer] = handler.handle([{"data": "The cat isn't here", "target": 2}], context)
    assert answer["words"] == ["the", "cat", "is", "not", "here"]
    assert torch.tensor(answer["importances"]).shape == (1, 4)  # of the one mean of the text's embeddings
