"""The text that lists the controllers of a group."""

from __future__ import annotations

import pytest

from thermocline.controller.consensus import parse_peers
from thermocline.remoting.errors import InvalidParameterError

THREE = "n0-10.0.0.1:9878;n1-10.0.0.2:9878;n2-c-2.example:9878"


def test_peers_are_read_as_dledger_writes_them() -> None:
    peers = parse_peers(f" {THREE}; ", "n1")
    assert peers.addresses == {"n0": "10.0.0.1:9878", "n1": "10.0.0.2:9878", "n2": "c-2.example:9878"}
    assert peers.address == "10.0.0.2:9878"
    assert peers.others.keys() == {"n0", "n2"}
    assert peers.text == "n0:10.0.0.1:9878;n1:10.0.0.2:9878;n2:c-2.example:9878;"


@pytest.mark.parametrize(
    ("text", "node", "reason"),
    [
        ("", "n0", "one, three or five"),
        ("n0-a:1;n1-b:1", "n0", "one, three or five"),
        (THREE, "n3", "controllerDLegerSelfId"),
        ("a:1", "n0", "id-host:port"),
        ("n 0-a:1", "n 0", "id-host:port"),
        ("n0-a:1;n0-b:1;n2-c:1", "n0", "twice"),
        ("n0-a:1;n1-a:1;n2-c:1", "n0", "twice"),
        ("n0-a:0", "n0", "host and a port"),
        ("n0-a", "n0", "a"),
    ],
)
def test_what_is_no_group_is_refused(text: str, node: str, reason: str) -> None:
    with pytest.raises(InvalidParameterError, match=reason):
        parse_peers(text, node)
