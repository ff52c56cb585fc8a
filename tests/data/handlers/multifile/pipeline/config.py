from dataclasses import dataclass
from enum import Enum


class Mode(str, Enum):
    FAST = "fast"
    EXACT = "exact"


@dataclass
class Settings:
    mode: Mode = Mode.FAST
    width: int = 128
