"""What the server's own loader said of every case: asked of a real one, and kept as it was recorded.

Record anew with `MARPACK_PEER=… python tests/inspection/lint/verdicts.py`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from conformance.peer import find_peer
from inspection.lint.case import Case
from inspection.lint.content_cases import CASES as CONTENTS
from inspection.lint.handler_cases import CASES as HANDLERS

CASES = [*HANDLERS, *CONTENTS]
KEPT = Path(__file__).with_name("verdicts.json")
Verdicts = dict[str, dict[str, bool]]  # case → whether loading, and answering, failed


def recorded() -> Verdicts:
    """Return what was recorded."""
    return json.loads(KEPT.read_text())


def ask(peer: Path, root: Path) -> Verdicts:
    """Ask a real server's loader about every case, laid out below a folder."""
    lines = [_written(case, root / str(number)) for number, case in enumerate(CASES)]
    program = Path(__file__).with_name("loading_peer.py")
    done = subprocess.run(
        [peer / "python", program], input="\n".join(lines), text=True, capture_output=True, check=True, timeout=300
    )
    told = map(json.loads, done.stdout.splitlines())
    return {answer["name"]: {"load": bool(answer["load"]), "answer": bool(answer["answer"])} for answer in told}


def _written(case: Case, folder: Path) -> str:
    for name, content in case.members.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    folder.joinpath("MAR-INF").mkdir(parents=True)
    folder.joinpath("MAR-INF/MANIFEST.json").write_bytes(case.manifest.to_json())
    handler = case.manifest.model.handler
    return json.dumps({"name": case.name, "folder": str(folder), "handler": handler})


def record() -> None:
    """Write down what the server says today."""
    peer = find_peer()
    if isinstance(peer, str):
        sys.exit(peer)
    with tempfile.TemporaryDirectory() as root:
        KEPT.write_text(json.dumps(dict(sorted(ask(peer, Path(root)).items())), indent=1) + "\n")


if __name__ == "__main__":
    record()
