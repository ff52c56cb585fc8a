"""How often `check --against --slower 10%` is wrong on a busy machine: an archive against itself, and a slower one.

    python -m benchmarks.slower [--repeat N] [--beside N] [--seconds N]

`--beside` processes work all the time. An archive that is "slower" than itself is a false alarm; of a handler that
works a fifth longer, each verdict that is not "slower" is a miss.
"""

import json
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

from benchmarks.timing import MARPACK, busy, parse, run

# Works for so many turns on each request: some milliseconds, as a small model does.
HANDLER = """
def handle(data, context):
    if data is None:
        return None
    for _ in range({turns}):
        pass
    return ["ok"] * len(data)
"""
PROJECT = 'name: {name}\nversion: "1.0"\nhandler: {name}.py\nsamples: [{{input: sample.txt}}]\n'
TURNS = 100_000


def build(project: Path, turns: int) -> Path:
    """Build an archive that works for so many turns."""
    project.mkdir()
    (project / f"{project.name}.py").write_text(HANDLER.format(turns=turns))
    (project / "sample.txt").write_text("a request")
    (project / "marpack.yaml").write_text(PROJECT.format(name=project.name))
    run([*MARPACK, "build", project, "-o", project.with_suffix(".mar")])
    return project.with_suffix(".mar")


def count_verdicts(name: str, new: Path, old: Path, repeat: int, seconds: float) -> None:
    """Check again and again, and print the verdicts."""
    command = [*MARPACK, "check", new, "--against", old, "--slower", "10%", "--slower-time", str(seconds), "--json"]
    verdicts, starts, begin = Counter[str](), [], time.monotonic()
    for _ in range(repeat):
        costs = json.loads(subprocess.run(command, check=False, capture_output=True, text=True).stdout)["costs"]
        verdicts[costs["speed"]] += 1
        starts.append(costs["starts"])
    each = (time.monotonic() - begin) / repeat
    counted = ", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common())
    print(f"{name:28} {counted} of {repeat}; {median(starts):g} starts and {each:.0f} s each", flush=True)


def main() -> None:
    options = parse(__doc__, repeat=20, beside=2, seconds=300.0)
    with busy(options.beside), tempfile.TemporaryDirectory() as folder:
        old, new = build(Path(folder, "old"), TURNS), build(Path(folder, "new"), TURNS * 6 // 5)
        count_verdicts("against itself", old, old, options.repeat, options.seconds)
        count_verdicts("against one that is slower", new, old, options.repeat, options.seconds)


if __name__ == "__main__":
    main()
