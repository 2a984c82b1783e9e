"""Topics and groups that clients make by their first use: limits of an address, of a minute and in all.

Covers `broker/tables/client_usage.py`, `broker/settings/limit_settings.py`, whose limits on clients
tests/broker/tables/test_client_registry.py reaches.
"""

from __future__ import annotations

from pathlib import Path

from tests.broker.data_broker import DataBroker, data_broker
from tests.clock import Clock
from thermocline.broker.settings import BrokerConfig
from thermocline.broker.tables.creation_limits import MINUTE_MS, TOPICS, CreationLimits
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.response_code import ResponseCode

ADDRESS, MINUTE, TOTAL = TOPICS.address_limit, TOPICS.minute_limit, TOPICS.total_limit


def test_of_an_address_a_minute_and_in_all() -> None:
    clock, counts = Clock(10 * MINUTE_MS), LimitCounts()
    config = BrokerConfig(address_auto_topics_max=2, minute_auto_topics_max=3, auto_topics_max=10)
    limits = CreationLimits(TOPICS, config=lambda: config, clock=clock, limits=counts)
    made = [limits.allows(address, "T", present=5) for address in ("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3")]
    assert made == [True, True, False], "connections of one address are one client"
    assert [limits.allows(f"10.0.0.{number}:1", "T", present=5) for number in (2, 3)] == [True, False]
    assert limits.allows("", "T", present=50), "what the broker itself needs"
    clock.now_ms += MINUTE_MS
    assert limits.allows("10.0.0.1:1", "T", present=9)
    assert not limits.allows("10.0.0.1:1", "T", present=10)
    assert counts.totals == {ADDRESS: 1, MINUTE: 1, TOTAL: 1}


async def send(broker: DataBroker, topic: str) -> RemotingCommand:
    fields = {
        "producerGroup": "P",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "0",
        "flag": "0",
    }
    return await broker.ask(RemotingCommand.request(10, ext_fields=fields, body=b"x"))


def pull(group: str, topic: str = "Known", *, commit_offset: int | None = None) -> RemotingCommand:
    return RemotingCommand.request(
        11,
        ext_fields={
            "consumerGroup": group,
            "topic": topic,
            "queueId": "0",
            "queueOffset": "0",
            "maxMsgNums": "1",
            "sysFlag": "4" if commit_offset is None else "5",
            "commitOffset": str(commit_offset or 0),
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
        },
    )


async def test_topics_beyond_a_limit_do_not_exist(tmp_path: Path) -> None:
    """The answer is the official broker's for a topic that cannot be made; what an operator makes is not limited."""
    config = BrokerConfig(address_auto_topics_max=2, address_auto_groups_max=1)
    async with data_broker(tmp_path, config=config, topics=["Known"]) as broker:
        assert [(await send(broker, f"Auto{number}")).code for number in range(2)] == [0, 0]
        assert (await send(broker, "Auto0")).code == 0, "it exists"
        refused = await send(broker, "Auto2")
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST
        assert refused.remark == "topic[Auto2] not exist, apply first please!"
        retry = await send(broker, "%RETRY%NoGroup")
        assert retry.code == ResponseCode.TOPIC_NOT_EXIST
        await broker.make_topic("Auto2")
        assert (await send(broker, "Auto2")).code == 0
        refused = await broker.ask(pull("Second"))
        assert refused.code == ResponseCode.SYSTEM_BUSY, "official consumers ask again in three seconds"
        assert "too many groups were created by their first use" in str(refused.remark)
        assert "Second" not in broker.parts.tables.groups
        assert broker.parts.base.limits.totals == {
            "autoCreateTopicsPerAddressMinuteMax": 2,
            "autoCreateGroupsPerAddressMinuteMax": 1,
        } | {"autoCreateTopicsPerAddressMinuteMax": 2}


async def test_pairs_of_topic_and_group_with_offsets(tmp_path: Path) -> None:
    """By a commit, a pull that commits, or a first POP; those that have an offset go on."""
    async with data_broker(tmp_path, topics=["Known", "Other"]) as broker:
        present = len(broker.parts.tables.offsets._offsets)
        broker.change_config(offset_pairs_max=present + 1, address_auto_topics_max=1)
        for group in ("A", "B"):
            assert (await broker.ask(pull(group))).code == ResponseCode.PULL_NOT_FOUND
        update = {"topic": "Known", "queueId": "0", "commitOffset": "0"}
        codes = [
            (await broker.ask(RemotingCommand.request(15, ext_fields=update | {"consumerGroup": group}))).code
            for group in ("A", "B", "A")
        ]
        assert codes == [0, ResponseCode.SYSTEM_BUSY, 0]
        assert (await broker.ask(pull("B", commit_offset=1))).code == ResponseCode.SYSTEM_BUSY
        assert (await broker.ask(pull("A", commit_offset=1))).code == ResponseCode.PULL_NOT_FOUND
        pop = {"topic": "Known", "queueId": "-1", "maxMsgNums": "1", "invisibleTime": "60000", "pollTime": "0"}
        pop |= {"bornTime": str(broker.clock()), "initMode": "0", "expType": "TAG", "exp": "*", "consumerGroup": "B"}
        assert (await broker.ask(RemotingCommand.request(200050, ext_fields=pop))).code == ResponseCode.SYSTEM_BUSY
        broker.change_config(offset_pairs_max=present + 10, address_auto_topics_max=0)
        refused = await broker.ask(RemotingCommand.request(200050, ext_fields=pop))
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "pop topics for the first time" in str(refused.remark)
        totals = broker.parts.base.limits.totals
        assert totals == {"consumerOffsetPairsMax": 3, "autoCreateTopicsPerAddressMinuteMax": 1}
