"""Each launcher: starts, serves S3, survives or loses a crash as its kind says, and dies with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import botocore.exceptions
import pytest

from tests.fixtures_s3 import check_installed
from tests.fixtures_tools import have
from thermocline.localstack import SERVER_KINDS, LocalStackError, S3Server, ServerStartError, start_server
from thermocline.localstack.child_process import ChildProcess
from thermocline.localstack.loopback_port import is_listening

pytestmark = pytest.mark.s3

DEADLINE_S = 20.0


def wait_until_gone(process_id: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{process_id}/stat").exists():
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":  # no parent reaps an orphan in a container without init
            return
        assert time.monotonic() < deadline, f"process {process_id} is still there"
        time.sleep(0.02)


@pytest.mark.parametrize("s3_server_kind", SERVER_KINDS, indirect=True)
def test_every_kind_stores_and_returns_an_object(any_s3_server: S3Server) -> None:
    bucket = any_s3_server.make_bucket("launcher")
    client = any_s3_server.client()
    client.put_object(Bucket=bucket, Key="topics/a/1.log", Body=b"0123456789")
    answer = client.get_object(Bucket=bucket, Key="topics/a/1.log", Range="bytes=2-4")
    assert answer["Body"].read() == b"234"
    client.close()


@pytest.mark.parametrize("s3_server_kind", SERVER_KINDS, indirect=True)
def test_every_kind_creates_a_key_only_once(any_s3_server: S3Server) -> None:
    bucket = any_s3_server.make_bucket("create-once")
    client = any_s3_server.client()
    client.put_object(Bucket=bucket, Key="ledger/1", Body=b"first", IfNoneMatch="*")
    with pytest.raises(botocore.exceptions.ClientError) as refused:
        client.put_object(Bucket=bucket, Key="ledger/1", Body=b"second", IfNoneMatch="*")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    assert client.get_object(Bucket=bucket, Key="ledger/1")["Body"].read() == b"first"
    client.close()


def test_a_killed_server_comes_back_on_its_port_with_its_objects(private_s3_server: S3Server) -> None:
    bucket = private_s3_server.make_bucket("crash")
    client = private_s3_server.client()
    client.put_object(Bucket=bucket, Key="k", Body=b"kept")
    endpoint, first_process_id = private_s3_server.endpoint, private_s3_server.process_id
    private_s3_server.kill()
    assert not is_listening(private_s3_server.port)
    private_s3_server.restart()
    assert private_s3_server.endpoint == endpoint
    assert private_s3_server.process_id != first_process_id
    assert client.get_object(Bucket=bucket, Key="k")["Body"].read() == b"kept"
    client.close()


def test_the_command_runs_a_server_until_it_is_stopped(tmp_path: Path) -> None:
    have(lambda: check_installed("versitygw"))
    process = subprocess.Popen(
        [sys.executable, "-m", "thermocline.localstack", "versitygw", "--data", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    words = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
    port = int(words["endpoint"].rpartition(":")[2])
    assert words["bucket"] == "thermocline"
    assert is_listening(port)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0
    process.stdout.close()
    assert not is_listening(port)


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    have(lambda: check_installed("versitygw"))
    program = (
        "import os, pathlib, signal\n"
        "from thermocline.localstack import start_server\n"
        f"with start_server('versitygw', pathlib.Path({str(tmp_path)!r})) as server:\n"
        "    print(server.process_id, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)
    assert answer.returncode == -signal.SIGKILL
    wait_until_gone(int(answer.stdout))


def test_a_server_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    process = ChildProcess(
        [sys.executable, "-c", "print('no room left'); raise SystemExit(3)"],
        log_path=tmp_path / "log",
        working_directory=tmp_path,
    )
    with pytest.raises(ServerStartError, match=r"status 3(.|\n)*no room left"):
        process.wait_until(lambda: False, timeout_s=DEADLINE_S)


def test_stopping_ends_a_process_that_ignores_the_request(tmp_path: Path) -> None:
    process = ChildProcess(
        [
            sys.executable,
            "-c",
            "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()",
        ],
        log_path=tmp_path / "log",
        working_directory=tmp_path,
    )
    process.wait_until(lambda: "up" in process.output(), timeout_s=DEADLINE_S)
    assert process.stop(timeout_s=0.2) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(process.process_id, 0)


def test_an_unknown_kind_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="no S3 server called 'floppy'"), start_server("floppy", tmp_path):
        raise AssertionError("it started")
