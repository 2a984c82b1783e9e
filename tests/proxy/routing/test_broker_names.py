"""Broker names of several clusters, in handles and by themselves."""

from __future__ import annotations

import pytest

from tests.proxy.fake_messaging import handle_at
from thermocline.proxy.messaging import ProxyHandle
from thermocline.proxy.routing import BrokerNames
from thermocline.remoting.errors import IllegalOperationError, InvalidRequestError, UnavailableError
from thermocline.remoting.handles import RecallHandle, decode_recall_handle

NAMES = BrokerNames(["east", "west"])
RECALL = RecallHandle(topic="T", broker_name="broker-a", timestamp_text="17", unique_key="K").encode()


@pytest.mark.parametrize(
    ("cluster", "plain", "name"),
    [
        ("default", "broker-a", "broker-a"),
        ("east", "broker-a", "broker-a@east"),
        ("east", "odd@west", "odd@west@east"),
        ("default", "odd@north", "odd@north"),
    ],
)
def test_a_name_says_its_cluster(cluster: str, plain: str, name: str) -> None:
    assert NAMES.join(cluster, plain) == name
    assert NAMES.split(name) == (cluster, plain)


def test_a_broker_of_the_default_cluster_that_is_called_like_anothers_is_not_served() -> None:
    with pytest.raises(UnavailableError, match="has a name that means another cluster: rename it"):
        NAMES.join("default", "broker-a@east")
    assert BrokerNames().join("default", "broker-a@east") == "broker-a@east"


def test_receipt_handles_say_their_cluster() -> None:
    plain = handle_at(1_000)
    joined = NAMES.join_handle("east", plain)
    assert joined.receipt.broker_name == "broker-a@east"
    assert NAMES.split_handle(ProxyHandle.parse(joined.text())) == ("east", plain)
    assert NAMES.split_handle(plain) == ("default", plain)
    text = plain.receipt.text()
    assert NAMES.split_receipt(NAMES.join_receipt("west", text)) == text
    with pytest.raises(InvalidRequestError, match="not a receipt handle"):
        NAMES.split_receipt("no handle")


def test_recall_handles_say_their_cluster() -> None:
    joined = NAMES.join_recall("east", RECALL)
    assert decode_recall_handle(joined).broker_name == "broker-a@east"
    assert NAMES.split_recall(joined) == ("east", RECALL)
    assert NAMES.split_recall(RECALL) == ("default", RECALL)
    assert NAMES.join_recall("default", RECALL) == RECALL
    assert NAMES.join_recall("east", "") == ""
    with pytest.raises(IllegalOperationError):
        NAMES.split_recall("no handle")
