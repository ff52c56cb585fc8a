"""Every benchmark, one after the other: `python -m benchmarks`, or `make bench`; `python -m benchmarks NAME…`: those.

Figures are ratios against a peer or a physical limit in the same run; each module takes options of its own.
"""

import subprocess
import sys

MODULES = ("build", "inspect", "run", "score", "security", "serve")


def main() -> int:
    codes = []
    for name in sys.argv[1:] or MODULES:
        print(f"\n== benchmarks.{name}", flush=True)
        codes.append(subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
