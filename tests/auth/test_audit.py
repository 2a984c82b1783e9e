"""The audit log: its lines, its files, and what happens when the disk is too slow.

Covers `auth/audit.py`, `auth/audit_file.py`.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from tests.waiting import wait_until
from thermocline.auth import audit_file
from thermocline.auth.access_control import AccessControl
from thermocline.auth.audit import AUTHENTICATION, AUTHORIZATION, TEXT_CHARACTERS_MAX, AuditLog, denial_rest, whole_line
from thermocline.auth.audit_file import AuditFile
from thermocline.auth.auth_config import AuthConfig
from thermocline.auth.auth_store import AuthStore
from thermocline.remoting.bodies.auth import AclInfo, AuthState, UserInfo
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials

NOW_MS = 1_764_128_460_007


class Lines:
    """A writer that keeps what it gets."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def write(self, time_ms: int, rest: bytes) -> None:
        line = whole_line(time_ms, rest)
        assert line.endswith(b"\n")
        self.lines.append(json.loads(line))


def audit_to(writer: Lines | AuditFile | None) -> AuditLog:
    return AuditLog(writer, clock=lambda: NOW_MS, is_access_wanted=lambda: True)


def deny(audit: AuditLog, reason: str = "no matched policies.") -> None:
    rest = denial_rest(
        AUTHORIZATION,
        user="alice",
        address="10.0.0.1",
        request="SEND_MESSAGE_V2",
        action="Pub",
        resource="Topic:orders",
        reason=reason,
    )
    audit.denied(AUTHORIZATION, rest)


def test_a_line_has_what_is_known_and_nothing_else() -> None:
    writer = Lines()
    audit = audit_to(writer)
    deny(audit)
    rest = denial_rest(AUTHENTICATION, user=None, address="10.0.0.1", request="PULL_MESSAGE", reason="r")
    audit.denied(AUTHENTICATION, rest)
    assert writer.lines == [
        {
            "time": "2025-11-26T03:41:00.007Z",
            "event": "denied",
            "user": "alice",
            "address": "10.0.0.1",
            "request": "SEND_MESSAGE_V2",
            "action": "Pub",
            "resource": "Topic:orders",
            "reason": "no matched policies.",
        },
        {
            "time": "2025-11-26T03:41:00.007Z",
            "event": "denied",
            "unproved": True,
            "address": "10.0.0.1",
            "request": "PULL_MESSAGE",
            "reason": "r",
        },
    ]
    assert audit.denials == {"authentication": 1, "authorization": 1}


def test_a_long_name_is_cut() -> None:
    """A client may claim any name, and a frame has 16 MiB."""
    writer = Lines()
    audit = audit_to(writer)
    rest = denial_rest(AUTHENTICATION, user="x" * 5_000_000, address="10.0.0.1", request="PULL_MESSAGE", reason="r")
    audit.denied(AUTHENTICATION, rest)
    assert writer.lines[0]["user"] == "x" * TEXT_CHARACTERS_MAX + "..."


def test_denials_are_counted_without_a_file() -> None:
    audit = audit_to(None)
    deny(audit)
    assert audit.denials["authorization"] == 1
    assert not audit.wants_accesses


