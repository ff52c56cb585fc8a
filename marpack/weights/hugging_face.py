"""The files of a Hugging Face model, by their names: those of the model, its tokenizer and its processor."""

import re
from collections.abc import Collection
from typing import Literal

import msgspec

Task = Literal[  # as Hugging Face's pipelines are named
    "text-classification",
    "token-classification",
    "question-answering",
    "fill-mask",
    "feature-extraction",
    "text-generation",
    "image-classification",
    "automatic-speech-recognition",
]
CONFIG_FILE = "config.json"
WEIGHTS_FILES = ("model.safetensors", "pytorch_model.bin")  # transformers takes the first that exists
INDEX_SUFFIX = ".index.json"  # of the file that lists the shards of weights
MAX_INDEX = 32 << 20  # bytes: it lists every tensor
_VOCABULARY = r"tokenizer\.json|vocab\.(txt|json|bpe)|[^/]*\.(model|spm|tiktoken)|bpe\.codes|tekken\.json"
_PROCESSOR = r"(preprocessor|processor)_config\.json"
SETTINGS = re.compile(  # files that transformers reads, apart from weights and code
    r"(config|generation_config|tokenizer_config|(video_)?preprocessor_config|processor_config|special_tokens_map"
    r"|added_tokens|chat_template|normalizer|target_vocab|sentence_bert_config|config_sentence_transformers"
    rf"|modules)\.json|merges\.txt|(additional_chat_templates/)?[^/]*\.jinja|\d+_\w+/config\.json|{_VOCABULARY}"
)
_MODEL = "^AutoModel|For[A-Z][A-Za-z]+$|Model$"
# Loaders, by the end of their names; the files of which they need one; and the usual name of it.
_NEEDED = (
    ("Tokenizer", _VOCABULARY, "tokenizer.json"),
    ("^AutoProcessor$", f"{_PROCESSOR}|{_VOCABULARY}", "processor_config.json"),  # some models have only a tokenizer
    ("(?<!^Auto)Processor$|FeatureExtractor$", _PROCESSOR, "preprocessor_config.json"),
    ("^GenerationConfig$", r"generation_config\.json", "generation_config.json"),
    (f"(?<!^Generation)Config$|{_MODEL}", r"config\.json", CONFIG_FILE),
    (_MODEL, r".*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|index\.json)", WEIGHTS_FILES[0]),
)


def list_shards(index: bytes) -> tuple[str, ...]:
    """Return the files that an index of weights names, sorted; none for another document."""
    try:
        weight_map = msgspec.json.decode(index, type=dict[str, msgspec.Raw])["weight_map"]
        return tuple(sorted(set(msgspec.json.decode(weight_map, type=dict[str, str]).values())))  # tensor → its file
    except (msgspec.DecodeError, KeyError, RecursionError):
        return ()


def find_weights(names: Collection[str]) -> tuple[str, ...]:
    """Return the weights that transformers loads from a folder with these files: one file, or an index and shards."""
    for whole in WEIGHTS_FILES:
        if whole in names:
            return (whole,)
        index, shard = f"{whole}{INDEX_SUFFIX}", whole.replace(".", r"(-\d+-of-\d+)\.")
        shards = sorted(name for name in names if re.fullmatch(shard, name))
        if shards or index in names:
            return (index, *shards)
    return ()


def missing_file(loader: str, names: Collection[str]) -> str | None:
    """Return a file that `loader.from_pretrained(folder)` needs and that is not among the folder's files."""
    for pattern, files, usual in _NEEDED:
        if re.search(pattern, loader) and not any(re.fullmatch(files, name) for name in names):
            return usual
    return None
