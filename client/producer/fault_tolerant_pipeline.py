"""FaultTolerantPipeline: a send pipeline that avoids slow and failing brokers, with `send_latency_fault_enable`.

It measures the latency of every send. For the next send it chooses, in round-robin order, a queue whose broker is
available; if there is none, a queue whose broker is reachable; else any queue. It is a subclass, so that producers
without the option have no overhead.

Rules
  - Sends to a queue chosen by a selector or a sharding key go to that queue.
  - A refusal counts against a broker if another broker might accept the message (`RETRY_CODES`). An invalid message
    does not count. (With the official client it does.)
  - With `start_detector_enable`, a broker that does not answer is unreachable. The pipeline then requests the end of a
    queue from it every `detect_interval_ms` until it answers. No task runs while all brokers are reachable.
Source: client/latency/MQFaultStrategy.java, client/impl/producer/DefaultMQProducerImpl.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from thermocline.client.producer.broker_faults import BrokerFaults
from thermocline.client.producer.in_flight import InFlight
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.producer.send_answer import STATUS_BY_CODE, SendAnswer
from thermocline.client.producer.send_pipeline import RETRY_CODES, SendPipeline
from thermocline.client.producer.send_target import Lane, SendTarget
from thermocline.client.producer.sending import Sending
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import ConnectionLostError, MQError, UnavailableError
from thermocline.remoting.headers import GetMaxOffsetRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

__all__ = ["FaultTolerantPipeline"]

logger = logging.getLogger(__name__)


class FaultTolerantPipeline(SendPipeline):
    """See the module. Belongs to the producer's loop."""

    def __init__(
        self,
        options: ProducerOptions,
        *,
        in_flight: InFlight,
        clock_ms: Callable[[], int],
        random_source: random.Random,
    ) -> None:
        super().__init__(options, in_flight=in_flight, clock_ms=clock_ms, random_source=random_source)
        self._faults = BrokerFaults(
            latency_max_ms=options.latency_max_ms,
            not_available_duration_ms=options.not_available_duration_ms,
            clock=self._loop.time,
        )
        self._written_at: dict[Sending, float] = {}
        self._probed: set[str] = set()

    # -- choosing ----------------------------------------------------------------------------------------------------

    def _choose(self, sending: Sending, target: SendTarget) -> Lane:
        faults = self._faults
        if not faults or sending.is_pinned:
            return super()._choose(sending, target)
        avoided = None if sending.lane is None else sending.lane.broker_name
        lane = target.next_fit_lane(faults.is_available, avoid_broker=avoided)
        if lane is None:
            lane = target.next_fit_lane(faults.is_reachable, avoid_broker=avoided)
        return super()._choose(sending, target) if lane is None else lane

    # -- measuring ---------------------------------------------------------------------------------------------------

    def _write(self, sending: Sending, lane: Lane, connection: Connection) -> None:
        self._written_at[sending] = self._loop.time()
        super()._write(sending, lane, connection)

    def _settle(self, sending: Sending, answer: SendAnswer) -> None:
        assert sending.lane is not None
        broker_name = sending.lane.broker_name
        written_at = self._written_at.pop(sending)
        if answer.code in STATUS_BY_CODE:
            self._faults.succeeded(broker_name, latency_ms=(self._loop.time() - written_at) * 1000)
        elif answer.code in RETRY_CODES:
            self._failed(broker_name, is_reachable=False)
        super()._settle(sending, answer)

    def _retry_or_fail(self, sending: Sending, error: MQError, *, is_retryable: bool) -> None:
        self._written_at.pop(sending, None)
        if isinstance(error, ConnectionLostError) and sending.lane is not None:
            self._did_not_answer(sending.lane)
        super()._retry_or_fail(sending, error, is_retryable=is_retryable)

    def _time_out(self, sending: Sending) -> None:
        if self._written_at.pop(sending, None) is not None and sending.lane is not None:
            self._did_not_answer(sending.lane)
        super()._time_out(sending)

    def _did_not_answer(self, lane: Lane) -> None:
        self._failed(lane.broker_name, is_reachable=not self._options.start_detector_enable)

    def _failed(self, broker_name: str, *, is_reachable: bool) -> None:
        if self._faults.is_available(broker_name):
            logger.warning("broker is avoided for a while broker_name=%s", broker_name)
        self._faults.failed(broker_name, is_reachable=is_reachable)
        wants_probe = self._options.start_detector_enable and not is_reachable and not self._closed
        if wants_probe and broker_name not in self._probed:
            self._probed.add(broker_name)
            self._start_task(self._probe(broker_name))

    # -- the detector ------------------------------------------------------------------------------------------------

    async def _probe(self, broker_name: str) -> None:
        """Send requests to a broker until it answers, or until no route contains it."""
        try:
            while not self._faults.is_reachable(broker_name):
                await asyncio.sleep(self._options.detect_interval_ms / 1000)
                lane = next((lane for lane in self._lanes() if lane.broker_name == broker_name), None)
                if lane is None:
                    self._faults.forget(broker_name)
                elif await self._answers(lane):
                    logger.info("broker is reachable again broker_name=%s", broker_name)
                    self._faults.reached(broker_name)
        finally:
            self._probed.discard(broker_name)

    async def _answers(self, lane: Lane) -> bool:
        header = GetMaxOffsetRequestHeader(topic=lane.queue.topic, queue_id=lane.queue.queue_id)
        question = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header)
        try:
            async with asyncio.timeout(self._options.detect_timeout_ms / 1000):
                answer = await self._connections.call(
                    lane.address, question, timeout_ms=self._options.detect_timeout_ms
                )
        except (UnavailableError, TimeoutError):
            return False
        return answer.code == ResponseCode.SUCCESS

    def _lanes(self) -> list[Lane]:
        return [lane for target in self._targets.values() for lane in target.lanes]
