"""Administration of users and policies: the requests AUTH_CREATE_USER to AUTH_LIST_ACL, ACL_CHECK and
ACL_VERSION.

A broker and a NameServer serve them alike, while access control is on. The rights to send them are checked before
(access_control.py). Beyond that
  - a super user is made, changed and deleted by super users alone, as in RocketMQ;
  - passwords are answered to super users alone. RocketMQ answers them to every user with Get on the cluster, who could
    then be any super user.
Source: broker/processor/AdminBrokerProcessor.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from thermocline.auth.access_control import AccessControl
from thermocline.auth.actions import Action, parse_action
from thermocline.auth.auth_store import AuthStore
from thermocline.auth.info import acl_to_info, policies_from_info, user_to_info
from thermocline.auth.policies import Acl, Policy, parse_policy_type
from thermocline.auth.resources import parse_resource
from thermocline.auth.rights import Right
from thermocline.auth.users import User, UserType, parse_user_status, parse_user_type
from thermocline.auth.validation import check_lengths
from thermocline.remoting.bodies.auth import AclInfo, UserInfo
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidParameterError, LimitReachedError, PermissionDeniedError
from thermocline.remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from thermocline.remoting.json_dialect import dumps
from thermocline.remoting.private_requests import AclCheckAnswer, AclCheckHeader, AclVersionAnswer, PrivateRequestCode
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

Serve = Callable[[RemotingCommand], RemotingCommand | Awaitable[RemotingCommand]]
Handler = Callable[[object, RemotingCommand], RemotingCommand | Awaitable[RemotingCommand]]


class Administration:
    """See the module. Owner: one event loop."""

    def __init__(
        self,
        store: AuthStore,
        access: AccessControl,
        *,
        on_limit: Callable[[Any, LimitReachedError], None] = lambda _connection, _error: None,
    ) -> None:
        """`on_limit`: called with the connection of a request that a limit has refused."""
        self._store = store
        self._access = access
        self._on_limit = on_limit

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> what serves it, for a dispatcher: of its connection no request needs anything."""
        return {code: self._for_dispatcher(serve) for code, serve in self._methods().items()}

    def _for_dispatcher(self, serve: Serve) -> Handler:
        def handle(connection: object, command: RemotingCommand) -> RemotingCommand | Awaitable[RemotingCommand]:
            answer = serve(command)
            return answer if isinstance(answer, RemotingCommand) else self._counted(connection, answer)

        return handle

    async def _counted(self, connection: object, answer: Awaitable[RemotingCommand]) -> RemotingCommand:
        try:
            return await answer
        except LimitReachedError as error:
            self._on_limit(connection, error)
            raise

    def _methods(self) -> Mapping[int, Serve]:
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.update_acl,
            RequestCode.AUTH_UPDATE_ACL: self.update_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
            PrivateRequestCode.ACL_CHECK: self.check_acl,
            PrivateRequestCode.ACL_VERSION: self.version,
        }

    # -- users -----------------------------------------------------------------------------------------------------

    async def create_user(self, command: RemotingCommand) -> RemotingCommand:
        """AUTH_CREATE_USER."""
        username = command.header(UserRequestHeader).username
        if not username:
            return _blank_username(command)
        info = UserInfo.decode(command.body)
        kind = parse_user_type(info.user_type)
        if kind is UserType.SUPER and not self._access.is_super(command):
            return _refused(command, "The super user can only be create by super user")
        await self._store.create_user(username, info.password, kind, parse_user_status(info.user_status))
        return RemotingCommand.response(command)

    async def update_user(self, command: RemotingCommand) -> RemotingCommand:
        """AUTH_UPDATE_USER."""
        username = command.header(UserRequestHeader).username
        if not username:
            return _blank_username(command)
        info = UserInfo.decode(command.body)
        kind = parse_user_type(info.user_type)
        if kind is UserType.SUPER and not self._access.is_super(command):
            return _refused(command, "The super user can only be update by super user")
        self._check_may_change(command, self._store.now.users.get(username))
        await self._store.update_user(username, info.password, kind, parse_user_status(info.user_status))
        return RemotingCommand.response(command)

    async def delete_user(self, command: RemotingCommand) -> RemotingCommand:
        """AUTH_DELETE_USER."""
        username = command.header(UserRequestHeader).username
        if not username or not username.strip():
            raise PermissionDeniedError("username can not be blank")
        self._check_may_change(command, self._store.now.users.get(username))
        await self._store.delete_user(username)
        return RemotingCommand.response(command)

    def get_user(self, command: RemotingCommand) -> RemotingCommand:
        """AUTH_GET_USER; no body without such a user."""
        username = command.header(UserRequestHeader).username
        if not username or not username.strip():
            return _blank_username(command)
        user = self._store.now.users.get(username)
        if user is None:
            return RemotingCommand.response(command)
        return RemotingCommand.response(command, body=self._shown(command, user).encode())

    def list_users(self, command: RemotingCommand) -> RemotingCommand:
        """AUTH_LIST_USER; no body without users."""
        part = command.header(ListUsersRequestHeader).filter or ""
        found = [
            self._shown(command, user)
            for name, user in sorted(self._store.now.users.items())
            if not part.strip() or part in name
        ]
        return RemotingCommand.response(command, body=dumps(found) if found else b"")

    def _shown(self, command: RemotingCommand, user: User) -> UserInfo:
        return user_to_info(user, with_password=self._access.is_super(command))

    def _check_may_change(self, command: RemotingCommand, user: User | None) -> None:
        if user is not None and user.is_super and not self._access.is_super(command):
            raise PermissionDeniedError("The super user can only be update by super user")

    # -- policies --------------------------------------------------------------------------------------------------

    async def update_acl(self, command: RemotingCommand) -> RemotingCommand:
        """AUTH_CREATE_ACL, AUTH_UPDATE_ACL: both add entries, or change those of the same resources."""
        header = command.header(AclRequestHeader)
        info = AclInfo.decode(command.body) if command.body else AclInfo()
        if not info.policies:
            raise PermissionDeniedError("The body of acl is null")
        await self._store.update_acl(info.subject or header.subject, policies_from_info(info))
        return RemotingCommand.response(command)

    async def delete_acl(self, command: RemotingCommand) -> RemotingCommand:
        """AUTH_DELETE_ACL."""
        header = command.header(DeleteAclRequestHeader)
        resource = parse_resource(header.resource)
        if resource is None and header.resource:
            raise InvalidParameterError("the resource is none; nothing is deleted", resource=header.resource)
        await self._store.delete_acl(header.subject, parse_policy_type(header.policy_type), resource)
        return RemotingCommand.response(command)

    def get_acl(self, command: RemotingCommand) -> RemotingCommand:
        """AUTH_GET_ACL; no body without policies."""
        acl = self._store.acl_of(command.header(AclRequestHeader).subject)
        return RemotingCommand.response(command, body=acl_to_info(acl).encode() if acl is not None else b"")

    def list_acls(self, command: RemotingCommand) -> RemotingCommand:
        """AUTH_LIST_ACL: of subjects with a part of the name, their entries for resources with a part of the name."""
        header = command.header(ListAclsRequestHeader)
        subject_part, resource_part = (header.subject_filter or "").strip(), (header.resource_filter or "").strip()
        found = [
            _with_resources(acl, resource_part)
            for subject, acl in sorted(self._store.now.acls.items())
            if subject_part in subject
        ]
        shown = [acl_to_info(acl) for acl in found if acl.policies]
        return RemotingCommand.response(command, body=dumps(shown) if shown else b"")

    def check_acl(self, command: RemotingCommand) -> RemotingCommand:
        """ACL_CHECK."""
        header = command.header(AclCheckHeader)
        resource = parse_resource(header.resource)
        if resource is None:
            raise InvalidParameterError("a resource such as Topic:name is needed", resource=header.resource)
        actions: list[Action] = []
        for name in header.actions.split(","):
            action = parse_action(name.strip())
            if action is None:
                raise InvalidParameterError(
                    f"an action is needed: {', '.join(each.title for each in Action if each is not Action.UNKNOWN)}",
                    action=name,
                )
            actions.append(action)
        check_lengths(resource=header.resource, address=header.source_ip)  # decisions are remembered by them
        verdict = self._access.explain(header.username, Right(resource, tuple(actions)), header.source_ip)
        answer = AclCheckAnswer(
            is_allowed=verdict.is_allowed,
            reason=verdict.reason,
            policy=verdict.policy.title if verdict.policy is not None else None,
            entry=str(verdict.entry) if verdict.entry is not None else None,
        )
        return RemotingCommand.response(command, body=dumps(answer))

    def version(self, command: RemotingCommand) -> RemotingCommand:
        """ACL_VERSION."""
        return RemotingCommand.response(command, body=dumps(AclVersionAnswer(version=self._store.version)))


def _with_resources(acl: Acl, part: str) -> Acl:
    """The entries whose resource has the part."""
    policies = [
        Policy(
            type=policy.type,
            entries=tuple(entry for entry in policy.entries if part in entry.resource.key),
        )
        for policy in acl.policies
    ]
    return Acl(subject=acl.subject, policies=tuple(policy for policy in policies if policy.entries))


def _blank_username(command: RemotingCommand) -> RemotingCommand:
    return RemotingCommand.response(command, ResponseCode.INVALID_PARAMETER, remark="The username is blank")


def _refused(command: RemotingCommand, remark: str) -> RemotingCommand:
    return RemotingCommand.response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
