"""Two clusters with the same names: a job on one never takes the other's brokers for its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.command_lines import FREE_ADDRESS, Daemon
from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.message import Message
from thermocline.client.producer.producer import Producer
from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark import hand_off, lag
from thermocline.spark import open as open_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 20
DIFFERENT = "not the one whose history is here: they belong to different clusters broker=broker-a"


class Shop:
    """`thermocline dev`, with the same orders as every other one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.cold = (folder / "cold").as_uri()
        words = ["dev", "--data", "data", "--cold", self.cold, "--namesrv", FREE_ADDRESS, "--listen", FREE_ADDRESS]
        self._daemon = Daemon(words, folder)
        self.namesrv = self._daemon.ready()["namesrv"]
        with AdminClient(namesrv=self.namesrv) as admin:
            admin.create_topic("orders", queue_nums=2)
        with Producer(group="shop", namesrv=self.namesrv) as producer:
            producer.send_many(Message("orders", b"%d" % number) for number in range(MESSAGES))

    def offsets(self, group: str) -> list[int | None]:
        with AdminClient(namesrv=self.namesrv) as admin:
            return [place.offset for place in admin.group_places(group, "orders")]

    def groups(self) -> list[str]:
        with AdminClient(namesrv=self.namesrv) as admin:
            return admin.list_groups()

    def stop(self) -> int:
        return self._daemon.stop()


@pytest.fixture(scope="module")
def shops(module_folder: Path) -> Iterator[tuple[Shop, Shop]]:
    ours, theirs = Shop(module_folder / "ours"), Shop(module_folder / "theirs")
    yield ours, theirs
    assert [ours.stop(), theirs.stop()] == [0, 0]


def test_a_receipt_moves_no_group_of_another_cluster(spark_session: SparkSession, shops: tuple[Shop, Shop]) -> None:
    ours, theirs = shops
    with open_snapshot(spark_session, ours.cold, topic="orders", seal=True, namesrv=ours.namesrv) as snapshot:
        receipt = snapshot.receipt(row_count=MESSAGES)
    groups = theirs.groups()
    with pytest.raises(InvalidRequestError, match="this is not the broker that was read"):
        hand_off(receipt, group="dashboards", namesrv=theirs.namesrv)
    assert theirs.groups() == groups
    assert theirs.offsets("dashboards") == [None, None]
    moved = hand_off(receipt, group="dashboards", namesrv=ours.namesrv)
    assert [row.offset for row in moved] == ours.offsets("dashboards")
    assert sum(row.offset for row in moved) == MESSAGES


def test_no_job_takes_another_clusters_brokers(spark_session: SparkSession, shops: tuple[Shop, Shop]) -> None:
    ours, theirs = shops
    with AdminClient(namesrv=ours.namesrv) as admin:
        admin.tier_seal("orders")
    with pytest.raises(InvalidRequestError, match=DIFFERENT):
        open_snapshot(spark_session, ours.cold, topic="orders", seal=True, namesrv=theirs.namesrv)
    with pytest.raises(InvalidRequestError, match=DIFFERENT):
        open_snapshot(spark_session, ours.cold, topic="orders", from_group="shop", namesrv=theirs.namesrv)
    with pytest.raises(InvalidRequestError, match=DIFFERENT):
        lag(spark_session, ours.cold, group="shop", topic="orders", namesrv=theirs.namesrv)
