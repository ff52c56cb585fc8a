"""Milliseconds, as people read them."""


def duration(milliseconds: float) -> str:
    """Return milliseconds in a unit and with as many digits as matter."""
    if milliseconds >= 10_000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds:.{0 if milliseconds >= 100 else 1 if milliseconds >= 1 else 3}f} ms"
