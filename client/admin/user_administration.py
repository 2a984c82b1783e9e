"""Users and policies: made, shown, changed and deleted at every broker, and on request at every NameServer.

Each broker keeps its own users and policies, and so does a NameServer with access control; a method without `broker` or
`cluster` changes all brokers. `name_servers=True` asks the NameServers instead, of which official ones serve none of
this.
Answers are by broker name, or by the address of a NameServer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.topic_route import BrokerAddress
from thermocline.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from thermocline.remoting.json_dialect import loads_as
from thermocline.remoting.private_requests import AclCheckAnswer, AclCheckHeader, PrivateRequestCode
from thermocline.remoting.request_code import RequestCode

__all__ = ["UserAdministration"]

Answer = TypeVar("Answer")

USER_TYPES, USER_STATES = ("Super", "Normal"), ("enable", "disable")


class UserAdministration(AdminBase):
    """Part of `AsyncAdminClient`."""

    async def create_user(
        self,
        username: str,
        password: str,
        *,
        user_type: str = "Normal",
        user_status: str = "enable",
        cluster: str | None = None,
        broker: str | None = None,
        name_servers: bool = False,
    ) -> list[str]:
        """Make a user, Super or Normal; return where. The name is the access key, the password the secret key.
        `user_status`: enable or disable.

        Raises:
            InvalidRequestError: There is such a user.
            PartialResultError: Some have not done it.
        """
        body = UserInfo(
            password=password,
            user_type=_one_of("user_type", user_type, USER_TYPES),
            user_status=_one_of("user_status", user_status, USER_STATES),
        )
        header = UserRequestHeader(username=username)
        code = RequestCode.AUTH_CREATE_USER
        return list(await self._ask_holders(code, header, body.encode(), cluster, broker, name_servers, _nothing))

    async def update_user(
        self,
        username: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        user_status: str | None = None,
        cluster: str | None = None,
        broker: str | None = None,
        name_servers: bool = False,
    ) -> list[str]:
        """Change what is given of a user, at once; return where. `user_status`: enable or disable.

        Raises:
            InvalidRequestError: There is no such user.
            PartialResultError: Some have not done it.
        """
        body = UserInfo(
            password=password,
            user_type=None if user_type is None else _one_of("user_type", user_type, USER_TYPES),
            user_status=None if user_status is None else _one_of("user_status", user_status, USER_STATES),
        )
        header = UserRequestHeader(username=username)
        code = RequestCode.AUTH_UPDATE_USER
        return list(await self._ask_holders(code, header, body.encode(), cluster, broker, name_servers, _nothing))

    async def delete_user(
        self, username: str, *, cluster: str | None = None, broker: str | None = None, name_servers: bool = False
    ) -> list[str]:
        """Delete a user with its policies, if there is one; return where. PartialResultError: some have not done it."""
        header = UserRequestHeader(username=username)
        code = RequestCode.AUTH_DELETE_USER
        return list(await self._ask_holders(code, header, b"", cluster, broker, name_servers, _nothing))

    async def users(
        self,
        *,
        name: str | None = None,
        part: str | None = None,
        cluster: str | None = None,
        broker: str | None = None,
        name_servers: bool = False,
    ) -> dict[str, list[UserInfo]]:
        """Return the users of each broker: the one of a name, those with a part in the name, or all.

        Passwords are there for super users that ask. PartialResultError: some have not answered.
        """
        if name is not None:
            code, header = RequestCode.AUTH_GET_USER, UserRequestHeader(username=name)
            return await self._ask_holders(
                code, header, b"", cluster, broker, name_servers, lambda body: [UserInfo.decode(body)] if body else []
            )
        code, listing = RequestCode.AUTH_LIST_USER, ListUsersRequestHeader(filter=part)
        return await self._ask_holders(
            code,
            listing,
            b"",
            cluster,
            broker,
            name_servers,
            lambda body: loads_as(body, list[UserInfo]) if body else [],
        )

    async def set_acl(
        self,
        subject: str,
        resources: Sequence[str],
        actions: Sequence[str],
        *,
        decision: str = "Allow",
        source_ips: Sequence[str] = (),
        policy_type: str = "Custom",
        cluster: str | None = None,
        broker: str | None = None,
        name_servers: bool = False,
    ) -> list[str]:
        """Add an entry for each resource to a subject's policies, or change those there are; return where.

        `subject`: `User:name`. `resources`: `Topic:name`, `Group:prefix*`, `Cluster:*`, `*`. `actions`: Pub, Sub,
        Create, Update, Delete, Get, List, All. `source_ips`: addresses or CIDR ranges; without one from everywhere.

        Raises:
            InvalidRequestError: A part of it cannot be one, or there is no such user.
            PartialResultError: Some have not done it.
        """
        entries = [
            PolicyEntryInfo(
                resource=resource, actions=list(actions), source_ips=list(source_ips) or None, decision=decision
            )
            for resource in resources
        ]
        body = AclInfo(subject=subject, policies=[PolicyInfo(policy_type=policy_type, entries=entries)])
        header = AclRequestHeader(subject=subject)
        code = RequestCode.AUTH_UPDATE_ACL
        return list(await self._ask_holders(code, header, body.encode(), cluster, broker, name_servers, _nothing))

    async def copy_acl(
        self,
        acl: AclInfo,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        name_servers: bool = False,
    ) -> list[str]:
        """Add all entries of an access list, as `acls` gives it, to its subject's policies, or change those there are;
        return where. At once: no part of it counts without the others, as ALLOW entries without their DENY entries.

        Raises:
            InvalidRequestError: It has no policies, or there is no such user.
            PartialResultError: Some have not done it.
        """
        header = AclRequestHeader(subject=acl.subject)
        code = RequestCode.AUTH_UPDATE_ACL
        return list(await self._ask_holders(code, header, acl.encode(), cluster, broker, name_servers, _nothing))

    async def delete_acl(
        self,
        subject: str,
        *,
        resource: str | None = None,
        policy_type: str = "Custom",
        cluster: str | None = None,
        broker: str | None = None,
        name_servers: bool = False,
    ) -> list[str]:
        """Delete the entry of a resource, or all policies of a subject; return where.

        Raises:
            InvalidRequestError: It has none.
            PartialResultError: Some have not done it.
        """
        header = DeleteAclRequestHeader(subject=subject, resource=resource, policy_type=policy_type)
        code = RequestCode.AUTH_DELETE_ACL
        return list(await self._ask_holders(code, header, b"", cluster, broker, name_servers, _nothing))

    async def acls(
        self,
        *,
        subject: str | None = None,
        subject_part: str | None = None,
        resource_part: str | None = None,
        cluster: str | None = None,
        broker: str | None = None,
        name_servers: bool = False,
    ) -> dict[str, list[AclInfo]]:
        """Return the policies at each broker: of a subject, or of all whose subject and resource have a part.

        Raises:
            InvalidRequestError: There is no such subject.
            PartialResultError: Some have not answered.
        """
        if subject is not None:
            code, header = RequestCode.AUTH_GET_ACL, AclRequestHeader(subject=subject)
            return await self._ask_holders(
                code, header, b"", cluster, broker, name_servers, lambda body: [AclInfo.decode(body)] if body else []
            )
        code = RequestCode.AUTH_LIST_ACL
        listing = ListAclsRequestHeader(subject_filter=subject_part, resource_filter=resource_part)
        return await self._ask_holders(
            code,
            listing,
            b"",
            cluster,
            broker,
            name_servers,
            lambda body: loads_as(body, list[AclInfo]) if body else [],
        )

    async def check_acl(
        self,
        username: str,
        actions: Sequence[str],
        resource: str,
        *,
        source_ip: str = "127.0.0.1",
        cluster: str | None = None,
        broker: str | None = None,
        name_servers: bool = False,
    ) -> dict[str, AclCheckAnswer]:
        """Return the decision of each broker on one of `actions`, and the entry that made it. Nothing is done.

        Raises:
            InvalidRequestError: There is no such user, action or type of resource.
            PartialResultError: Some have not answered.
        """
        header = AclCheckHeader(username=username, resource=resource, actions=",".join(actions), source_ip=source_ip)
        code, read = PrivateRequestCode.ACL_CHECK, msgspec.json.Decoder(AclCheckAnswer).decode
        return await self._ask_holders(code, header, b"", cluster, broker, name_servers, read)

    async def _ask_holders(
        self,
        code: int,
        header: Header,
        body: bytes,
        cluster: str | None,
        broker: str | None,
        name_servers: bool,
        read: Callable[[bytes], Answer],
    ) -> dict[str, Answer]:
        """What those that keep users answered, by name; `read` makes it of an answer's body.

        PartialResultError: not all have answered; `result` has what the others did.
        """
        session = self._running()
        if name_servers:
            if cluster is not None or broker is not None:
                raise InvalidRequestError("name_servers goes without cluster and broker")
            found = await session.name_servers.call_each(code, header, body=body)
            return found.whole({place: read(bytes(answer.body)) for place, answer in found.by_name().items()})

        async def ask(master: BrokerAddress) -> Answer:
            return read(bytes((await session.call(master.address, code, header, body=body)).body))

        answers = await self._ask_each(await self._masters(cluster=cluster, broker=broker), ask)
        return answers.whole(answers.by_name())


def _nothing(body: bytes) -> None:
    """Of an answer that says no more than that it is done."""


def _one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    found = next((each for each in allowed if each.lower() == value.lower()), None)
    if found is None:
        raise InvalidRequestError(f"{name} is one of {', '.join(allowed)}", value=value)
    return found
