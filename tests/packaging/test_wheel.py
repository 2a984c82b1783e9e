"""What `pip install` of the built distributions gives, in environments that have nothing else of ours."""

from __future__ import annotations

import json
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures_s3 import S3Bucket, new_bucket
from tests.packaging.wheel_environment import (
    PROJECT,
    ROOT,
    WheelEnvironment,
    build,
    copy_sources,
    lowest_versions,
    make_environment,
)
from thermocline.localstack import S3Server
from thermocline.localstack.child_process import ChildProcess

pytestmark = [pytest.mark.xdist_group("wheel"), pytest.mark.timeout(1_800)]

READY_TIMEOUT_S = 300
COUNT = 40
MASTER, EXECUTORS = "local-cluster[2,1,1024]", 2

SEND = """
import sys
from thermocline import Message, Producer

with Producer(group="shop", namesrv=sys.argv[1]) as producer:
    for number in range(int(sys.argv[2])):
        producer.send(Message("orders", b"body %d" % number, tags="paid", keys=f"k{number}"))
"""
PLACES = """
import importlib.util, sys, thermocline
print(thermocline.__file__)
print([name for name in ("tests", "tooling", "benchmarks", "pytest", "pyspark") if importlib.util.find_spec(name)])
print(sys.path)
"""


@pytest.fixture(scope="module")
def distributions(module_folder: Path) -> Path:
    """An sdist, a wheel built from it, and in `direct/` a wheel built from the sources."""
    source = copy_sources(module_folder / "source")
    build(source, module_folder / "dist")
    build(source, module_folder / "dist" / "direct", "--wheel")
    return module_folder / "dist"


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


@pytest.fixture(scope="module")
def environment(distributions: Path, module_folder: Path, request: pytest.FixtureRequest) -> WheelEnvironment:
    """The wheel without extras."""
    is_soak = bool(request.config.getoption("--soak"))
    wheel = only(distributions, "*.whl")
    return make_environment(module_folder / "plain", wheel, from_registry=is_soak)


@pytest.fixture(scope="module")
def spark_environment(
    distributions: Path, module_folder: Path, java_home: Path, request: pytest.FixtureRequest
) -> WheelEnvironment:
    """The wheel with the extra `spark`."""
    is_soak = bool(request.config.getoption("--soak"))
    wheel = only(distributions, "*.whl")
    made = make_environment(module_folder / "spark", wheel, extras="[spark]", from_registry=is_soak)
    return WheelEnvironment(
        prefix=made.prefix, directory=made.directory, variables={**made.variables, "JAVA_HOME": str(java_home)}
    )


def contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist() if not each.filename.endswith("/RECORD")}


def test_both_wheels_hold_the_package_and_nothing_else(distributions: Path) -> None:
    found = contents(only(distributions, "*.whl"))
    assert found == contents(only(distributions / "direct", "*.whl"))
    tops = {name.split("/")[0] for name in found}
    (described,) = (top for top in tops if top.endswith(".dist-info"))
    assert tops == {PROJECT, "pyspark_thermocline", described}
    for link in (ROOT / "src" / PROJECT).iterdir():
        if link.is_symlink():
            for file in (ROOT / link.name).rglob("*"):
                if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".in":
                    assert f"{PROJECT}/{file.relative_to(ROOT)}" in found


def test_the_sdist_holds_the_sources_of_the_wheel_and_no_tests(distributions: Path) -> None:
    with tarfile.open(only(distributions, "*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", f"src/{PROJECT}/broker/hot_process.py"} <= names
    assert not [name for name in names if name.startswith("tests")]


@pytest.mark.full
def test_the_sdist_can_be_installed(distributions: Path, tmp_path: Path) -> None:
    installed = make_environment(tmp_path, only(distributions, "*.tar.gz"))
    assert installed.run(installed.command, "--version").stdout.startswith("thermocline, version ")
    assert installed.run(installed.command, "cold", "read", "--help").stdout


def started(environment: WheelEnvironment, folder: Path, *words: str) -> tuple[ChildProcess, dict[str, str]]:
    """`thermocline dev` of the environment, serving, and what it printed."""
    folder.mkdir(exist_ok=True)
    command = [str(environment.command), "dev", "--data", str(folder / "data")]
    command += ["--namesrv", "127.0.0.1:0", "--listen", "127.0.0.1:0", *words]
    process = ChildProcess(
        ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in environment.variables.items()), *command],
        log_path=folder / "dev.log",
        working_directory=environment.directory,
    )
    process.wait_until(lambda: "ready namesrv=" in process.output(), timeout_s=READY_TIMEOUT_S)
    (line,) = [line for line in process.output().splitlines() if line.startswith("ready ")]
    return process, dict(word.split("=", 1) for word in line.split()[1:])


