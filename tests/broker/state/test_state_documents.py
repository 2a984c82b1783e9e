"""State documents: the broker's state files as plain values, and files again that the broker reads.

Covers `broker/state_files/version_counter.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import small_config
from thermocline.broker.due import delay_service
from thermocline.broker.settings import broker_settings
from thermocline.broker.state.state_documents import document_paths, encode_document, hold_back, read_document
from thermocline.broker.state_files.config_persister import ConfigPersister
from thermocline.broker.tables import (
    consumer_filter_table,
    consumer_offsets,
    group_table,
    message_request_modes,
    static_topic_table,
    topic_table,
)
from thermocline.broker.tables.consumer_offsets import ConsumerOffsets
from thermocline.broker.tables.message_request_modes import RequestModeTable
from thermocline.broker.tables.static_topic_table import StaticTopicTable
from thermocline.pop import order_table
from thermocline.pop.order_info import OrderInfo
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import LOG_START, QueueOffset
from thermocline.store.files.disk import replace_file
from thermocline.tiered.state import snapshot as names

CONFIG = small_config()


def written(name: str, data: bytes) -> Any:
    """The document of a file with this content."""
    disk = SimulatedDisk()
    disk.make_directory(CONFIG.config_path)
    disk.make_directory(CONFIG.own_path)
    path = document_paths(CONFIG)[name]
    replace_file(disk, path, data, keep_backup=False)
    return read_document(disk, path, name)


def test_documents_are_the_files_that_the_broker_keeps() -> None:
    paths = {path.removeprefix(CONFIG.root_path) for path in document_paths(CONFIG).values()}
    assert paths == {
        f"/config/{topic_table.FILE_NAME}",
        f"/config/{static_topic_table.FILE_NAME}",
        f"/config/{group_table.FILE_NAME}",
        f"/config/{consumer_offsets.FILE_NAME}",
        f"/config/{delay_service.FILE_NAME}",
        f"/config/{message_request_modes.FILE_NAME}",
        f"/config/{consumer_filter_table.FILE_NAME}",
        f"/config/{order_table.FILE_NAME}",
        f"/thermocline/{topic_table.TTL_DEFAULT_FILE_NAME}.json",
        f"/thermocline/{broker_settings.FILE_NAME}.json",
    }


@pytest.mark.parametrize("key", [b"3", b'"3"'], ids=["RocketMQ's", "ours"])
def test_mappings_of_static_topics_in_either_form(key: bytes) -> None:
    mapping = b'{"T":{"bname":"a","hostedQueues":{%s:[{"gen":0,"queueId":1}]}}}' % key
    document = written(names.STATIC_TOPICS, b'{"dataVersion":{"counter":3},"topicQueueMappingInfoMap":%s}' % mapping)
    assert document == {
        "topicQueueMappingInfoMap": {"T": {"bname": "a", "hostedQueues": {"3": [{"gen": 0, "queueId": 1}]}}}
    }
    table = StaticTopicTable(broker_name="a", clock=lambda: 7, persister=ConfigPersister(SimulatedDisk()))
    table.load(encode_document(names.STATIC_TOPICS, document, now_ms=7), {"T": None})
    assert table.details["T"].hosted_queues[3][0].queue_id == 1


def test_offsets_as_the_broker_writes_them() -> None:
    offsets = ConsumerOffsets(clock=lambda: 5)
    offsets.commit("orders", "g", 0, 12)
    offsets.commit("orders", "g", 11, 3)
    offsets.commit_pull("orders", "g", 0, 40)
    document = written(names.CONSUMER_OFFSETS, offsets.encode(pop_log_offset=77))
    assert document == {"offsetTable": {"orders@g": {"0": 12, "11": 3}}}
    restored = ConsumerOffsets(clock=lambda: 5)
    restored.load(encode_document(names.CONSUMER_OFFSETS, document, now_ms=9))
    assert restored.of_group("orders", "g") == {0: 12, 11: 3}
    assert restored.pop_log_offset is None


@pytest.mark.parametrize("text", ["a,1:b", "{2:", "\n3:", '"{4:5', "\\"])
def test_texts_of_clients_that_look_like_keys_are_texts(text: str) -> None:
    """Else one POP could end all state snapshots."""
    offsets, orders = ConsumerOffsets(clock=lambda: 5), order_table.OrderTable()
    offsets.hand_over("g", text, [("orders", 3, QueueOffset(7))])
    info = OrderInfo(pop_time_ms=1, invisible_ms=2, offsets=(QueueOffset(7),), popped_ms=1, attempt_id=text)
    orders.put("orders", "g", 3, info)
    document = written(names.CONSUMER_OFFSETS, offsets.encode())
    assert document == {"offsetTable": {"orders@g": {"3": 7}}, "handOffs": {"g": [text]}}
    document = written(names.CONSUMER_ORDERS, orders.encode(log_offset=LOG_START))
    restored = order_table.OrderTable()
    restored.load(encode_document(names.CONSUMER_ORDERS, document, now_ms=9))
    assert restored.find("orders", "g", 3) == info


def test_when_a_file_was_written_does_not_make_it_another() -> None:
    first, second = (ConsumerOffsets(clock=lambda now=now: now, version_step=1) for now in (5, 6))
    for offsets in (first, second):
        offsets.commit("orders", "g", 0, 12)
    assert first.encode() != second.encode()
    assert written(names.CONSUMER_OFFSETS, first.encode()) == written(names.CONSUMER_OFFSETS, second.encode())


def test_of_changed_settings_those_that_count_at_once_are_kept() -> None:
    data = b'{"settings":{"brokerPermission":"4","listenPort":"1","coldUrl":"s3://b/p?secret_key=k","unknown":"1"}}'
    document = written(names.SETTINGS, data)
    assert document == {"brokerPermission": "4"}
    file = broker_settings.decode_changes(encode_document(names.SETTINGS, document, now_ms=9))
    assert file.settings == {"brokerPermission": "4"}


def test_request_modes_come_back() -> None:
    data = (
        b'{"messageRequestModeMap":{"orders":{"g":{"consumerGroup":"g","mode":"POP","popShareQueueNum":2,'
        b'"topic":"orders"}}}}'
    )
    document = written(names.REQUEST_MODES, data)
    table = RequestModeTable(ConfigPersister(SimulatedDisk()))
    table.load(encode_document(names.REQUEST_MODES, document, now_ms=9))
    mode = table.get("orders", "g")
    assert mode is not None
    assert mode.pop_share_queue_num == 2


def test_a_file_that_is_not_there_or_damaged() -> None:
    disk = SimulatedDisk()
    disk.make_directory(CONFIG.config_path)
    assert read_document(disk, document_paths(CONFIG)[names.TOPICS], names.TOPICS) is None
    with pytest.raises(CorruptDataError):
        written(names.TOPICS, b'{"topicConfigTable":{')
    assert written(names.CONSUMER_FILTERS, b'{"filterDataByTopic":{') is None, "the broker starts with it"


def test_group_offsets_are_held_back_to_messages_in_flight() -> None:
    table = {"orders@g": {"0": 12, "1": 5}, "orders@h": {"0": 12}}
    documents = {names.CONSUMER_OFFSETS: {"offsetTable": table}}
    held = hold_back(documents, [("orders", "g", 0, 7), ("orders", "g", 1, 9), ("orders", "missing", 0, 1)])
    assert held[names.CONSUMER_OFFSETS]["offsetTable"] == {"orders@g": {"0": 7, "1": 5}, "orders@h": {"0": 12}}
    assert table["orders@g"]["0"] == 12, "what was read is kept as it is"
    assert hold_back({}, [("orders", "g", 0, 7)]) == {}
