"""Renew the lock files: `make lock`.

requirements.lock comes from pyproject.toml with every extra that development uses; LocalStack, rclone, Go and the next
PySpark have theirs, and so has Hadoop's s3a connector, from spark-s3a.pom.xml.
All carry hashes and name no registry. Pins that still fit are kept; delete a lock file first to renew all of it.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from tooling.java_libraries import lock_s3a_jars

ROOT = Path(__file__).resolve().parent.parent
UV_VERSION = "0.13.9"
COMMON = ("--python-version", "3.11", "--generate-hashes", "--no-emit-index-url", "--no-header", "--quiet")
EXTRAS = ("fast", "spark", "bodies", "proxy", "notebook", "dev")


def main() -> int:
    """Write the lock files; the first failing step's status otherwise."""
    uv = _uv()
    extras = [argument for extra in EXTRAS for argument in ("--extra", extra)]
    for source, target, options in (
        ("pyproject.toml", "requirements.lock", ["--universal", *extras]),
        ("localstack/localstack-requirements.in", "localstack/localstack-requirements.lock", []),
        ("localstack/rclone-requirements.in", "localstack/rclone-requirements.lock", []),
        ("localstack/go-requirements.in", "localstack/go-requirements.lock", []),
        ("tooling/pyspark-next.in", "tooling/pyspark-next.lock", []),
        ("tooling/rocketmq-grpc-python.in", "tooling/rocketmq-grpc-python.lock", []),
    ):
        command = [str(uv), "pip", "compile", *COMMON, *options, source, "--output-file", target]
        status = subprocess.call(command, cwd=ROOT)
        if status != 0:
            return status
        print(f"{target} is up to date with {source}")
    lock_s3a_jars()
    return 0


def _uv() -> Path:
    """The pinned resolver, in an environment of its own."""
    environment = ROOT / ".cache" / f"uv-{UV_VERSION}"
    uv = environment / "bin" / "uv"
    if not uv.exists():
        venv.create(environment, with_pip=True)
        subprocess.check_call([str(environment / "bin" / "pip"), "install", "--quiet", f"uv=={UV_VERSION}"])
    return uv


if __name__ == "__main__":
    sys.exit(main())
