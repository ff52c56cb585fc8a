"""Handlers that load a Hugging Face model from the model folder: which missing file of it is found."""

import json

import pytest
from inspection.lint.case import FUNCTION, Case, check_case

LOADING = """\
import os

from transformers import AutoModel, AutoProcessor, AutoTokenizer


class Handler:
    def initialize(self, context):
        folder = context.system_properties["model_dir"]
        self.context, self.folder = context, folder
        {line}

    def handle(self, data, context):
        return [1 for _ in data]
"""
REQUIREMENTS = {"requirements.txt": "transformers==5.24.0\n"}
NEED, MISSING = "N requirements-need-setting requirements.txt", "W pretrained-file handler.py:10"


def case(line: str, *names: str, found: str = "", **files: str) -> Case:
    members = {"handler.py": LOADING.format(line=line), **REQUIREMENTS, **dict.fromkeys(names, "{}"), **files}
    expected = (NEED, *filter(None, [found]))
    return Case(line, members, expected, model={"requirements_file": "requirements.txt"})


TOKENIZER = "self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)"
MODEL = "self.model = AutoModel.from_pretrained(self.folder)"
CASES = [
    case(TOKENIZER, "config.json", "tokenizer_config.json", found=MISSING),
    case(TOKENIZER, "tokenizer.json"),
    case(TOKENIZER, "vocab.txt"),
    case(TOKENIZER, "words/spiece.model"),
    case(MODEL, "model.safetensors", found=MISSING),
    case(MODEL, "config.json", found=MISSING),
    case(MODEL, "config.json", "model.safetensors"),
    case(MODEL, "model.zip"),  # it may hold all of them
    case('AutoModel.from_pretrained(context.system_properties.get("model_dir"))', found=MISSING),
    case('AutoModel.from_pretrained(os.path.join(folder, "bert"))', "bert/config.json", "bert/model.safetensors"),
    case("AutoProcessor.from_pretrained(folder)", "config.json", found=MISSING),
    case('AutoTokenizer.from_pretrained("bert-base-uncased")'),  # from the network
    case("AutoTokenizer.from_pretrained(self.name)"),
    case("AutoTokenizer.from_pretrained(folder) if os.path.exists(folder) else None", found=MISSING),
    case("try:\n            AutoTokenizer.from_pretrained(folder)\n        except OSError:\n            pass"),
]


@pytest.mark.parametrize("case", [pytest.param(each, id=f"{i}-{each.name[:40]}") for i, each in enumerate(CASES)])
def test_finds_the_missing_file(case: Case):
    check_case(case)


@pytest.mark.parametrize("folder", ["", "bert/"])
def test_finds_missing_shards(folder: str):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    files = {
        f"{folder}config.json": "{}",
        f"{folder}model.safetensors.index.json": json.dumps(index),
        f"{folder}model-00001-of-00002.safetensors": "{}",
    }
    members = {"handler.py": LOADING.format(line=MODEL), **REQUIREMENTS, **files}
    found = f"W pretrained-file {folder}model.safetensors.index.json"
    check_case(Case("shards", members, (NEED, found), model={"requirements_file": "requirements.txt"}))


@pytest.mark.parametrize("shard", ["../config.json", "/config.json", "", "a/b", "config.json/.."])
def test_a_shard_elsewhere_is_missing(shard: str):
    index = json.dumps({"weight_map": {"a": shard}})
    members = {"handler.py": LOADING.format(line=MODEL), **REQUIREMENTS, "config.json": "{}"}
    members["model.safetensors.index.json"] = index
    found = "W pretrained-file model.safetensors.index.json"
    check_case(Case("elsewhere", members, (NEED, found), model={"requirements_file": "requirements.txt"}))


def test_an_index_that_is_too_deep_names_no_shards():
    index = '{"weight_map": {}, "deep": ' + "[" * 100_000 + "]" * 100_000 + "}"
    members = {"handler.py": LOADING.format(line=MODEL), **REQUIREMENTS, "config.json": "{}"}
    members["model.safetensors.index.json"] = index
    check_case(Case("deep", members, (NEED,), model={"requirements_file": "requirements.txt"}))


def test_a_handler_without_from_pretrained_is_not_looked_at():
    check_case(Case("none", {"handler.py": FUNCTION, "model.safetensors.index.json": '{"weight_map": {"a": "b"}}'}))
