"""FaultPlan: the planned faults of a fake broker, and how often each occurs."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.request_code import request_name

__all__ = ["FaultPlan", "ReceivedRequest"]

_REQUESTS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request that a fake broker received."""

    code: int
    fields: dict[str, str]
    body: bytes
    remote_address: str

    @property
    def name(self) -> str:
        """The request code's name."""
        return request_name(self.code)


@dataclass(slots=True)
class _Fault:
    response_code: int | None
    remark: str
    times_left: int


class FaultPlan:
    """Faults by request code, first planned first done. Keeps the last 100 000 requests for tests to look at."""

    def __init__(self) -> None:
        self._faults: dict[int, deque[_Fault]] = {}
        self.requests: deque[ReceivedRequest] = deque(maxlen=_REQUESTS_MAX)
        self.counts: Counter[int] = Counter()

    def add(self, code: int, *, response_code: int | None, remark: str, times: int) -> None:
        """Refuse the next `times` requests with `response_code`, or do not answer them at all (None)."""
        self._faults.setdefault(int(code), deque()).append(_Fault(response_code, remark, times))

    def record(self, command: RemotingCommand, remote_address: str) -> None:
        """Remember a request."""
        self.counts[command.code] += 1
        self.requests.append(
            ReceivedRequest(command.code, dict(command.ext_fields or {}), bytes(command.body), remote_address)
        )

    def next_fault(self, command: RemotingCommand) -> tuple[bool, RemotingCommand | None]:
        """Return whether the request is to go wrong, and the answer to it (None: no answer)."""
        faults = self._faults.get(command.code)
        if not faults:
            return False, None
        fault = faults[0]
        fault.times_left -= 1
        if fault.times_left == 0:
            faults.popleft()
        if fault.response_code is None:
            return True, None
        return True, RemotingCommand.response(command, fault.response_code, remark=fault.remark)
