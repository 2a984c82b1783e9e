"""ClusterUsers: users and policies of a cluster's brokers, by the requests that administrators send.

    AUTH_GET_USER, and for a user that is not a super user AUTH_GET_ACL
    ACL_VERSION, which Thermocline's brokers alone have: whether anything has changed

One broker is asked, always the same one while it answers; administrators change users on all brokers of a cluster.
Brokers give keys to super users alone, so the proxy's own user must be one. Official brokers answer the same.
Source: ProxyAuthenticationMetadataProvider.java, ClusterMetadataService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from thermocline.auth.info import acl_from_info, user_from_info
from thermocline.auth.policies import Acl
from thermocline.auth.users import User
from thermocline.proxy.access.account import Account
from thermocline.remoting.bodies.auth import AclInfo, UserInfo
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError, UnavailableError, UnsupportedRequestError
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers.auth import AclRequestHeader, UserRequestHeader
from thermocline.remoting.json_dialect import loads_as
from thermocline.remoting.private_requests import AclVersionAnswer, PrivateRequestCode
from thermocline.remoting.request_code import RequestCode

__all__ = ["ClusterUsers"]

logger = logging.getLogger(__name__)

NOTHING = frozenset({b"", b"null"})
LOG_PERIOD_MS = 10_000
BROKERS_PER_LOOK_UP = 2
"""A broker has so much of the time of a look-up that another one can be asked after it."""


class Ask(Protocol):
    """Sends a request to one broker of the cluster after another, until one answers."""

    def __call__(self, code: int, header: Header | None, *, timeout_ms: int) -> Awaitable[RemotingCommand]:
        """Return the successful answer; errors of the SDK. `timeout_ms`: of each broker."""


class ClusterUsers:
    """See the module: a `UserSource`. Belongs to one event loop."""

    def __init__(self, ask: Ask, *, stale_ms_max: int, clock_ms: Callable[[], float]) -> None:
        """`stale_ms_max`: how long a look-up may take at most."""
        self._ask = ask
        self._timeout_ms = max(1, stale_ms_max // (BROKERS_PER_LOOK_UP + 1))
        self._clock_ms = clock_ms
        self._logged_ms = float("-inf")

    async def account(self, username: str) -> Account | None:
        """See `UserSource`."""
        try:
            header = UserRequestHeader(username=username)
            answer = await self._ask(RequestCode.AUTH_GET_USER, header, timeout_ms=self._timeout_ms)
            if bytes(answer.body) in NOTHING:
                return None
            user = _read_user(answer)
            return Account(user, None if user.is_super else await self._acl(user.subject))
        except MQError as error:
            # Whatever the broker refuses it refuses to the proxy: of the client it says nothing.
            self._log(error)
            raise UnavailableError("no broker tells now what the user may do") from error

    async def version(self) -> str | None:
        """See `UserSource`. Official brokers have none."""
        try:
            answer = await self._ask(PrivateRequestCode.ACL_VERSION, None, timeout_ms=self._timeout_ms)
            return loads_as(answer.body, AclVersionAnswer).version
        except UnsupportedRequestError:
            return None
        except MQError as error:
            self._log(error)
            raise UnavailableError("no broker tells now whether users have changed") from error

    async def _acl(self, subject: str) -> Acl | None:
        header = AclRequestHeader(subject=subject)
        answer = await self._ask(RequestCode.AUTH_GET_ACL, header, timeout_ms=self._timeout_ms)
        return None if bytes(answer.body) in NOTHING else acl_from_info(AclInfo.decode(answer.body))

    def _log(self, error: MQError) -> None:
        if self._clock_ms() - self._logged_ms >= LOG_PERIOD_MS:
            self._logged_ms = self._clock_ms()
            logger.warning("users and policies cannot be read, clients are refused meanwhile error=%s", error)


def _read_user(answer: RemotingCommand) -> User:
    """The user in an answer.

    Raises:
        UnavailableError: It has no key.
    """
    try:
        return user_from_info(UserInfo.decode(answer.body))
    except ValueError as error:
        raise UnavailableError(
            "the proxy's own user has to be a super user: the broker gives it no keys of users"
        ) from error
