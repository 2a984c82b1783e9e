"""Java libraries by Maven coordinates: the official RocketMQ software of two generations, and Hadoop's s3a connector
for Spark.

Each set is one pom file beside this one. Its jars lie in one flat directory of the cache whose name carries a digest of
the pom, so a changed pin never meets an old directory; a directory under its final name is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from thermocline.localstack import LocalStackError, ToolMissingError
from tooling.system_packages import ensure_java_home, ensure_maven

TOOLING = Path(__file__).resolve().parent
CACHE = TOOLING.parent / ".cache"
OFFICIAL_ROCKETMQ = "official-rocketmq"
OFFICIAL_ROCKETMQ_4 = "official-rocketmq-4"
SPARK_S3A = "spark-s3a"
# A pinned plugin, so that the goal means the same with every Maven.
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
# Spark brings these itself, in versions of its own.
LEFT_TO_SPARK = ("netty-", "httpc", "slf4j-", "commons-")


def jars_directory(name: str) -> Path:
    """Where the set's jars are, once fetched."""
    pom = (TOOLING / f"{name}.pom.xml").read_bytes()
    return CACHE / "jars" / f"{name}-{hashlib.sha256(pom).hexdigest()[:12]}"


def find_jars(name: str) -> Path:
    """The directory of the set's jars.

    Raises:
        ToolMissingError: They have not been fetched.
    """
    directory = jars_directory(name)
    if not directory.is_dir():
        raise ToolMissingError(f"the {name} jars are not here yet: `make test` fetches them.")
    return directory


def ensure_jars(name: str) -> Path:
    """Fetch the set unless it is there (up to half a minute, once).

    Raises:
        ToolMissingError: There is no Java or no Maven.
        LocalStackError: Maven failed; the message ends with what it said.
    """
    target = jars_directory(name)
    if target.is_dir():
        return target
    maven = ensure_maven()
    ensure_java_home(with_compiler=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{name}.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if target.is_dir():
            return target
        print(f"fetching the {name} jars (once)", file=sys.stderr, flush=True)
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        pom = TOOLING / f"{name}.pom.xml"
        command = [str(maven), "-q", "-B", "-f", str(pom), COPY_GOAL, "-DincludeScope=runtime"]
        answer = subprocess.run([*command, f"-DoutputDirectory={partial}"], capture_output=True, text=True, check=False)
        if answer.returncode != 0 or not partial.is_dir():
            raise LocalStackError(f"the {name} jars could not be fetched:\n{(answer.stdout + answer.stderr)[-2_000:]}")
        if name == SPARK_S3A:
            for jar in partial.iterdir():
                if jar.name.startswith(LEFT_TO_SPARK):
                    jar.unlink()
        partial.rename(target)
    return target
