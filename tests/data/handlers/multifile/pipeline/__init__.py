from .config import Settings
from .steps import clean, split

__all__ = ["Settings", "clean", "split"]
