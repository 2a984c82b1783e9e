"""Receipts: what they say, where they lie, and that no changed one is believed."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.fixtures_s3 import S3Bucket
from thermocline.remoting.bodies.hand_off import QueueTarget, TopicTarget
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError, ObjectNotFoundError
from thermocline.spark.access.blocking_store import blocking_store
from thermocline.spark.access.store_options import StoreOptions
from thermocline.spark.handoff.hand_off import hand_off
from thermocline.spark.handoff.obstacles import obstacles_of
from thermocline.spark.handoff.receipt import (
    Receipt,
    ReceiptBroker,
    ReceiptQueue,
    decode_receipt,
    encode_receipt,
    read_receipt,
    receipt_place,
    write_receipt,
)
from thermocline.tiered.objects.checked_json import seal_json


def queue(name: str, queue_id: int, start: int, end: int, group_offset: int | None = None) -> ReceiptQueue:
    return ReceiptQueue(
        topic="orders",
        broker_name=name,
        queue_id=queue_id,
        start_offset=start,
        end_offset=end,
        group_offset=group_offset,
    )


RECEIPT = Receipt(
    receipt_id="5f0c",
    created_ms=1_767_225_600_000,
    topics=("orders", "payments"),
    output="./orders",
    row_count=7,
    snapshot_ms=1_767_225_500_000,
    group="billing",
    brokers=(
        ReceiptBroker(broker_name="broker-a", root="c/broker-a", version=41, incarnations={"orders": 3}),
        ReceiptBroker(broker_name="broker-b", root="c/broker-b", version=9, incarnations={}),
    ),
    queues=(queue("broker-a", 0, 5, 12, 5), queue("broker-a", 1, 0, 0, -1), queue("broker-a", 2, -2, -2)),
    all_queues=True,
    obstacles=(),
)


def test_a_receipt_is_json_for_people_and_comes_back() -> None:
    data = encode_receipt(RECEIPT)
    assert decode_receipt(data, place="r") == RECEIPT
    shown = json.loads(data)
    assert shown["queues"][0] == {
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 0,
        "start_offset": 5,
        "end_offset": 12,
        "group_offset": 5,
        "whole_from": None,
    }
    assert len(data.splitlines()) > 10


def test_a_changed_receipt_is_none() -> None:
    data = encode_receipt(RECEIPT)
    for changed in (data.replace(b'"end_offset": 12', b'"end_offset": 13'), data[:-3], b"{}", b"", b'{"a": 1}'):
        with pytest.raises(CorruptDataError, match="no receipt, or it was changed"):
            decode_receipt(changed, place="r")
    with pytest.raises(CorruptDataError, match="cannot be decoded"):
        decode_receipt(seal_json(b'{"format":1}'), place="r")
    later = seal_json(msgspec.json.encode(msgspec.structs.replace(RECEIPT, format=2)))
    with pytest.raises(InvalidRequestError, match="later format"):
        decode_receipt(later, place="r")


def test_where_a_group_goes_on() -> None:
    assert RECEIPT.targets("billing") == {
        "broker-a": [
            TopicTarget(
                topic="orders",
                incarnation=3,
                is_whole=True,
                queues=[
                    QueueTarget(queue_id=0, offset=12, expected=5, start=5),
                    QueueTarget(queue_id=1, offset=0, expected=-1, start=0),
                ],
            ),
            TopicTarget(topic="payments", incarnation=None, is_whole=True, queues=[]),
        ],
        "broker-b": [TopicTarget(topic="orders", is_whole=True), TopicTarget(topic="payments", is_whole=True)],
    }
    (orders, _) = RECEIPT.targets("another group")["broker-a"]
    assert [each.expected for each in orders.queues] == [None, None]
    partial = msgspec.structs.replace(RECEIPT, all_queues=False)
    assert not any(target.is_whole for each in partial.targets("billing").values() for target in each)


def test_a_receipt_is_stored_at_a_path_or_url(tmp_path: Path) -> None:
    for place in (str(tmp_path / "new" / "r.json"), (tmp_path / "s.json").as_uri(), str(tmp_path / "s.json")):
        write_receipt(RECEIPT, place, StoreOptions())
        assert read_receipt(place, StoreOptions()) == RECEIPT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "s.json"], "nothing else is left"
    with pytest.raises(ObjectNotFoundError, match="there is no receipt"):
        read_receipt(str(tmp_path / "none.json"), StoreOptions())
    for wrong in ("http://host/r.json", "s3a://bucket"):
        with pytest.raises(InvalidRequestError):
            read_receipt(wrong, StoreOptions())
    assert receipt_place("s3a://b/out/") == "s3a://b/out.receipt.json"


@pytest.mark.s3
def test_a_receipt_is_stored_in_a_bucket_reached_by_its_url(s3_bucket: S3Bucket) -> None:
    """The slash in the secret is none of the key's."""
    assert {"+", "/"} <= set(s3_bucket.secret_key)
    place = s3_bucket.cold_url.replace("/cold?", "/jobs/7/r.json?")
    write_receipt(RECEIPT, place, StoreOptions())
    assert read_receipt(place, StoreOptions()) == RECEIPT
    folder = blocking_store(s3_bucket.cold_url.replace("/cold?", "?"), StoreOptions())
    assert folder.run(folder.store.get("jobs/7/r.json")) == encode_receipt(RECEIPT)


