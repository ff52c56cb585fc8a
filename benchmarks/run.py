"""What running costs, as ratios against a bare script in the same run: first answer, throughput, a no-op handler.

python -m benchmarks.run [--repeat N]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits"

# What an author would write instead: import torch, load the same weights, answer.
BARE = """
import io, sys, torch
from pathlib import Path
from PIL import Image

def scan(picture):
    gray = Image.open(io.BytesIO(picture)).convert("L").resize((8, 8), Image.Resampling.BOX)
    return torch.frombuffer(bytearray(gray.tobytes()), dtype=torch.uint8).view(1, 8, 8) / 255

model = torch.jit.load(sys.argv[1]).eval()
with torch.inference_mode():
    for path in sys.argv[2:]:
        print(path, model(scan(Path(path).read_bytes())[None]).softmax(dim=1).argmax().item())
"""

NO_OP = "def handle(data, context):\n    return ['ok'] * len(data) if data is not None else None\n"


def seconds(command: list[str], cwd: Path | None = None) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=cwd)
    return time.perf_counter() - start


def paired(first: Callable[[], float], second: Callable[[], float], repeat: int) -> tuple[float, float, float]:
    """Return the medians of both and of their ratio, run in turn after one warm-up each."""
    first(), second()
    pairs = [(first(), second()) for _ in range(repeat)]
    medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
    return medians[0], medians[1], statistics.median(a / b for a, b in pairs)


def first_answer(repeat: int) -> tuple[float, float, float]:
    image = str(DIGITS / "samples" / "seven.png")
    marpack = [sys.executable, "-m", "marpack", "run", "digits.mar", "--input", image]
    subprocess.run([sys.executable, "-m", "marpack", "build"], check=True, capture_output=True, cwd=DIGITS)
    return paired(
        lambda: seconds(marpack, DIGITS),
        lambda: seconds([sys.executable, "-c", BARE, "digits.pt", image], DIGITS),
        repeat,
    )


def no_op_throughput(count: int) -> float:
    """Return inputs per second from small files through a handler that does nothing."""
    from marpack.gate.serving import Serving
    from marpack.runtime.messages import Load
    from marpack.worker.inputs import Shape, file_inputs
    from marpack.worker.runner import run
    from marpack.worker.sources import paths_of

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model" / "MAR-INF").mkdir(parents=True)
        (folder / "model" / "handler.py").write_text(NO_OP)
        manifest = '{"runtime": "python", "model": {"modelName": "noop", "handler": "handler.py"}}'
        (folder / "model" / "MAR-INF" / "MANIFEST.json").write_text(manifest)
        (folder / "in").mkdir()
        for number in range(count):
            (folder / "in" / f"{number}.bin").write_bytes(b"x" * 100)
        with Serving.open(str(folder / "model"), options=Load(model_dir="")) as serving:
            start = time.perf_counter()
            answers = sum(
                result.ok for result in run(serving.pool, file_inputs(paths_of([str(folder / "in")]), Shape()))
            )
            spent = time.perf_counter() - start
    if answers != count:
        raise SystemExit(f"{count - answers} inputs were not answered")
    return count / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--count", type=int, default=20_000)
    arguments = parser.parse_args()
    ours, bare, ratio = first_answer(arguments.repeat)
    print(f"first answer, warm cache      {ours:6.2f} s   bare script {bare:6.2f} s   ratio {ratio:.2f}")
    print(f"no-op handler, small files    {no_op_throughput(arguments.count):6.0f} inputs/s")


if __name__ == "__main__":
    main()
