"""open: a snapshot of topics in the cold tier, resolved once on the driver; every plan and action reads the same rows.

    seal (if asked)   what is flushed goes to the cold tier first, by the brokers' own seal on demand
    resolve           version of each broker's catalog, range of every queue, incarnations, moment of expiry
    pin               the versions, in the bucket, until the snapshot is closed
    load              a DataFrame with all of it in its options
    receipt           after the sink has succeeded: where a consumer group can go on, see receipt.py

    with thermocline.spark.open(spark, "s3a://bucket/prefix", topic="orders") as snapshot:
        snapshot.load().write.parquet("./orders")
        snapshot.write_receipt("./orders.receipt.json", output="./orders")

Brokers are asked only for `seal` and `from_group`; nothing of what is read passes through them.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from thermocline.remoting.bodies.hand_off import BEGINNING, NO_OFFSET
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import InvalidRequestError, TopicChangedError
from thermocline.remoting.offsets import QueueOffset
from thermocline.spark.access.blocking_store import blocking_store
from thermocline.spark.access.hadoop_options import read_options
from thermocline.spark.access.store_options import store_options
from thermocline.spark.cold_table import Engine, read_cold
from thermocline.spark.handoff.obstacles import OF_A_CONDITION, OF_A_TIME, obstacles_of
from thermocline.spark.handoff.pin_keeper import PinKeeper
from thermocline.spark.handoff.receipt import Receipt, ReceiptBroker, ReceiptQueue, write_receipt
from thermocline.spark.handoff.same_store import ask_stores, check_same_stores, stores_of
from thermocline.spark.reading.cold_plan import pinned_options, resolve_plan
from thermocline.spark.reading.empty_queues import EmptyQueues
from thermocline.spark.reading.read_plan import QueueRange, ReadPlan
from thermocline.spark.reading.source_options import ReadOptions, read_options_from
from thermocline.tiered.objects import VersionExpiredError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from thermocline.client.admin.hand_off_administration import GroupPlace

logger = logging.getLogger(__name__)

PIN_ATTEMPTS_MAX = 5
Place = tuple[str, str, int]
"""Topic, broker name, queue id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotQueue:
    """The range of a queue, [start_offset, end_offset). Both are -2 when the cold tier holds nothing of it: a consumer
    group that takes over starts at its oldest message."""

    topic: str
    broker_name: str
    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBroker:
    """One broker's part: the version of its catalog, the incarnation of each topic, and the id of its store."""

    broker_name: str
    root: str  # cluster/broker
    version: int
    incarnations: Mapping[str, int]
    store_uuid: str = ""


