"""What the processes that a handler starts need to import `ts`, as they can on a server: a folder for their path."""

from pathlib import Path

FOLDER = str(Path(__file__).parent)
