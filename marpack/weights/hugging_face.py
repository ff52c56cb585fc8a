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
_PROCESSORS = frozenset({"preprocessor_config.json", "processor_config.json"})
_VOCABULARY = re.compile(r"tokenizer\.json|vocab\.(txt|json|bpe)|[^/]*\.(model|spm|tiktoken)|bpe\.codes|tekken\.json")
_SETTINGS = re.compile(
    r"(config|generation_config|tokenizer_config|(video_)?preprocessor_config|processor_config|special_tokens_map"
    r"|added_tokens|chat_template|normalizer|target_vocab|sentence_bert_config|config_sentence_transformers"
    r"|modules)\.json|merges\.txt|(additional_chat_templates/)?[^/]*\.jinja|\d+_\w+/config\.json"
)
_WEIGHTS = re.compile(r".*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|index\.json)")


def list_shards(index: bytes) -> tuple[str, ...] | None:
    """Return the files that an index of weights names, sorted; None for another document."""
    try:
        weight_map = msgspec.json.decode(index, type=dict[str, msgspec.Raw])["weight_map"]
        return tuple(sorted(set(msgspec.json.decode(weight_map, type=dict[str, str]).values())))  # tensor → its file
    except (msgspec.DecodeError, KeyError):
        return None


def find_weights(names: Collection[str]) -> tuple[str, ...]:
    """Return the weights that transformers loads from a folder with these files: one file, or an index and shards."""
    for whole in WEIGHTS_FILES:
        if whole in names:
            return (whole,)
        shard = rf"{whole.replace('.', '(-[0-9]+-of-[0-9]+)[.]')}|{re.escape(whole + INDEX_SUFFIX)}"
        if found := sorted(name for name in names if re.fullmatch(shard, name)):
            return tuple(found)
    return ()


def is_setting(name: str) -> bool:
    """Return whether transformers reads a file of this name, apart from weights and code."""
    return bool(_SETTINGS.fullmatch(name) or _VOCABULARY.fullmatch(name))


def missing_file(loader: str, names: Collection[str]) -> str | None:
    """Return a file that `loader.from_pretrained(folder)` needs and that is not among the folder's files."""
    has_vocabulary, has_processor = any(map(_VOCABULARY.fullmatch, names)), not _PROCESSORS.isdisjoint(names)
    if "Tokenizer" in loader:
        return None if has_vocabulary else "tokenizer.json"
    if loader == "AutoProcessor":  # for some models, a tokenizer is enough
        return None if has_processor or has_vocabulary else "processor_config.json"
    if loader.endswith(("Processor", "FeatureExtractor")):
        return None if has_processor else "preprocessor_config.json"
    if loader.endswith("Config") or re.search("^AutoModel|For[A-Z][A-Za-z]+$|Model$", loader):
        needed = "generation_config.json" if loader == "GenerationConfig" else CONFIG_FILE
        if needed not in names:
            return needed
        return None if loader.endswith("Config") or any(map(_WEIGHTS.fullmatch, names)) else WEIGHTS_FILES[0]
    return None
