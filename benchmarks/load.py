"""What loading a model costs through BaseHandler, against the same torch call in a bare script; 400 MB of weights.

python -m benchmarks.load [--repeat N]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MAKE = """
import sys, torch
layers = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(24)))
torch.jit.script(layers).save(sys.argv[1])
"""
# Each prints the seconds of its own load: starting Python and importing torch are the same for both.
BARE = """
import sys, time, torch
start = time.perf_counter()
torch.jit.load(sys.argv[1], map_location=torch.device("cpu")).eval()
print(time.perf_counter() - start)
"""
OURS = """
import sys, time
from pathlib import Path
from marpack.testing import context
from marpack.worker.handlers.base import BaseHandler
path = Path(sys.argv[1])
handler, given = BaseHandler(), context(path.parent, model={"serializedFile": path.name})
start = time.perf_counter()
handler.initialize(given)
print(time.perf_counter() - start)
"""


def seconds(script: str, weights: Path) -> float:
    command = [sys.executable, "-W", "ignore", "-c", script, str(weights)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=9)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder, "net.pt")
        subprocess.run([sys.executable, "-W", "ignore", "-c", MAKE, str(weights)], check=True)
        pairs = [(seconds(OURS, weights), seconds(BARE, weights)) for _ in range(repeat + 1)][1:]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(
        f"load 400 MB of TorchScript    {ours:6.3f} s   torch.jit.load {bare:6.3f} s   ratio {ratio:.2f} (at most 1.05)"
    )


if __name__ == "__main__":
    main()
