"""Soak: the long tests, a file at a time, with a record of which commit each file passed on.

    python -m tooling.soak [--since COMMIT] [--workers N] [FILE...]

The whole takes hours. Each file is a pytest of its own, and its result is appended to .cache/soak/results.jsonl as soon
as it ends; its output is in .cache/soak/logs. With `--since`, a file whose last result is a pass on that commit or on a
later one is not run again: a run that was stopped goes on, and a file that failed is run again once it is mended.

Exit code: 0 when every file has passed, 1 when one has not, 2 when the tree has changes that are not committed: a
result would name a commit that it does not belong to.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "soak", "--soak", "--timeout", "14400")
FOLDER = ".cache/soak"
PASSED, FAILED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one file's run ended."""

    path: str
    commit: str
    is_passed: bool
    summary: str
    """pytest's last line."""
    seconds: int


class Record:
    """The results so far, in a file of JSON lines."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "results.jsonl"
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, result: Result) -> None:
        """Append a result."""
        with self._file.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")

    def newest(self) -> dict[str, Result]:
        """The last result of each file."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        return {result.path: result for result in (Result(**json.loads(line)) for line in lines)}


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Run the command; its exit code. `root`: the checkout."""
    parser = argparse.ArgumentParser(prog="python -m tooling.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--since", metavar="COMMIT", help="pass over files that have passed on this commit or later")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="files that run at once (1)")
    parser.add_argument("files", nargs="*", metavar="FILE", help="test files; all with soak tests when none is named")
    options = parser.parse_args(arguments)
    if _git(root, "status", "--porcelain", "--untracked-files=no"):
        print("The tree has changes that are not committed. Commit them: each result names the commit it ran on.")
        return 2
    commit = _git(root, "rev-parse", "--short=8", "HEAD")
    record = Record(root / FOLDER)
    files = options.files or soak_files(root)
    results = {} if options.since is None else passed_since(root, record.newest(), options.since)
    waiting = [path for path in files if path not in results]
    print(f"{len(files)} files, {len(files) - len(waiting)} have passed since {options.since or commit}", flush=True)
    with ThreadPoolExecutor(options.workers) as pool:
        for future in as_completed([pool.submit(run_file, root, path, commit) for path in waiting]):
            result = results[future.result().path] = future.result()
            record.add(result)
            print(_line(result), flush=True)
    failed = [path for path in files if not results[path].is_passed]
    print(f"{len(files) - len(failed)} of {len(files)} files have passed")
    for path in failed:
        print(f"failed: {path}, output in {_log_path(root, path)}")
    return FAILED if failed else PASSED


def soak_files(root: Path) -> list[str]:
    """The files that hold soak tests, in pytest's order."""
    listed = subprocess.run([*PYTEST, "--collect-only", "-q"], cwd=root, capture_output=True, text=True, check=True)
    return list(dict.fromkeys(re.findall(r"^(\S+\.py)::", listed.stdout, re.MULTILINE)))


def passed_since(root: Path, newest: dict[str, Result], since: str) -> dict[str, Result]:
    """The results that are passes on `since` or on a commit after it, which this checkout has too."""
    return {
        path: result
        for path, result in newest.items()
        if result.is_passed and _is_ancestor(root, since, result.commit) and _is_ancestor(root, result.commit, "HEAD")
    }


def run_file(root: Path, path: str, commit: str) -> Result:
    """Run the soak tests of one file."""
    log = _log_path(root, path)
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("w") as output:
        code = subprocess.run(
            [*PYTEST, path], cwd=root, stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode
    summaries = re.findall(
        r"^=*\s*(\d+ (?:passed|failed).*? in [\d.]+s)", log.read_text(errors="replace"), re.MULTILINE
    )
    return Result(
        path=path,
        commit=commit,
        is_passed=code == 0,
        summary=summaries[-1] if summaries else f"exit code {code}",
        seconds=round(time.monotonic() - started),
    )


def _line(result: Result) -> str:
    return f"{'passed' if result.is_passed else 'FAILED'} {result.path}: {result.summary}, on {result.commit}"


def _log_path(root: Path, path: str) -> Path:
    return root / FOLDER / "logs" / f"{path.replace('/', '.')}.log"


def _is_ancestor(root: Path, older: str, newer: str) -> bool:
    command = ["git", "merge-base", "--is-ancestor", older, newer]
    return subprocess.run(command, cwd=root, capture_output=True, check=False).returncode == 0


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
