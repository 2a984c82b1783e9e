"""`make lint`: every check that runs without running the program. All of them run; any failure fails the whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CHECKS: dict[str, list[str]] = {
    "style": ["ruff", "check", "--quiet", "."],
    "format": ["ruff", "format", "--check", "--quiet", "."],
    "types": ["mypy"],
    "types of the tooling": ["mypy", "-p", "tooling", "-p", "benchmarks"],
    "types as users meet them": ["mypy", "--strict", "typing_tests"],
    "import layers": ["pytest", "-q", "-p", "no:cacheprovider", "tests/test_layers.py"],
}


def main() -> int:
    """Run the checks; 1 when one fails."""
    failed = []
    for name, (module, *arguments) in CHECKS.items():
        print(f"== {name}: {module} {' '.join(arguments)}", flush=True)
        if subprocess.call([sys.executable, "-m", module, *arguments], cwd=ROOT) != 0:
            failed.append(name)
    if failed:
        print(f"lint failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    print("lint ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
