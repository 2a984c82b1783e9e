"""Offset return: what groups have committed at a slave in its master's place, for a master that comes back unasked.

A master that starts takes offsets back before it serves (pre_online.py). One that was frozen, or cut off from
NameServers, is simply there again, with the offsets that it had. The slave then sends it those that were committed here
meanwhile, where they are further; only after that it follows the master's offsets again.

    ACTING       the offsets as they are now are remembered
                 (not the progress of POP and of transactions: that master has what is in flight, and open, itself)
    FOLLOWING    those that differ from them are compared with the master's, and sent; until that is done, every second,
                 and again where the master was gone once more before it was done

Bound: a copy of all offsets while the slave stands in.
Owner: the hot process's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from thermocline.broker.cluster import MemberWatch, StandIn
from thermocline.broker.replicas import MasterMetadata
from thermocline.broker.tables import PROGRESS_GROUPS, ConsumerOffsets
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError, ResponseError
from thermocline.remoting.headers.read import UpdateConsumerOffsetRequestHeader
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

logger = logging.getLogger(__name__)

AGAIN_S = 1.0


class OffsetReturn:
    """See the module's header. `close` as often as wanted."""

    def __init__(
        self,
        members: MemberWatch,
        offsets: ConsumerOffsets,
        client: RemotingClient,
        *,
        had: Callable[[str, int, QueueOffset], bool],
        timeout_ms: Callable[[], int],
        clock: Callable[[], int],
    ) -> None:
        """`client`: closed by its owner. `had(topic, queue id, offset)`: whether this broker had the messages from that
        offset on. `clock`: wall clock in ms."""
        self._had = had
        self._members = members
        self._offsets = offsets
        self._client = client
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._before: dict[str, dict[int, QueueOffset]] | None = None
        self._acting_count = 0
        """How often this broker has stood in."""
        self._task: asyncio.Task[None] | None = None
        members.add_listener(self._state_changed)

    @property
    def is_pending(self) -> bool:
        """Whether offsets may have been committed here that the master does not have."""
        return self._before is not None

    async def close(self) -> None:
        """Stop. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _state_changed(self, state: StandIn) -> None:
        if state is StandIn.ACTING:
            self._acting_count += 1
            if self._before is None:
                self._before = {key: dict(table) for key, table in self._offsets.tables()}
        elif state is StandIn.FOLLOWING and self._before is not None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="offsets for the master")

    async def _run(self) -> None:
        error = ""
        while self._members.state is StandIn.FOLLOWING and self._members.master_address is not None:
            acting_count = self._acting_count
            try:
                count = await self._give_back(self._members.master_address)
            except MQError as failure:
                if str(failure) != error:
                    error = str(failure)
                    logger.warning("offsets not given back yet error=%s", error)
                await asyncio.sleep(AGAIN_S)
                continue
            except Exception:
                # A bug must not keep this slave from following its master for good.
                logger.exception("offsets not given back, a bug of ours")
                count = 0
            if count:
                logger.info("offsets given back to the master count=%d", count)
            if self._members.state is StandIn.FOLLOWING and acting_count == self._acting_count:
                self._before = None
                break
        self._task = None

    async def _give_back(self, master: str) -> int:
        """Send what is further here than at the master; how many offsets."""
        before = self._before
        assert before is not None
        changed = [
            (topic, group, queue_id, offset)
            for topic, group, queue_id, offset in self._offsets.items()
            if group not in PROGRESS_GROUPS and before.get(f"{topic}@{group}", {}).get(queue_id) != offset
        ]
        if not changed:
            return 0
        theirs = ConsumerOffsets(clock=self._clock)
        theirs.load(await MasterMetadata(self._client, master).consumer_offsets())
        count = 0
        for topic, group, queue_id, offset in changed:
            present = theirs.of_group(topic, group).get(queue_id)
            # Where messages are missing here, the group has gone on behind them: at the master it gets them.
            if present is None or (present < offset and self._had(topic, queue_id, present)):
                count += await self._send(master, topic, group, queue_id, offset)
        return count

    async def _send(self, master: str, topic: str, group: str, queue_id: int, offset: QueueOffset) -> bool:
        """Have the master store one offset; False when it refuses for good."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        command = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        try:
            await self._client.request(master, command, timeout_ms=self._timeout_ms())
        except ResponseError as error:
            if error.code == ResponseCode.SYSTEM_BUSY:
                raise
            logger.warning("offset not given back topic=%s group=%s error=%s", topic, group, error)
            return False
        return True