def test_an_unreadable_or_unwritable_receipt_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=f"the receipt cannot be read receipt={tmp_path} reason=Is a dir"):
        read_receipt(str(tmp_path), StoreOptions())
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "r.json", tmp_path):
        with pytest.raises(InvalidRequestError, match=f"the receipt cannot be written receipt={place} reason="):
            write_receipt(RECEIPT, str(place), StoreOptions())


def test_a_receipt_says_whose_history_was_read() -> None:
    first, second = RECEIPT.brokers
    with_store_id = msgspec.structs.replace(
        RECEIPT, brokers=(msgspec.structs.replace(first, store_uuid="4711"), second)
    )
    assert with_store_id.stores() == {"broker-a": "4711"}
    assert decode_receipt(encode_receipt(with_store_id), place="r").stores() == {"broker-a": "4711"}
    older = json.loads(encode_receipt(RECEIPT))
    del older["crc32"]
    for broker in older["brokers"]:
        del broker["store_uuid"]
    assert decode_receipt(seal_json(msgspec.json.encode(older)), place="r").stores() == {}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"path": "x", "topic": "t", "columns": "value", "s3.endpoint": "h", "FS.S3A.access.key": "k"}, ()),
        ({"startingOffsets": "earliest", "endingOffsets": "Latest", "tags": "*", "failOnDataLoss": "TRUE"}, ()),
        ({"endingTimestamp": "5", "tags": "a"}, ("it ends at a time", "it takes messages with some tags only")),
        ({"endingOffsets": "{}", "queues": "0"}, ("it ends at chosen offsets", "it takes some queues only")),
        ({"failOnDataLoss": "false"}, ("it tolerates missing messages",)),
        ({"onCorruptFrame": "skip"}, ("it skips damaged frames",)),
        ({"keys": "K1"}, ("it takes messages with some keys only",)),
        ({"bodyFormat": "json", "bodySchema": "id BIGINT", "bodyMessage": "m"}, ()),
        ({"snapshotTimestamp": "5"}, ("it judges time to live at another moment",)),
        ({"where": "[]", "metrics": "127.0.0.1:1"}, ("it takes messages of a condition only",)),
        ({"brandNew": "1"}, ("it has the option brandNew",)),
    ],
)
def test_incomplete_loads_are_refused(options: dict[str, str], expected: tuple[str, ...]) -> None:
    assert obstacles_of(options) == expected


def test_no_group_goes_on_after_a_partial_load() -> None:
    partial = msgspec.structs.replace(RECEIPT, obstacles=("it ends at a time", "it skips damaged frames"))
    with pytest.raises(InvalidRequestError, match="it ends at a time, it skips damaged frames"):
        hand_off(partial, group="billing", namesrv="127.0.0.1:1")


def test_options_of_a_hand_off_say_how_to_reach_a_bucket(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"s3\.\* does option=s3\.color"):
        hand_off(str(tmp_path / "r.json"), group="billing", namesrv="127.0.0.1:1", options={"s3.color": "red"})
