"""Regular expressions of unknown origin, searched for in a process that can be ended: some take for ever."""

import subprocess
import sys

_SECONDS = 5.0
_FOUND, _ABSENT = 0, 1
_PROGRAM = """
import re, sys
size = int(sys.stdin.buffer.readline())
pattern = sys.stdin.buffer.read(size).decode("utf-8", "surrogatepass")
text = sys.stdin.buffer.read().decode("utf-8", "replace")
sys.exit(0 if re.search(pattern, text) else 1)
"""


def unmatched(pattern: str, text: bytes) -> str | None:
    """Return why a pattern is not found in a text in UTF-8, as the end of a sentence; None if it is."""
    encoded = pattern.encode("utf-8", "surrogatepass")
    try:
        done = subprocess.run(  # noqa: S603 - our own program, no shell
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            input=b"%d\n%b%b" % (len(encoded), encoded, text),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"takes over {_SECONDS:.0f} s to be searched for"
    if done.returncode == _FOUND:
        return None
    if done.returncode == _ABSENT and not done.stderr:
        return "is not in the body"
    reason = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"does not compile: {reason.partition(': ')[2] or reason}"
