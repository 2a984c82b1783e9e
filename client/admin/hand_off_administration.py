"""Handing over: a consumer group is moved to exactly where a bulk reader has stopped, on all brokers or on none.

    prepare on every broker (each checks, and holds the group for 30 s)
      one refuses -> abort everywhere                nothing has changed
    apply on every broker (each checks again, and answers when it is durable)
      one is lost -> repeat the same call            what was applied stays so, the rest follows

A broker that restarts in between has forgotten what was prepared: then everything is prepared once more. Only a
Thermocline broker serves this; another is UnsupportedRequestError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.answer import answer_error
from thermocline.client.busy_retry import retry_while_busy
from thermocline.client.fan_out import Answers
from thermocline.client.message_queue import MessageQueue
from thermocline.client.topic_route import BrokerAddress
from thermocline.remoting import errors
from thermocline.remoting.bodies.hand_off import (
    ERROR_FIELD,
    NO_OFFSET,
    HandOffAnswer,
    HandOffBody,
    HandOffPlaces,
    TopicTarget,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError, MQError, NotPreparedError, ObjectNotFoundError
from thermocline.remoting.private_requests import HandOffHeader, HandOffLookHeader, PrivateRequestCode
from thermocline.remoting.response_code import ResponseCode

__all__ = ["GroupPlace", "HandOffAdministration", "HandedOver"]

TIMEOUT_MS_MIN = 20_000
"""An answer waits for a disk."""
ATTEMPTS_MAX = 3

_ERRORS: dict[str, type[MQError]] = {
    error.__name__: error
    for error in (
        errors.GroupActiveError,
        errors.GroupHeldError,
        errors.GroupNotFoundError,
        errors.IllegalOperationError,
        errors.InvalidParameterError,
        errors.NotPreparedError,
        errors.OffsetChangedError,
        errors.OffsetOutOfRangeError,
        errors.TopicChangedError,
        errors.TopicNotFoundError,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """A group's offset in a queue of a topic's present incarnation; `offset` None: it has none there.

    `store_uuid` is the id of the broker's store, which its cold tier carries too; "" from an older broker.
    """

    queue: MessageQueue
    incarnation: int
    min_offset: int
    max_offset: int
    offset: int | None
    store_uuid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """A queue in which a group was moved; `before` None: it had no offset there."""

    queue: MessageQueue
    before: int | None
    offset: int


class HandOffAdministration(AdminBase):
    """Part of `AsyncAdminClient`."""

    async def group_places(self, group: str, topic: str) -> list[GroupPlace]:
        """Return the range of every queue of a topic, empty ones too, and exactly where the group is in it, sorted.

        Raises:
            TopicNotFoundError: No live broker has the topic.
            UnsupportedRequestError: No broker is Thermocline's.
            PartialResultError: Some brokers failed; `result` has the queues of the others.
        """

        async def ask(master: BrokerAddress) -> list[GroupPlace]:
            header = HandOffLookHeader(group=group, topic=topic)

            async def ask_once(left_ms: int) -> RemotingCommand:
                command = RemotingCommand.request(PrivateRequestCode.HAND_OFF_LOOK, header)
                return await self._hand_off_call(master, command)

            answer = await retry_while_busy(ask_once, timeout_ms=self.request_timeout_ms)
            found = HandOffPlaces.decode(answer.body)
            return [
                GroupPlace(
                    queue=MessageQueue(topic=topic, broker_name=master.broker_name, queue_id=each.queue_id),
                    incarnation=found.incarnation,
                    min_offset=each.min_offset,
                    max_offset=each.max_offset,
                    offset=None if each.offset == NO_OFFSET else each.offset,
                    store_uuid=found.store_uuid,
                )
                for each in found.queues
            ]

        answers = await self._ask_each(await self._topic_masters(topic), ask)
        return answers.whole(sorted((one for each in answers.values() for one in each), key=lambda place: place.queue))

    async def hand_off(
        self,
        group: str,
        targets: Mapping[str, Sequence[TopicTarget]],
        *,
        receipt_id: str,
        force: bool = False,
        stores: Mapping[str, str] | None = None,
    ) -> list[HandedOver]:
        """Move a group without members to where `targets` say, by broker name; return what was moved, sorted.

        A receipt is applied once; queues that an earlier call has moved are not returned again. Repeat the call after a
        failure until it succeeds. `stores`: the ids of the stores that were read, by broker name, so that no other
        cluster's group is moved. `force` passes over expected offsets, over what has expired since it was read, and
        over `stores`.

        Raises:
            GroupActiveError: Members of the group are connected, or hold messages that they have popped.
            GroupHeldError: Another hand-off is moving the group.
            InvalidRequestError: A broker has the topic and is not among `targets` (unless forced), an offset is out of
                range, the group is not where it was, the topic is another one by now, or the broker is.
            ObjectNotFoundError: There is no such broker, topic or group.
            UnavailableError: A broker gave no answer; repeat the call.
        """
        wanted = await self._wanted(targets, is_whole=not force)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            prepared = await self._prepare_each(group, wanted, receipt_id=receipt_id, force=force, stores=stores or {})
            try:
                applied = await self._ask_each(prepared, lambda master: self._apply(master, group, receipt_id))
                moved = sorted((row for rows in applied.values() for row in rows), key=lambda row: row.queue)
                _raise_not_prepared(applied)
                return applied.whole(moved)
            except NotPreparedError:
                # A broker has restarted, or was too slow: it answers with the moves that it has applied.
                if attempt == ATTEMPTS_MAX:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _wanted(
        self, targets: Mapping[str, Sequence[TopicTarget]], *, is_whole: bool
    ) -> list[tuple[BrokerAddress, list[TopicTarget]]]:
        """The brokers and the topics to move on each. A topic of which nothing was read is skipped where it does not
        exist; every broker that has one of the topics must be among the targets."""
        masters = {master.broker_name: master for master in await self._masters()}
        holders = {
            topic: {master.broker_name for master in await self._topic_masters(topic)}
            for topic in sorted({target.topic for each in targets.values() for target in each})
        }
        wanted: list[tuple[BrokerAddress, list[TopicTarget]]] = []
        for name in sorted(targets):
            topics = [target for target in targets[name] if target.queues or name in holders[target.topic]]
            if topics and name not in masters:
                raise ObjectNotFoundError("a broker that was read is not there", broker=name)
            if topics:
                wanted.append((masters[name], topics))
        for topic, names in holders.items():
            for name in sorted(names) if is_whole else ():
                if not any(target.topic == topic for target in targets.get(name, ())):
                    raise InvalidRequestError("a broker has the topic that was not read", topic=topic, broker=name)
        return wanted

    async def _prepare_each(
        self,
        group: str,
        wanted: Sequence[tuple[BrokerAddress, list[TopicTarget]]],
        *,
        receipt_id: str,
        force: bool,
        stores: Mapping[str, str],
    ) -> list[BrokerAddress]:
        """Prepare on every broker, or on none; the brokers on which it is not applied yet."""
        targets = dict(wanted)

        async def prepare(master: BrokerAddress) -> bool:
            body = HandOffBody(
                group=group,
                receipt_id=receipt_id,
                topics=targets[master],
                is_forced=force,
                store_uuid=stores.get(master.broker_name),
            )
            command = RemotingCommand.request(PrivateRequestCode.HAND_OFF_PREPARE, body=body.encode())
            return HandOffAnswer.decode((await self._hand_off_call(master, command)).body).is_applied

        async def abort(master: BrokerAddress) -> None:
            await self._hand_off_call(master, _command(PrivateRequestCode.HAND_OFF_ABORT, group, receipt_id))

        waiting: list[BrokerAddress] = []
        for number, (master, _) in enumerate(wanted, start=1):  # in one order: of two that move a group, one succeeds
            try:
                answers = await self._ask_each([master], prepare)
                answers.require_all()
            except BaseException:
                asked = [each for each, _ in wanted[:number]]
                await self._ask_each(
                    asked, abort
                )  # a broker that does not get it releases the group after its hold time
                raise
            if not answers.by_peer[master]:
                waiting.append(master)
        return waiting

    async def _apply(self, master: BrokerAddress, group: str, receipt_id: str) -> list[HandedOver]:
        answer = await self._hand_off_call(master, _command(PrivateRequestCode.HAND_OFF_APPLY, group, receipt_id))
        return [
            HandedOver(
                queue=MessageQueue(topic=each.topic, broker_name=master.broker_name, queue_id=each.queue_id),
                before=None if each.before == NO_OFFSET else each.before,
                offset=each.offset,
            )
            for each in HandOffAnswer.decode(answer.body).queues
        ]

    async def _hand_off_call(self, master: BrokerAddress, command: RemotingCommand) -> RemotingCommand:
        timeout_ms = max(TIMEOUT_MS_MIN, self.request_timeout_ms)
        calling = self._running().connections.call(master.address, command, timeout_ms=timeout_ms)
        answer = await self._while_alive(master.address, calling)
        if answer.code == ResponseCode.SUCCESS:
            return answer
        error_class = _ERRORS.get((answer.ext_fields or {}).get(ERROR_FIELD, ""))
        if error_class is None:
            raise answer_error(answer.code, answer.remark, address=master.address)
        raise error_class(answer.remark or "", broker=master.broker_name)


def _raise_not_prepared(applied: Answers[BrokerAddress, list[HandedOver]]) -> None:
    for failure in applied.failures:
        if isinstance(failure.error, NotPreparedError):
            raise failure.error


def _command(code: PrivateRequestCode, group: str, receipt_id: str) -> RemotingCommand:
    return RemotingCommand.request(code, HandOffHeader(group=group, receipt_id=receipt_id))
