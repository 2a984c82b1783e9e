"""Moving groups to the offsets where a bulk reader stopped: refusals, holds, durability, and applying only once."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.clock import Clock
from thermocline.broker.tables.group_holds import HOLD_MS
from thermocline.remoting.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from thermocline.remoting.bodies.hand_off import (
    BEGINNING,
    ERROR_FIELD,
    HandOffAnswer,
    HandOffBody,
    HandOffPlaces,
    QueueTarget,
    TopicTarget,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.response_code import ResponseCode

NAMES = {"group": "G", "receiptId": "r1"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=3)
        for queue_id in (0, 1):
            for _ in range(10):
                broker.put("T", queue_id)
        yield broker


def incarnation(broker: ControlBroker) -> int:
    return broker.parts.base.store.incarnations.find("T").id


def plan(
    broker: ControlBroker,
    *queues: QueueTarget,
    receipt_id: str = "r1",
    is_forced: bool = False,
    life: int | None = None,
) -> HandOffBody:
    target = TopicTarget(
        topic="T",
        incarnation=incarnation(broker) if life is None else life,
        queues=list(queues) or [QueueTarget(queue_id=0, offset=7), QueueTarget(queue_id=1, offset=4)],
    )
    return HandOffBody(group="G", receipt_id=receipt_id, topics=[target], is_forced=is_forced)


async def prepare(broker: ControlBroker, body: HandOffBody) -> RemotingCommand:
    return await broker.ask(PrivateRequestCode.HAND_OFF_PREPARE, body=body.encode())


async def apply(broker: ControlBroker, receipt_id: str = "r1") -> RemotingCommand:
    return await broker.ask(PrivateRequestCode.HAND_OFF_APPLY, {**NAMES, "receiptId": receipt_id})


def refusal(answer: RemotingCommand) -> str | None:
    """The class of the error that was answered."""
    return (answer.ext_fields or {}).get(ERROR_FIELD)


def offsets(broker: ControlBroker) -> list[int | None]:
    return [broker.parts.tables.offsets.query("T", "G", queue_id) for queue_id in range(3)]


async def heartbeat(broker: ControlBroker, group: str = "G", *, connection: object = None) -> RemotingCommand:
    data = HeartbeatData(
        client_id="client-1",
        consumer_data_set=[
            ConsumerData(group_name=group, subscription_data_set=[SubscriptionData(topic="T", sub_string="*")])
        ],
        producer_data_set=[ProducerData(group_name="P")],
    )
    return await broker.ask(34, body=data.encode())


async def test_a_group_is_moved_in_every_queue_of_the_topic(broker: ControlBroker) -> None:
    prepared = HandOffAnswer.decode((await prepare(broker, plan(broker))).body)
    assert not prepared.is_applied
    assert offsets(broker) == [None, None, None], "prepared is not moved"
    applied = HandOffAnswer.decode((await apply(broker)).body)
    assert applied.is_applied
    assert [(each.queue_id, each.before, each.offset) for each in applied.queues] == [
        (0, -1, 7),
        (1, -1, 4),
        (2, -1, 0),
    ]
    assert offsets(broker) == [7, 4, 0], "a queue outside the receipt begins at its first offset"
    assert (await broker.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "8"})).code == 0


async def test_a_receipt_has_a_short_id(broker: ControlBroker) -> None:
    assert refusal(await prepare(broker, plan(broker, receipt_id="r" * 256))) == "InvalidParameterError"
    assert refusal(await prepare(broker, plan(broker, receipt_id="r" * 255))) is None


async def test_the_new_offsets_are_on_disk_before_the_answer(broker: ControlBroker) -> None:
    await prepare(broker, plan(broker))
    assert (await apply(broker)).code == 0
    text = Path(f"{broker.parts.base.store.config.config_path}/consumerOffset.json").read_text()
    assert '"T@G":{0:7,1:4,2:0}' in text
    assert '"handOffs":{"G":["r1"]}' in text


async def test_a_receipt_moves_a_group_once_and_for_all_restarts(tmp_path: Path) -> None:
    clock = Clock()
    async with control_broker(tmp_path, clock=clock) as broker:
        await broker.create_topic("T", queues=3)
        for _ in range(10):
            broker.put("T")
        target = QueueTarget(queue_id=0, offset=7)
        life = incarnation(broker)
        await prepare(broker, plan(broker, target))
        await apply(broker)
        await broker.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "9"})
    async with control_broker(tmp_path, clock=clock) as broker:
        for answer in (await prepare(broker, plan(broker, target, life=life)), await apply(broker)):
            assert HandOffAnswer.decode(answer.body) == HandOffAnswer(is_applied=True)
        assert offsets(broker)[0] == 9
        await prepare(broker, plan(broker, target, receipt_id="r2"))
        await apply(broker, "r2")
        assert offsets(broker)[0] == 7, "another receipt is another wish"


async def test_a_write_that_failed_is_made_up_for_by_the_next_apply(
    broker: ControlBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepare(broker, plan(broker))

    async def refuse(_name: str) -> None:
        raise UnavailableError("the disk refused")

    with monkeypatch.context() as patched:
        patched.setattr(broker.parts.tables.persister, "save", refuse)
        assert refusal(await apply(broker)) == "UnavailableError"
    assert refusal(await heartbeat(broker)) is None
    assert (await heartbeat(broker)).code == ResponseCode.SYSTEM_BUSY, "no member continues before the move is durable"
    assert (await apply(broker)).code == 0
    assert '"T@G":{0:7' in Path(f"{broker.parts.base.store.config.config_path}/consumerOffset.json").read_text()
    assert (await heartbeat(broker)).code == 0


async def test_a_held_group_is_left_alone(broker: ControlBroker) -> None:
    await prepare(broker, plan(broker))
    commit = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "3"}
    reset = {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true"}
    clone = {"srcGroup": "H", "destGroup": "G", "topic": "T"}
    for code, fields in ((15, commit), (222, reset), (314, clone)):
        answer = await broker.ask(code, fields)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "being handed over" in (answer.remark or "")
    joined = await heartbeat(broker)
    assert joined.code == ResponseCode.SYSTEM_BUSY
    assert broker.parts.tables.clients.consumer_group("G") is None
    assert broker.parts.tables.clients.producers("P"), "what else the client is was noted"
    assert (await broker.ask(15, {**commit, "consumerGroup": "TOOLS_CONSUMER"})).code == 0, "others go on"
    assert refusal(await prepare(broker, plan(broker, receipt_id="other"))) == "GroupHeldError"
    assert offsets(broker) == [None, None, None]
    assert (await broker.ask(PrivateRequestCode.HAND_OFF_ABORT, NAMES)).code == 0
    assert (await broker.ask(15, commit)).code == 0


async def test_a_hold_ends_by_the_brokers_clock(broker: ControlBroker) -> None:
    await prepare(broker, plan(broker))
    broker.clock.now_ms += HOLD_MS - 1
    assert (await heartbeat(broker)).code == ResponseCode.SYSTEM_BUSY
    broker.clock.now_ms += 1
    assert refusal(await apply(broker)) == "NotPreparedError"
    assert (await heartbeat(broker)).code == 0
    assert offsets(broker) == [None, None, None]


async def test_a_group_with_members_is_not_moved(broker: ControlBroker) -> None:
    await heartbeat(broker)
    assert refusal(await prepare(broker, plan(broker, is_forced=True))) == "GroupActiveError"


async def test_a_member_that_came_before_the_hold_was_seen_keeps_the_group(broker: ControlBroker) -> None:
    await prepare(broker, plan(broker))
    broker.parts.tables.holds.release("G", "r1")
    await heartbeat(broker)
    broker.parts.tables.holds.hold(plan(broker))
    assert refusal(await apply(broker)) == "GroupActiveError"
    assert offsets(broker) == [None, None, None]


@pytest.mark.parametrize(("offset", "is_forced"), [(11, False), (11, True)])
async def test_an_offset_that_is_not_there_yet(broker: ControlBroker, offset: int, is_forced: bool) -> None:
    answer = await prepare(broker, plan(broker, QueueTarget(queue_id=0, offset=offset), is_forced=is_forced))
    assert refusal(answer) == "OffsetOutOfRangeError"
    assert (await heartbeat(broker)).code == 0, "a refused plan holds no member"


async def test_offsets_expired_since_are_skipped_by_force_only(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=1, attributes="+reserve.time=1h")
        for _ in range(10):
            broker.put("T")
        broker.clock.now_ms += 2 * 3_600_000
        broker.parts.base.store.clock.now_ms()
        broker.put("T")
        target = QueueTarget(queue_id=0, offset=4)
        places = HandOffPlaces.decode(
            (await broker.ask(PrivateRequestCode.HAND_OFF_LOOK, {"group": "G", "topic": "T"})).body
        )
        assert [(each.min_offset, each.max_offset, each.offset) for each in places.queues] == [(10, 11, -1)]
        assert refusal(await prepare(broker, plan(broker, target))) == "OffsetOutOfRangeError"
        assert (await prepare(broker, plan(broker, target, is_forced=True))).code == 0
        await apply(broker)
        assert broker.parts.tables.offsets.query("T", "G", 0) == 10
        beginning = QueueTarget(queue_id=0, offset=BEGINNING)
        await prepare(broker, plan(broker, beginning, receipt_id="r2"))
        await apply(broker, "r2")
        assert broker.parts.tables.offsets.query("T", "G", 0) == 10


async def test_a_group_that_has_gone_on_is_not_moved_unless_forced(broker: ControlBroker) -> None:
    broker.parts.tables.groups.find_or_create("G")
    await broker.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "3"})
    first = QueueTarget(queue_id=0, offset=7, expected=3)
    second = QueueTarget(queue_id=1, offset=4, expected=-1)
    assert (await prepare(broker, plan(broker, first, second))).code == 0
    await broker.ask(PrivateRequestCode.HAND_OFF_ABORT, NAMES)
    await broker.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "1", "commitOffset": "1"})
    assert refusal(await prepare(broker, plan(broker, first, second))) == "OffsetChangedError"
    assert (await prepare(broker, plan(broker, first, second, is_forced=True))).code == 0


@pytest.mark.parametrize(
    ("offset", "start", "is_moved"),
    [(None, 2, True), (2, 2, True), (7, 2, True), (1, 2, False), (8, 2, False), (8, None, True), (0, BEGINNING, True)],
)
async def test_a_group_is_moved_only_within_the_range_that_was_read_unless_forced(
    broker: ControlBroker, offset: int | None, start: int | None, *, is_moved: bool
) -> None:
    broker.parts.tables.groups.find_or_create("G")
    target = QueueTarget(queue_id=0, offset=7, start=start)
    if offset is not None:
        await broker.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": str(offset)})
    answer = await prepare(broker, plan(broker, target))
    assert refusal(answer) == (None if is_moved else "OffsetChangedError")
    if is_moved:
        # A commit arrives during the hold: apply compares the offset again.
        broker.parts.tables.offsets.commit("T", "G", 0, 9)
        assert refusal(await apply(broker)) == ("OffsetChangedError" if start is not None else None)
    else:
        await prepare(broker, plan(broker, target, is_forced=True))
        assert (await apply(broker)).code == ResponseCode.SUCCESS
        assert offsets(broker)[0] == 7


async def test_a_group_in_a_queue_of_which_nothing_was_read_is_not_moved_back(broker: ControlBroker) -> None:
    broker.parts.tables.groups.find_or_create("G")
    await broker.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "1", "commitOffset": "3"})
    only_first = plan(broker, QueueTarget(queue_id=0, offset=7, start=0))
    assert refusal(await prepare(broker, only_first)) == "OffsetChangedError"


async def test_a_topic_that_was_made_again_is_another_one(broker: ControlBroker) -> None:
    read = plan(broker)
    await broker.ask(215, {"topic": "T"})
    assert refusal(await prepare(broker, read)) == "TopicNotFoundError"
    await broker.create_topic("T", queues=3)
    for is_forced in (False, True):
        read.is_forced = is_forced
        assert refusal(await prepare(broker, read)) == "TopicChangedError"


async def test_a_topic_that_ends_between_prepare_and_apply(broker: ControlBroker) -> None:
    await prepare(broker, plan(broker))
    await broker.ask(215, {"topic": "T"})
    await broker.create_topic("T", queues=3)
    broker.put("T", 0), broker.put("T", 1)
    assert refusal(await apply(broker)) in ("OffsetOutOfRangeError", "TopicChangedError")
    assert offsets(broker) == [None, None, None]


async def test_missing_topics_and_queues_are_refused(broker: ControlBroker) -> None:
    body = plan(broker, QueueTarget(queue_id=3, offset=0))
    assert refusal(await prepare(broker, body)) == "InvalidParameterError"
    assert refusal(await apply(broker, "unknown")) == "NotPreparedError"
    assert refusal(await broker.ask(PrivateRequestCode.HAND_OFF_LOOK, {"group": "G", "topic": "none"})) == (
        "TopicNotFoundError"
    )
    body.group = "not/a/group"
    assert refusal(await prepare(broker, body)) == "GroupNotFoundError"


async def test_a_pending_reset_ends_with_the_move(broker: ControlBroker) -> None:
    broker.parts.tables.groups.find_or_create("G")
    await broker.ask(222, {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true"})
    assert broker.parts.tables.offsets.has_reset("T", "G", 0)
    await prepare(broker, plan(broker))
    await apply(broker)
    assert offsets(broker) == [7, 4, 0]
    assert not broker.parts.tables.offsets.has_reset("T", "G", 0)


async def test_a_deleted_group_has_no_past(broker: ControlBroker) -> None:
    await prepare(broker, plan(broker))
    await apply(broker)
    await broker.ask(207, {"groupName": "G", "cleanOffset": "true"})
    assert not HandOffAnswer.decode((await prepare(broker, plan(broker))).body).is_applied
    file = json.loads(
        broker.parts.tables.offsets.encode()
        .replace(b"{0:", b'{"0":')
        .replace(b",1:", b',"1":')
        .replace(b",2:", b',"2":')
    )
    assert "handOffs" not in file


async def test_a_broker_that_was_not_read_makes_no_group_and_moves_none(broker: ControlBroker) -> None:
    """Another cluster's broker has the same names, incarnations and offsets; its store has another id."""
    body = plan(broker)
    body.store_uuid = "another"
    answer = await prepare(broker, body)
    assert refusal(answer) == "InvalidParameterError"
    assert "not the broker that was read" in str(answer.remark)
    assert broker.parts.tables.groups.get("G") is None
    assert offsets(broker) == [None, None, None]
    body.is_forced = True  # one that was recovered from the bucket has another id too
    assert (await prepare(broker, body)).code == ResponseCode.SUCCESS
    assert (await apply(broker)).code == ResponseCode.SUCCESS
    assert offsets(broker)[:2] == [7, 4]


async def test_the_broker_that_was_read_says_its_id(broker: ControlBroker) -> None:
    names = {"group": "G", "topic": "T"}
    places = HandOffPlaces.decode((await broker.ask(PrivateRequestCode.HAND_OFF_LOOK, names)).body)
    body = plan(broker)
    body.store_uuid = places.store_uuid
    assert places.store_uuid == broker.parts.base.store.identity.store_id
    assert (await prepare(broker, body)).code == ResponseCode.SUCCESS


async def test_the_progress_of_the_broker_is_not_handed_over(broker: ControlBroker) -> None:
    body = plan(broker)
    body.group = "CID_RMQ_SYS_TRANS"
    assert refusal(await prepare(broker, body)) == "PermissionDeniedError"
    assert refusal(await apply(broker)) is not None