def test_full_files_are_set_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b"")
    path.chmod(0o644)  # as something else has left it
    file = AuditFile(str(path), file_bytes=4096, file_count=2, clock=lambda: NOW_MS)
    audit = audit_to(file)
    for number in range(200):
        deny(audit, reason=f"reason {number:04}")
    file.close()
    file.close()
    files = sorted(tmp_path.iterdir())
    assert [each.name for each in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    kept = [line for each in (files[2], files[1], files[0]) for line in each.read_text().splitlines()]
    reasons = [json.loads(line)["reason"] for line in kept]
    assert reasons == [f"reason {number:04}" for number in range(200 - len(reasons), 200)]
    assert all(each.stat().st_size >= 4096 for each in files[1:])


def reasons_in(*files: Path) -> list[str]:
    """Of denials, and how many lines were dropped."""
    found = []
    for path in files:
        for text in path.read_text().splitlines():
            line = json.loads(text)
            found.append(line.get("reason") or f"dropped {line['count']}")
    return found


def written(file: AuditFile) -> None:
    """Wait until the thread has written, or given up, what it was given."""
    wait_until(lambda: file._ended_bytes == file._taken_bytes, what="lines are written", interval_s=0.01)


@pytest.mark.parametrize("cause", ["no descriptor", "moved away"])
def test_a_file_that_could_not_be_set_aside_is_no_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(str(path), file_bytes=4096, file_count=2, clock=lambda: NOW_MS)
    audit = audit_to(file)
    deny(audit, reason="x" * 900)
    written(file)
    os.truncate(path, 0)
    file._size_bytes = 4096  # full
    if cause == "moved away":
        path.rename(tmp_path / "elsewhere")
    else:
        open_file, failures = os.open, [OSError(errno.EMFILE, "Too many open files")]

        def refuse(name: str, *more: int) -> int:
            if name == str(path) and failures:
                raise failures.pop()
            return open_file(name, *more)

        monkeypatch.setattr(os, "open", refuse)
    for number in range(3):
        deny(audit, reason=f"reason {number}")
        written(file)
    file.close()
    if cause == "moved away":
        assert reasons_in(path) == ["reason 0", "reason 1", "reason 2"]
    else:
        assert reasons_in(path) == ["reason 1", "dropped 1", "reason 2"]
        assert sorted(each.name for each in tmp_path.iterdir()) == ["audit.log", "audit.log.1"]


def test_half_a_line_takes_no_other_one_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash, and after a disk that was full for a while."""
    path = tmp_path / "audit.log"
    path.write_text('{"time":"2026')
    file = AuditFile(str(path), file_bytes=1 << 20, file_count=2, clock=lambda: NOW_MS)
    audit = audit_to(file)
    deny(audit, reason="first")
    written(file)
    write, refused = os.write, [OSError(errno.ENOSPC, "No space left on device")]

    def fill(number: int, data: memoryview) -> int:
        if number != file._file or not refused:
            return write(number, data)
        if len(data) > 100:
            return write(number, data[:100])
        raise refused.pop()

    monkeypatch.setattr(os, "write", fill)
    for reason in ("second " + "x" * 30, "third"):
        deny(audit, reason=reason)
        written(file)
    file.close()
    lines = path.read_text().splitlines()
    torn = [line for line in lines if not line.endswith("}")]
    assert len(torn) == 2
    path.write_text("\n".join(line for line in lines if line not in torn))
    assert reasons_in(path) == ["first", "third", "dropped 1"]


def test_what_there_is_no_room_for_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_file, "PENDING_BYTES_MAX", 300)
    pipe = tmp_path / "audit.log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file = AuditFile(str(pipe), file_bytes=1 << 30, file_count=1, clock=lambda: NOW_MS)
    audit = audit_to(file)
    while not file._dropped:  # the pipe takes 64 KiB, then the thread waits
        deny(audit)
    received = b""
    while b'"dropped"' not in received:
        try:
            received += os.read(reader, 1 << 20)
        except BlockingIOError:
            deny(audit)
    file.close()
    os.close(reader)
    dropped = [json.loads(line) for line in received.splitlines() if b'"dropped"' in line]
    assert dropped[0]["count"] >= 1


async def keep() -> None:
    """What a store without a file does."""


def changes_of(*requests: tuple[int, dict[str, str], bytes], authorizes: bool = True) -> list[dict[str, object]]:
    """The lines about requests of a super user."""
    lines, config = Lines(), AuthConfig(authentication_enabled=True, authorization_enabled=authorizes)
    store = AuthStore(keep)
    audit = AuditLog(lines, clock=lambda: NOW_MS, is_access_wanted=lambda: False)
    control = AccessControl(store, config, audit=audit, cluster_name="c")
    key = Credentials(access_key="root", secret_key="key")
    root = UserInfo(username="root", password="key", user_type="Super")
    store.load(AuthState(users=[root]).encode())
    for code, fields, body in requests:
        command = RemotingCommand.request(code, ext_fields=fields, body=body)
        key.sign(command)
        control.check(command, "10.0.0.1")
    return lines.lines


def test_a_change_names_what_is_changed_not_what_a_field_says_beside_it() -> None:
    """A request may have any field: only what the change is made by counts."""
    claimed = {"subject": "User:bob", "username": "bob"}
    policies = AclInfo(subject="User:mallory", policies=[]).encode()
    lines = changes_of(
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders", **claimed}, b""),
        (RequestCode.AUTH_CREATE_ACL, claimed, policies),
        (RequestCode.AUTH_UPDATE_ACL, claimed, policies),
        (RequestCode.AUTH_UPDATE_ACL, claimed, b"none"),
        (RequestCode.AUTH_UPDATE_ACL, {"username": "bob", "subject": "User:carol"}, b""),
        (RequestCode.AUTH_DELETE_ACL, {"subject": "User:carol"}, policies),
        (RequestCode.AUTH_DELETE_USER, {"username": "carol", "subject": "User:bob"}, policies),
    )
    assert [line["resource"] for line in lines] == [
        "Topic:orders",
        *["User:mallory"] * 2,
        "User:bob",
        *["User:carol"] * 3,
    ]


def test_a_change_names_its_resource_without_authorization_too() -> None:
    (line,) = changes_of((RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}, b""), authorizes=False)
    assert (line["event"], line["user"], line["resource"]) == ("changed", "root", "Topic:orders")


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.DELETE_EXPIRED_COMMITLOG, {}),
        (RequestCode.CLEAN_UNUSED_TOPIC, {}),
        (RequestCode.RESUME_CHECK_HALF_MESSAGE, {"topic": "orders"}),
        (RequestCode.NOTIFY_BROKER_ROLE_CHANGED, {}),
        (RequestCode.UNREGISTER_BROKER, {"clusterName": "c"}),
        (PrivateRequestCode.HAND_OFF_ABORT, {"group": "g"}),
    ],
)
def test_what_administrators_and_controllers_change_is_always_written(code: int, fields: dict[str, str]) -> None:
    (line,) = changes_of((code, fields, b""))
    assert line["event"] == "changed"