class ColdSnapshot:
    """Made by `open`; close it when the job is done. Any thread may use it."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        options: Mapping[str, str],
        chosen: Mapping[str, str],
        own_options: Collection[str],
        plan: ReadPlan,
        pins: PinKeeper,
        queues: tuple[SnapshotQueue, ...],
        group: str | None,
        places: Mapping[Place, GroupPlace],
    ) -> None:
        self._spark = spark
        self._pins = pins
        self._group = group
        self._places = places
        self._receipt_id = uuid4().hex
        checked = read_options_from(options)
        self._all_queues = checked.queues is None
        self._own_options = own_options
        self.options = dict(options)
        """Options of the data source that describe the snapshot; they may hold the keys of the bucket."""
        self.queues = queues
        """Every queue, empty ones too."""
        self.moment_ms = plan.snapshot_ms
        """Time to live is judged at this moment."""
        self.task_count = len(plan.tasks)
        self.topics = checked.topics
        self.brokers = tuple(
            SnapshotBroker(
                broker_name=source.broker_name,
                root=source.root,
                version=source.version,
                incarnations={queue.topic: queue.incarnation for queue in plan.queues if queue.source == source},
                store_uuid=source.store_uuid,
            )
            for source in plan.sources
        )
        self._whole_from = {_place_of(queue): queue.whole_from for queue in plan.queues}
        is_behind_group = group is not None and any(offset is not None for offset in self._whole_from.values())
        self.obstacles = (*obstacles_of(chosen), *((OF_A_TIME,) if is_behind_group else ()))
        """Why no group can be handed over after this load, except by force; empty when one can."""

    @property
    def versions(self) -> dict[str, int]:
        """The catalog version of each broker, by cluster/broker."""
        return {broker.root: broker.version for broker in self.brokers}

    def load(self, *, where: str | Column | None = None, engine: Engine = "direct") -> DataFrame:
        """The rows. Every plan, action and retry of it gives the same ones, until the snapshot is closed.

        `where` and `engine` as for `read_cold`. After a load with a condition no group can be handed over, except by
        force: the snapshot cannot tell which rows reached a sink.

        Raises:
            VersionExpiredError: The version was not held all the time, so rows may be missing.
            InvalidRequestError: The snapshot is closed, or the engine cannot read it.
        """
        self._pins.check()
        if where is not None:
            self.obstacles = (*self.obstacles, *(each for each in (OF_A_CONDITION,) if each not in self.obstacles))
        given = dict(self.options)
        if engine == "s3a":
            # The connector reads the session's settings itself; only the caller's own options are passed.
            of_session = read_options(self._spark, given["path"])
            given = {
                name: value for name, value in given.items() if name not in of_session or name in self._own_options
            }
        url, topic = given.pop("path"), given.pop("topic")
        return read_cold(self._spark, url, topic=topic, where=where, engine=engine, **given)

    def check(self) -> None:
        """Pass while the snapshot has been held from the start. Raises VersionExpiredError, InvalidRequestError."""
        self._pins.check()

    def receipt(self, *, output: str = "", row_count: int | None = None) -> Receipt:
        """What was read. Ask for it after the sink has succeeded, before the snapshot is closed.

        Raises:
            VersionExpiredError: The version was not held all the time, so rows may be missing.
            InvalidRequestError: The snapshot is closed.
        """
        self._pins.check()
        return Receipt(
            receipt_id=self._receipt_id,
            created_ms=wall_clock_ms(),
            topics=self.topics,
            output=output,
            row_count=row_count,
            snapshot_ms=self.moment_ms,
            group=self._group,
            brokers=tuple(
                ReceiptBroker(
                    broker_name=broker.broker_name,
                    root=broker.root,
                    version=broker.version,
                    incarnations=dict(broker.incarnations),
                    store_uuid=broker.store_uuid or None,
                )
                for broker in self.brokers
            ),
            queues=tuple(
                ReceiptQueue(
                    topic=queue.topic,
                    broker_name=queue.broker_name,
                    queue_id=queue.queue_id,
                    start_offset=queue.start_offset,
                    end_offset=queue.end_offset,
                    group_offset=self._group_offset((queue.topic, queue.broker_name, queue.queue_id)),
                    whole_from=self._whole_from.get((queue.topic, queue.broker_name, queue.queue_id)),
                )
                for queue in self.queues
            ),
            all_queues=self._all_queues,
            obstacles=self.obstacles,
        )

    def write_receipt(self, place: str, *, output: str = "", row_count: int | None = None) -> Receipt:
        """Write the receipt to a path or URL, beside the output. See `receipt`, and write_receipt of receipt.py."""
        receipt = self.receipt(output=output, row_count=row_count)
        write_receipt(receipt, place, store_options(self.options | read_options(self._spark, place)))
        return receipt

    def close(self) -> None:
        """Let the versions go. Idempotent."""
        self._pins.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _group_offset(self, place: Place) -> QueueOffset | None:
        found = self._places.get(place)
        if found is None:
            return None
        return NO_OFFSET if found.offset is None else QueueOffset(found.offset)


def open(
    spark: SparkSession,
    url: str,
    *,
    topic: str,
    options: Mapping[str, str] | None = None,
    from_group: str | None = None,
    seal: bool = False,
    namesrv: str | None = None,
) -> ColdSnapshot:
    """Resolve and pin a read of `topic` (one or several, comma separated) under `url`.

    `options` are those of the data source. `from_group` begins where a consumer group is, in queues without
    a position of it at their oldest message; `seal` takes what the brokers have flushed until now along. Both ask the
    brokers, which `namesrv` names.

    Raises:
        InvalidRequestError: An option is wrong, a topic or version is not there, an offset is out of range, brokers and
            cold tier do not belong together.
        TopicChangedError: The topic was deleted and made again, and the cold tier does not know it yet: seal it.
        UnavailableError: Store, NameServer or a broker gave no answer, or the store refuses to be written to.
    """
    if (from_group is not None or seal) and namesrv is None:
        raise InvalidRequestError("from_group and seal ask the brokers: name the NameServers", option="namesrv")
    chosen = {**read_options(spark, url), **dict(options or {}), "path": url, "topic": topic}
    checked = read_options_from(chosen)
    places: dict[Place, GroupPlace] = {}
    stores: dict[str, str] = {}
    if asks_brokers := namesrv is not None and (seal or from_group is not None):
        places, stores = _ask_brokers(namesrv, checked.topics, group=from_group, seal=seal)
    # When the brokers were asked, each topic exists: a missing one has raised an error.
    empty = EmptyQueues(checked, known_topics=checked.topics if asks_brokers else ())
    plan, pins = _resolve_pinned(checked, empty)
    try:
        check_same_stores(stores, plan.sources)
        pinned = chosen | pinned_options(plan, pin_id=pins.pin_id)
        if from_group is not None:
            pinned["startingOffsets"] = _starting_offsets(plan, places)
            plan = resolve_plan(read_options_from(pinned), now_ms=plan.snapshot_ms)
        queues = _queues(plan, places, empty)
    except BaseException:
        pins.close()
        raise
    return ColdSnapshot(
        spark,
        options=pinned,
        chosen=chosen,
        own_options=frozenset(options or ()),
        plan=plan,
        pins=pins,
        queues=queues,
        group=from_group,
        places=places,
    )


def _ask_brokers(
    namesrv: str, topics: tuple[str, ...], *, group: str | None, seal: bool
) -> tuple[dict[Place, GroupPlace], dict[str, str]]:
    """Read the group's offsets and the brokers' store ids, then seal: so the cold tier holds all that the group has not
    consumed yet."""
    from thermocline.client.admin.admin_client import AdminClient

    places: dict[Place, GroupPlace] = {}
    stores: dict[str, str] = {}
    with AdminClient(namesrv=namesrv) as admin:
        for topic in topics:
            if group is not None:
                found = admin.group_places(group, topic)
                places |= {(topic, place.queue.broker_name, place.queue.queue_id): place for place in found}
                stores |= stores_of(found)
            else:
                stores |= ask_stores(admin, topic)
            if seal:
                admin.tier_seal(topic)
    return places, stores


def _resolve_pinned(checked: ReadOptions, empty: EmptyQueues) -> tuple[ReadPlan, PinKeeper]:
    """A plan whose versions are held. One that was collected between the two is resolved anew."""
    for attempt in range(1, PIN_ATTEMPTS_MAX + 1):
        plan = resolve_plan(checked, now_ms=wall_clock_ms(), is_known=empty.has_topic)
        sources = [(blocking_store(source.url, checked.store), source) for source in plan.sources]
        try:
            return plan, PinKeeper(sources, owner=f"thermocline.spark on {socket.gethostname()}")
        except VersionExpiredError:
            if checked.snapshot_versions or attempt == PIN_ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")


def _starting_offsets(plan: ReadPlan, places: Mapping[Place, GroupPlace]) -> str:
    """The option `startingOffsets` for a group's position; at the end of a queue in which the group is beyond it."""
    starting: dict[str, dict[str, int]] = {}
    for queue in plan.queues:
        place = places.get(_place_of(queue))
        if place is None:
            continue
        if place.incarnation != queue.incarnation:
            raise TopicChangedError(
                "the topic was deleted and made again, and the cold tier does not know it yet", topic=queue.topic
            )
        if place.offset is not None:
            name = f"{queue.source.broker_name}:{queue.queue_id}"
            starting.setdefault(queue.topic, {})[name] = min(place.offset, queue.end_offset)
    return json.dumps(starting, sort_keys=True) if starting else "earliest"


def _queues(plan: ReadPlan, places: Mapping[Place, GroupPlace], empty: EmptyQueues) -> tuple[SnapshotQueue, ...]:
    """Every queue: those of the plan, and those of which nothing is in the cold tier."""
    ranges = {_place_of(queue): (queue.start_offset, queue.end_offset) for queue in plan.queues}
    for place, (_, end) in ranges.items():
        group_place = places.get(place)
        if group_place is not None and group_place.offset is not None and group_place.offset > end:
            offset = QueueOffset(group_place.offset)
            ranges[place] = (offset, offset)  # ahead of the cold tier: it stays there
    for place, group_place in places.items():
        offset = BEGINNING if group_place.offset is None else QueueOffset(group_place.offset)
        ranges.setdefault(place, (offset, offset))
    for place in empty.places(plan.sources):
        ranges.setdefault(place, (BEGINNING, BEGINNING))
    return tuple(
        SnapshotQueue(topic=topic, broker_name=broker, queue_id=queue_id, start_offset=start, end_offset=end)
        for (topic, broker, queue_id), (start, end) in sorted(ranges.items())
    )


def _place_of(queue: QueueRange) -> Place:
    return queue.topic, queue.source.broker_name, queue.queue_id
