"""What `handler` names: a built-in, a file, or a function in a file."""

import difflib
from pathlib import Path

from msgspec import Struct

BUILT_INS = (  # contract §1
    "base_handler",
    "image_classifier",
    "image_segmenter",
    "object_detector",
    "text_classifier",
    "dali_image_classifier",
    "vllm_handler",
    "trt_llm_handler",
)


class EntryPoint(Struct, frozen=True):
    """A handler as the author names it."""

    file: Path | None  # None: a built-in
    manifest: str  # as the manifest names it

    @classmethod
    def parse(cls, text: str, folder: Path) -> "EntryPoint":
        """Parse `built_in`, `path/file.py`, `path/file.py:function`, or a file without its `.py` (contract §1)."""
        if text in BUILT_INS:
            return cls(None, text)
        path, colon, function = text.partition(":")
        file = Path(path if path.endswith(".py") else f"{path}.py")
        return cls(folder / file, f"{file.name}{colon}{function}")


def near_built_in(text: str) -> str | None:
    """Return the built-in that a misspelt name probably means."""
    return next(iter(difflib.get_close_matches(text, BUILT_INS, n=1)), None)
