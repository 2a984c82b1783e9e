"""A store directory written by one broker is opened by the official one, which reads every message of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.cluster import (
    OFFICIAL,
    official_cluster,
    read_store_with_official_broker,
    store_directory_of,
    thermocline_cluster,
)
from tests.interop.java_agent import JavaAgent, message_body
from tooling.official_rocketmq import OfficialSoftware

# A group of its own: it needs no running cluster, and takes as long as all other tests of one together.
pytestmark = [pytest.mark.java, pytest.mark.xdist_group("store-exchange")]

TOPIC = "Exchanged"
MESSAGE_COUNT = 400
BODY_BYTES = 2_000


def fill(agent: JavaAgent, namesrv: str) -> None:
    """Sends of every kind."""
    kinds: list[tuple[str, dict[str, int]]] = [
        ("sync", {}),
        ("async", {}),
        ("batch", {"batch_size": 32}),
        ("sync", {"compress_over_bytes": 100}),
    ]
    count = MESSAGE_COUNT // len(kinds)
    for number, (kind, extra) in enumerate(kinds):
        name = f"filler-{number}"
        arguments = {"name": name, "group": name, "namesrv": namesrv, "topic": TOPIC, "prefix": TOPIC, **extra}
        agent.produce(kind=kind, count=count, start=number * count, body_bytes=BODY_BYTES, tags=["A", "B"], **arguments)
        agent.call("stop_producer", name=name)


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_the_official_broker_reads_what_was_written(
    ending: str,
    cluster_kind: str,
    official_software: OfficialSoftware,
    java_agent_process: JavaAgent,
    tmp_path: Path,
) -> None:
    writer = (
        official_cluster(official_software, java_agent_process, tmp_path / "writer", ends_cleanly=True)
        if cluster_kind == OFFICIAL
        else thermocline_cluster(java_agent_process, tmp_path / "writer")
    )
    with writer as cluster:
        fill(java_agent_process, cluster.namesrv)
        store_directory, sizes = store_directory_of(cluster)
        if ending == "killed":
            cluster.process.kill()
    read = read_store_with_official_broker(
        official_software,
        java_agent_process,
        tmp_path / "reader",
        store_directory=store_directory,
        topics=[TOPIC],
        properties=sizes,
    )[TOPIC]
    by_index = {int(message.properties["index"]): message for message in read}
    assert len(read) == len(by_index) == MESSAGE_COUNT
    for index, message in by_index.items():
        assert message.body == message_body(TOPIC, index, BODY_BYTES)
        assert message.tags == ["A", "B"][index % 2]
        assert message.keys == f"{TOPIC}-key-{index}"
