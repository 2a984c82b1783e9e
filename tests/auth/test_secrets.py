"""Keys are in no log, error, metric, list of processes or file of a whole run, but in the file of users."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.interop.cluster import thermocline_daemons
from thermocline.client import AdminClient, Credentials, Message, MQError, Producer

pytestmark = pytest.mark.crash  # it starts a whole broker with its helper processes

PLANTED = tuple(f"planted-{name}" for name in ("key-of-root", "key-of-brokers", "key-of-alice", "token", "wrong-key"))
ROOT = Credentials(access_key="root", secret_key=PLANTED[0])
ALICE = Credentials(access_key="alice", secret_key=PLANTED[2], security_token=PLANTED[3])
WRONG = Credentials(access_key="alice", secret_key=PLANTED[4])
KEPT = {"auth.json", "root.keys", "alice.key"}
"""The file of users, and those that the test has made."""


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command_lines(process_id: int) -> str:
    """Of all processes of a group."""
    group = os.getpgid(process_id)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == group:
                    found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return "\n".join(found)


def test_planted_keys_are_found_nowhere(tmp_path: Path) -> None:
    port = free_port()
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "auditLogAccesses": "true",
        "mappedFileSizeCommitLog": str(1 << 20),
        "mappedFileSizeTimerLog": str(1 << 20),
        "maxHashSlotNum": "1000",
        "maxIndexNum": "4000",
        "healthPort": str(port),
        "initAuthenticationUser": json.dumps({"username": "root", "password": PLANTED[0]}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": PLANTED[1]}),
    }
    keys, password = tmp_path / "root.keys", tmp_path / "alice.key"
    keys.write_text(f"accessKey: root\nsecretKey: {PLANTED[0]}\n")
    password.write_text(PLANTED[2])
    outputs = []
    with thermocline_daemons(tmp_path / "run", settings=settings) as daemons:

        def run(*words: str) -> None:
            command = [str(Path(sys.executable).parent / "thermocline"), *words]
            common = ["--namesrv", daemons.namesrv, "--credentials", str(keys)]
            done = subprocess.run([*command, *common], capture_output=True, text=True, check=False)
            outputs.append(done.stdout + done.stderr)

        run("user", "create", "alice", "--password-file", str(password))
        run("user", "create", "alice", "--password-file", str(password))
        run("acl", "set", "alice", "Pub", "Topic:Secret")
        run("user", "list", "--json")
        run("broker", "config", "get", "broker-a")
        assert "created alice" in outputs[0]
        with AdminClient(namesrv=daemons.namesrv, credentials=ROOT) as admin:
            admin.create_topic("Secret")
            with pytest.raises(MQError) as refused:
                admin.update_broker_config("broker-a", {"initAuthenticationUser": PLANTED[4]})
            outputs.append(str(refused.value))
            outputs.append(str(admin.broker_config("broker-a")))
        with Producer(namesrv=daemons.namesrv, group="p", credentials=ALICE) as producer:
            producer.send(Message("Secret", b"body"))
            outputs.append(repr(producer))
        wrong = Producer(namesrv=daemons.namesrv, group="p", credentials=WRONG)
        with pytest.raises(MQError) as refused, wrong:
            wrong.send(Message("Secret", b"body"))
        outputs.append(str(refused.value))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            metrics = page.read().decode()
        outputs += [metrics, command_lines(daemons.process.process_id)]
        assert 'thermocline_access_denied_total{stage="authentication"}' in metrics
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in KEPT]
    assert any(path.name == "audit.log" and b'"accessed"' in path.read_bytes() for path in files)
    everything = {"outputs": "\n".join(outputs).encode()} | {str(path): path.read_bytes() for path in files}
    for secret, (place, data) in itertools.product(PLANTED, everything.items()):
        assert secret.encode() not in data, place
