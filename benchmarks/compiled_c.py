"""The C programs of the benchmarks, compiled on first use into the cache, each under a digest of its source."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

from thermocline.localstack.cache_directory import default_cache_directory
from tooling.system_packages import find_c_compiler

COMPILER_OPTIONS = ("-O2", "-Wall", "-Wextra", "-std=gnu11")


def compile_c(source: Path) -> Path:
    """The program made from one C file, and the headers beside it.

    Raises:
        ToolMissingError: There is no C compiler.
    """
    compiler = find_c_compiler()
    texts = [path.read_bytes() for path in (source, *sorted(source.parent.glob("*.h")))]
    digest = hashlib.sha256(b"".join(texts) + " ".join(COMPILER_OPTIONS).encode()).hexdigest()[:12]
    target = default_cache_directory() / "bin" / f"{source.stem}-{digest}"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as directory:
            built = Path(directory) / source.stem
            subprocess.run([str(compiler), *COMPILER_OPTIONS, "-o", str(built), str(source)], check=True)
            built.replace(target)
    return target
