import re
import unicodedata

from .config import Mode


def clean(text):
    if isinstance(text, (bytes, bytearray)):
        text = text.decode()
    return re.sub(r"\s+", " ", unicodedata.normalize("NFKD", text or "")).strip()


def split(text, mode=Mode.FAST):
    return [float(ord(letter)) for letter in text]
