"""Receipts: what a load has read, for a consumer group to go on from exactly there.

One JSON object, beside the output of the job, written after the sink has succeeded; it carries its own checksum.

    {
      "format": 1, "receipt_id": "5f0c...", "created_ms": 1767225600000,
      "topics": ["orders"], "output": "./orders", "row_count": 1000000,
      "snapshot_ms": 1767225500000, "group": null,
      "brokers": [{"broker_name": "broker-a", "root": "cluster/broker-a", "version": 41,
                   "incarnations": {"orders": 3}, "store_uuid": "4711..."}],
      "queues": [{"topic": "orders", "broker_name": "broker-a", "queue_id": 0, "start_offset": 0, "end_offset": 500000,
                  "group_offset": null, "whole_from": null}],
      "all_queues": true, "obstacles": [],
      "crc32": "89abcdef"
    }

Ranges are half-open. An `end_offset` of -2 is a queue of which nothing was in the cold tier: the group begins at its
beginning, as it does in queues that are not named, when all were read. `group` and `group_offset` (-1: none) say where
the load began when it began at a group's position. `whole_from`: the load began at a time, and may lack messages in
front of this offset; null: it has all from `start_offset` on. What is in `obstacles` makes it no whole load: there is
no offset behind which everything remains to be consumed.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from thermocline.remoting.bodies.hand_off import BEGINNING, QueueTarget, TopicTarget
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError, ObjectNotFoundError
from thermocline.remoting.offsets import QueueOffset
from thermocline.spark.access.blocking_store import BlockingStore, blocking_store
from thermocline.spark.access.store_options import StoreOptions
from thermocline.spark.access.store_url import S3_SCHEMES
from thermocline.tiered.objects import is_sealed, masked_url, seal_json

RECEIPT_FORMAT = 1


class ReceiptBroker(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's part. A topic of which nothing was in its cold tier has no incarnation. `store_uuid` None: a receipt
    from before it was written down."""

    broker_name: str
    root: str
    version: int
    incarnations: dict[str, int]
    store_uuid: str | None = None


class ReceiptQueue(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of one queue."""

    topic: str
    broker_name: str
    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset
    group_offset: QueueOffset | None = None
    whole_from: QueueOffset | None = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """See the module's header."""

    format: int = RECEIPT_FORMAT
    receipt_id: str
    created_ms: int
    topics: tuple[str, ...]
    output: str
    row_count: int | None
    snapshot_ms: int
    group: str | None
    brokers: tuple[ReceiptBroker, ...]
    queues: tuple[ReceiptQueue, ...]
    all_queues: bool
    obstacles: tuple[str, ...]

    def stores(self) -> dict[str, str]:
        """Whose history was read: the id of the store, by broker name, as far as the receipt says."""
        return {broker.broker_name: broker.store_uuid for broker in self.brokers if broker.store_uuid}

    def targets(self, group: str) -> dict[str, list[TopicTarget]]:
        """Where a group is to go on, by broker name."""
        return {
            broker.broker_name: [
                TopicTarget(
                    topic=topic,
                    incarnation=broker.incarnations.get(topic),
                    is_whole=self.all_queues,
                    queues=[
                        QueueTarget(
                            queue_id=queue.queue_id,
                            offset=queue.end_offset,
                            expected=queue.group_offset if group == self.group else None,
                            start=max(queue.start_offset, queue.whole_from or queue.start_offset),
                        )
                        for queue in self.queues
                        if (queue.topic, queue.broker_name) == (topic, broker.broker_name)
                        and queue.end_offset != BEGINNING
                    ],
                )
                for topic in self.topics
            ]
            for broker in self.brokers
        }


def encode_receipt(receipt: Receipt) -> bytes:
    """The receipt as it is stored: JSON for people too."""
    return seal_json(msgspec.json.format(msgspec.json.encode(receipt), indent=1))


def decode_receipt(data: bytes, *, place: str) -> Receipt:
    """The receipt that was stored at `place`.

    Raises:
        CorruptDataError: It is none, or was changed.
        InvalidRequestError: It is of a later format.
    """
    if not is_sealed(data):
        raise CorruptDataError("this is no receipt, or it was changed", receipt=masked_url(place))
    try:
        receipt = msgspec.json.decode(data, type=Receipt)
    except msgspec.DecodeError as error:
        raise CorruptDataError("the receipt cannot be decoded", receipt=masked_url(place), reason=str(error)) from error
    if receipt.format > RECEIPT_FORMAT:
        raise InvalidRequestError("the receipt is of a later format", receipt=masked_url(place), format=receipt.format)
    return receipt


def write_receipt(receipt: Receipt, place: str, options: StoreOptions) -> None:
    """Store a receipt at a path or URL (s3a://, file://); durable on return, whole or not at all.

    Raises:
        UnavailableError: The store gave no answer, or refused.
        InvalidRequestError: The file cannot be written.
    """
    data = encode_receipt(receipt)
    path = _local_path(place)
    if path is None:
        store, key = _object(place, options)
        store.run(store.store.put(key, data))
        return
    try:
        _write_file(path, data)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidRequestError("the receipt cannot be written", receipt=masked_url(place), reason=reason) from error


def _write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_receipt(place: str, options: StoreOptions) -> Receipt:
    """The receipt at a path or URL.

    Raises:
        ObjectNotFoundError: There is none.
        CorruptDataError: What is there is none, or was changed.
        InvalidRequestError: It cannot be read.
        UnavailableError: The store gave no answer, or refused.
    """
    path = _local_path(place)
    if path is not None:
        try:
            return decode_receipt(path.read_bytes(), place=place)
        except FileNotFoundError as error:
            raise ObjectNotFoundError("there is no receipt", receipt=masked_url(place)) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise InvalidRequestError("the receipt cannot be read", receipt=masked_url(place), reason=reason) from error
    store, key = _object(place, options)
    try:
        data = store.run(store.store.get(key))
    except ObjectNotFoundError as error:
        raise ObjectNotFoundError("there is no receipt", receipt=masked_url(place)) from error
    return decode_receipt(data, place=place)


def receipt_place(output: str) -> str:
    """Where a job's receipt goes by default: beside its output."""
    return f"{output.rstrip('/')}.receipt.json"


def _local_path(place: str) -> Path | None:
    parts = urlsplit(place)
    if parts.scheme in S3_SCHEMES:
        return None
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme:
        raise InvalidRequestError("a receipt is at a path, file:/// or s3a://bucket/key", receipt=masked_url(place))
    return Path(place)


def _object(place: str, options: StoreOptions) -> tuple[BlockingStore, str]:
    parts = urlsplit(place)
    folder, _, name = parts.path.rpartition("/")
    if not parts.netloc or not name:
        raise InvalidRequestError("a receipt in a bucket has a key: s3a://bucket/key", receipt=masked_url(place))
    return blocking_store(urlunsplit(parts._replace(path=folder)), options), name
