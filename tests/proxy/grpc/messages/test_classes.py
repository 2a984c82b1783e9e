"""Messages of the protocol: fields and numbers are those of the official client's classes.

Covers `proxy/grpc/messages/schema.py` and `proxy/grpc/messages/codes.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_tools import have
from thermocline.proxy.grpc.messages import Code, Language, enums, messages
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON

_PROGRAM = Path(__file__).parent / "official_classes.py"
LEFT_OUT = {"OffsetOption"}


@pytest.fixture(scope="module")
def official() -> dict[str, Any]:
    """What the official client's generated classes say; in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(have(ROCKETMQ_GRPC_PYTHON.find))}
    finished = subprocess.run(
        [sys.executable, str(_PROGRAM)], capture_output=True, check=True, timeout=120, env=environment
    )
    described: dict[str, Any] = json.loads(finished.stdout)
    return described


def test_fields_are_those_of_the_official_classes(official: dict[str, Any]) -> None:
    for name, fields in official["messages"].items():
        if name in LEFT_OUT:
            continue
        ours = [
            [each.number, each.name, each.type, each.is_repeated, each.has_presence]
            for each in getattr(messages, name).DESCRIPTOR.fields
        ]
        assert ours == [field for field in fields if field[1] != "offset_option"], name


def test_enums_are_those_of_the_official_classes(official: dict[str, Any]) -> None:
    own = {"Code": Code, "Language": Language}
    for name, values in official["enums"].items():
        enum = own.get(name) or getattr(enums, name)
        assert {value.name: value.value for value in enum} == values, name


def test_an_unknown_field_is_kept_where_a_message_is_sent_back() -> None:
    data = messages.Settings(client_type=1).SerializeToString() + b"\x4a\x03abc"  # field 9, of later clients
    copy = messages.Settings()
    copy.CopyFrom(messages.Settings.FromString(data))
    assert b"\x4a\x03abc" in copy.SerializeToString()


def test_without_protobuf_the_command_says_what_is_missing() -> None:
    program = (
        "import sys; sys.modules['google.protobuf'] = None\n"
        "from thermocline.cli.main import run; sys.exit(run(['proxy', '--listen', '127.0.0.1:0']))"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 2
    assert "install thermocline[proxy]" in finished.stderr
    assert "Traceback" not in finished.stderr
