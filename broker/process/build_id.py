"""Build id: tells processes of one broker that they run the same code, though it was replaced between their starts."""

import functools
import hashlib
import sys
from pathlib import Path

import thermocline


@functools.cache
def current_build_id() -> int:
    """A 63-bit number made of the interpreter's version and every source file's name, size and time of change.

    Computed once: a process runs the code that it has loaded, also when the files change later.
    """
    digest = hashlib.sha256(sys.version.encode())
    # The folders of the package are links in a checkout, so `rglob` alone would not enter them.
    root = Path(thermocline.__file__).parent
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        for file in sorted(folder.resolve().rglob("*.py")):
            status = file.stat()
            digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return int.from_bytes(digest.digest()[:8], "big") >> 1