def filled(environment: WheelEnvironment, namesrv: str) -> None:
    """Messages sent by the SDK, and moved to the cold tier by the command."""
    environment.run(environment.command, "topic", "create", "orders", "--queues", "2", "-n", namesrv)
    environment.run(environment.python, "-c", SEND, namesrv, str(COUNT))
    environment.run(environment.command, "tier", "seal", "orders", "-n", namesrv)


@pytest.mark.soak
def test_the_lowest_versions_that_it_asks_for_serve(
    distributions: Path, module_folder: Path, s3_servers: Callable[[str], S3Server], request: pytest.FixtureRequest
) -> None:
    """With others that were pinned no command began (click 8.1), or no bucket was reached (aiobotocore 2.15)."""
    if not request.config.getoption("--soak"):
        pytest.skip("asks the registry")
    wheel = only(distributions, "*.whl")
    lowest = make_environment(module_folder / "lowest", wheel, from_registry=True, constraints=lowest_versions())
    url = new_bucket(s3_servers("moto")).cold_url
    few = ("--rounds", "1", "--writers", "2", "--size-mib", "1")
    assert "is fit" in lowest.run(lowest.command, "store", "doctor", url, *few).stdout


def bodies(done: subprocess.CompletedProcess[str]) -> list[str]:
    return sorted(message["body"] for message in json.loads(done.stdout))


def test_broker_sdk_and_commands_from_the_wheel(environment: WheelEnvironment, tmp_path: Path) -> None:
    where, others, path = environment.run(environment.python, "-c", PLACES).stdout.splitlines()
    assert Path(where).is_relative_to(environment.prefix)
    assert others == "[]"
    assert str(ROOT / "src") not in path
    expected = sorted(f"body {number}" for number in range(COUNT))
    process, ready = started(environment, tmp_path / "broker")
    try:
        filled(environment, ready["namesrv"])
        pull = ["message", "pull", "orders", "--count", str(COUNT), "--full", "--json", "-n", ready["namesrv"]]
        assert bodies(environment.run(environment.command, *pull)) == expected
    finally:
        status = process.stop()
    assert status == 0
    assert "Traceback" not in process.output()
    # The broker is gone: the history is read from the bucket alone.
    assert bodies(environment.run(environment.command, "cold", "read", ready["cold"], "orders", "--json")) == expected
    counts = ["spark", "counts", "orders", "--from", ready["cold"]]
    missing = environment.run(environment.command, *counts, status=1)
    way = "pip install '.[spark]' in a checkout, or 'FILE.whl[spark]' of a wheel"
    assert missing.stderr == f"thermocline: PySpark is not installed: {way}.\n"
    hand_off = ["spark", "hand-off", "./no-such-receipt.json", "--group", "billing"]
    assert "no-such-receipt.json" in environment.run(environment.command, *hand_off, status=1).stderr


@pytest.fixture(scope="module")
def history(
    spark_environment: WheelEnvironment, s3_servers: Callable[[str], S3Server], module_folder: Path
) -> S3Bucket:
    """A bucket of a MinIO with the history of a broker that ran from the wheel, and is gone."""
    bucket = new_bucket(s3_servers("minio"))
    process, ready = started(spark_environment, module_folder / "s3-broker", "--cold", bucket.cold_url)
    try:
        filled(spark_environment, ready["namesrv"])
    finally:
        status = process.stop()
    assert status == 0
    return bucket


def run_checks(environment: WheelEnvironment, bucket: S3Bucket, checks: str, *arguments: str) -> str:
    """Run `checks.py` of this folder, copied out of the checkout; its output."""
    program = environment.directory / "spark_checks.py"
    program.write_bytes((Path(__file__).parent / "spark_checks.py").read_bytes())
    case = {
        "url": f"s3a://{bucket.name}/cold",
        "count": COUNT,
        "prefix": str(environment.prefix),
        "options": {
            "fs.s3a.endpoint": bucket.endpoint,
            "fs.s3a.endpoint.region": bucket.region,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": bucket.access_key,
            "fs.s3a.secret.key": bucket.secret_key,
        },
    }
    return environment.run(environment.python, program, checks, json.dumps(case), *arguments).stdout


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.s3
def test_spark_reads_with_executors_that_have_the_wheel_alone(
    spark_environment: WheelEnvironment, history: S3Bucket
) -> None:
    """Both engines, on processes of their own; the s3a connector is set up by `local_session(s3a=True)`."""
    assert "checked" in run_checks(spark_environment, history, "with-connector", MASTER, str(EXECUTORS))


@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.full
def test_without_the_connector_the_missing_artifact_is_named(
    spark_environment: WheelEnvironment, history: S3Bucket
) -> None:
    assert "checked" in run_checks(spark_environment, history, "without-connector")
