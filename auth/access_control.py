"""Access control: is a request allowed? Authentication, then authorization.

    signature of the user's key over the request     else refused, unless its code is on authenticationWhitelist
    a right for each need of the code's rule         else refused, unless its code is on authorizationWhitelist

Rules
  - A code without a rule is refused, to super users too.
  - Who proved nothing is no user: a code on authenticationWhitelist that needs a right is served to those who sign.
  - An unknown user gets the answer of a wrong signature, after the same work: a stranger cannot find out which users
    exist. (RocketMQ answers "User:... is not found.".) The audit log has the reason.
  - Decisions are remembered by user, right and address until users or policies change: a change counts for the next
    request. Bound: DECISIONS_MAX; then all are forgotten. Those on names of more than REMEMBERED_CHARACTERS_MAX
    characters are not remembered.
Owner: one event loop. No I/O.
Source: auth/authentication/chain/DefaultAuthenticationHandler.java, auth/authorization/strategy/
AbstractAuthorizationStrategy.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Mapping
from ipaddress import IPv4Address
from typing import TypeVar

import msgspec

from thermocline.auth.audit import AUTHENTICATION, AUTHORIZATION, AuditLog, denial_rest
from thermocline.auth.auth_config import AuthConfig
from thermocline.auth.auth_store import AuthSnapshot, AuthStore
from thermocline.auth.authorization import Verdict, decide, denial_text
from thermocline.auth.refusal import Refusal
from thermocline.auth.resources import RETRY_PREFIX, Resource, ResourcePattern, ResourceType
from thermocline.auth.rights import Right, Rule
from thermocline.auth.rights_table import PUB, RULES, SUB
from thermocline.auth.users import User, UserStatus, subject_of
from thermocline.remoting.bodies.auth import AclInfo
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError, PermissionDeniedError, UnsupportedRequestError
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    SigningKey,
    signed_content,
    signed_content_without_token,
)

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
_NO_USER_KEY: tuple[None, SigningKey] = (None, SigningKey(b"the key of no user"))

DECISIONS_MAX = 10_000
REFUSALS_MAX = 1_000
"""Of requests without a valid signature: strangers choose the names in them."""
REMEMBERED_CHARACTERS_MAX = 1_000

NO_USER = "username cannot be null."
BAD_SIGNATURE = "check signature failed."
UNCLEAR = "Authorization failed. Please verify your access rights and try again."
NO_SUPER_USER = "Only a super user may do that."

CHANGES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.SET_COMMITLOG_READ_MODE,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CLEAN_BROKER_DATA,
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        PrivateRequestCode.TTL_SET,
        PrivateRequestCode.TIER_PURGE,
        PrivateRequestCode.HAND_OFF_PREPARE,
        PrivateRequestCode.HAND_OFF_APPLY,
        PrivateRequestCode.HAND_OFF_ABORT,
        PrivateRequestCode.REPLICA_HAND_OVER,
    }
)
"""Codes of administration that change something: always in the audit log."""

USER_CHANGES = frozenset(
    {RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_DELETE_USER},
)
POLICY_CHANGES = frozenset({RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL, RequestCode.AUTH_DELETE_ACL})


class _Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on a request, of which a denial has a refusal."""

    rights: tuple[Right, ...]
    verdicts: tuple[Verdict, ...]
    refusal: Refusal | None = None


SendVerdict = str | Refusal | None
"""On a send whose signature is right: the name of the user that may; or the refusal; or nothing that is certain."""


SendKey = tuple[str, str, bytes, int]
"""Name of the user, topic, address, request code."""


class SendDecision:
    """What is remembered of sends of one user to one topic from one address."""

    __slots__ = ("key", "verdict")

    def __init__(self, key: SigningKey, verdict: SendVerdict) -> None:
        self.key = key
        self.verdict = verdict


class AccessControl:
    """See the module."""

    def __init__(self, store: AuthStore, config: AuthConfig, *, audit: AuditLog, cluster_name: str) -> None:
        """`cluster_name`: the cluster that requests are about which name none."""
        self._store = store
        self._audit = audit
        self._cluster_name = cluster_name
        self._is_authorizing = config.authorization_enabled
        self._unsigned_codes, self._free_codes = config.whitelists()
        self._keys: dict[str, tuple[User, SigningKey]] = {}
        self._last_signed: tuple[tuple[SigningKey, bytes, str], bool] | None = None
        self._verdicts: dict[tuple[str, Right, str], Verdict] = {}
        self._judgements: dict[tuple[str, int, tuple[str | None, ...], str], _Judged] = {}
        self._refusals: dict[tuple[int, str | None, str, str], Refusal] = {}
        self._sends: dict[SendKey, SendDecision] = {}
        self._pulls: dict[tuple[str, str, str, str], bool] = {}
        store.add_listener(self._forget)
        self._forget()

    @property
    def audit(self) -> AuditLog:
        """Where decisions are written."""
        return self._audit

    @property
    def snapshot(self) -> AuthSnapshot:
        """Users and policies as of now; another object after each change."""
        return self._store.now

    # -- whole requests --------------------------------------------------------------------------------------------

    def check(self, command: RemotingCommand, address: str) -> tuple[User | None, tuple[Right, ...]]:
        """Pass if the request is allowed; the user that proved to be it, and the rights that were needed.

        Raises:
            PermissionDeniedError: It is not; the sentence is for the client.
            UnsupportedRequestError: Its code has no rule.
        """
        user = self._authenticate(command, address)
        code = command.code
        if not self._is_authorizing or code in self._free_codes:
            self._note(command, user, address, (), ())
            return user, ()
        rule = RULES.get(code)
        if rule is None:
            self._denial(command, user, address, UNCLEAR, "no rule for the request code")
            raise UnsupportedRequestError(f" request type {code} not supported")
        if user is None:
            if self._rights(rule, command, None, address) or not rule.needs:
                raise self._denial(command, None, address, UNCLEAR, "no user")
            return None, ()
        judged = self._judge(rule, command, user, address)
        if judged.refusal is not None:
            raise self._refused(judged.refusal)
        self._note(command, user, address, judged.rights, judged.verdicts)
        return user, judged.rights

    def _judge(self, rule: Rule, command: RemotingCommand, user: User, address: str) -> _Judged:
        """The decision on a request; remembered where its header alone says what it is about."""
        code = command.code
        if rule.fields is None:
            return self._judged_anew(code, self._rights(rule, command, user, address), user, address)
        fields = command.ext_fields or {}
        values = tuple(map(fields.get, rule.fields))
        key = (user.username, code, values, address)
        judged = self._judgements.get(key)
        if judged is None:
            judged = self._judged_anew(code, self._rights(rule, command, user, address), user, address)
            if sum(len(value) for value in values if value) <= REMEMBERED_CHARACTERS_MAX:
                self._remember(self._judgements, key, judged)
        return judged

    def _judged_anew(self, code: int, rights: tuple[Right, ...], user: User, address: str) -> _Judged:
        verdicts = tuple(self._verdict(user, right, address) for right in rights)
        for right, verdict in zip(rights, verdicts, strict=True):
            if not verdict.is_allowed:
                refusal = _refusal(self._audit, code, user, right, verdict, address)
                return _Judged(rights=rights, verdicts=verdicts, refusal=refusal)
        return _Judged(rights=rights, verdicts=verdicts)

    def _rights(self, rule: Rule, command: RemotingCommand, user: User | None, address: str) -> tuple[Right, ...]:
        try:
            return rule.rights(command, self._cluster_name)
        except InvalidRequestError as error:
            raise self._denial(command, user, address, UNCLEAR, "the body cannot be read") from error

    def check_right(self, command: RemotingCommand, address: str, right: Right) -> None:
        """Pass if the user of a request has one more right, which its rule cannot tell from its fields.

        Raises:
            PermissionDeniedError: It has not.
        """
        if not self._is_authorizing or command.code in self._free_codes:
            return
        user = self.proven_user(command)
        if user is None:
            raise self._denial(command, None, address, UNCLEAR, "no user")
        judged = self._judged_anew(command.code, (right,), user, address)
        if judged.refusal is not None:
            raise self._refused(judged.refusal)

    def proven_user(self, command: RemotingCommand) -> User | None:
        """The user whose signature the request has; None without a valid one."""
        return self._find_signer(command.ext_fields or {}, command.body, command.version)[0]

    def is_super(self, command: RemotingCommand) -> bool:
        """Whether a request has the valid signature of a super user."""
        user = self.proven_user(command)
        return user is not None and user.is_super

    def check_super(self, command: RemotingCommand, address: str) -> None:
        """Pass if a request is a super user's, whatever rights another user has.

        Raises:
            PermissionDeniedError: It is not.
        """
        user = self.proven_user(command)
        if user is None or not user.is_super:
            raise self._denial(command, user, address, NO_SUPER_USER, NO_SUPER_USER)

    def is_still_allowed(self, user: User, rights: tuple[Right, ...], address: str) -> bool:
        """Whether what was allowed to a user with this key is allowed now."""
        now = self.snapshot.users.get(user.username)
        if now is None or now.status is UserStatus.DISABLE or now.password != user.password:
            return False
        return not self._is_authorizing or all(self._verdict(now, right, address).is_allowed for right in rights)

    def may(self, username: str, right: Right, address: str) -> bool:
        """Whether a user who has proved an earlier request may do something now."""
        user = self.snapshot.users.get(username)
        return user is not None and user.status is not UserStatus.DISABLE and self._is_allowed(user, (right,), address)

    def explain(self, username: str, right: Right, address: str) -> Verdict:
        """The decision on a right, for people.

        Raises:
            PermissionDeniedError: There is no such user.
        """
        user = self.snapshot.users.get(username)
        if user is None:
            raise PermissionDeniedError(f"User:{username} is not found.")
        if user.status is UserStatus.DISABLE:
            return Verdict(is_allowed=False, reason=f"User:{username} is disabled.")
        return self._verdict(user, right, address)

    # -- the message path ------------------------------------------------------------------------------------------

    @property
    def may_judge_sends(self) -> bool:
        """Whether the message path may decide at all: not while allowed accesses are to be written down."""
        return not self._audit.wants_accesses

    @property
    def decided_sends(self) -> Mapping[SendKey, SendDecision]:
        """What is remembered of sends; emptied at each change. The key of a decision says whether a send is that of the
        user; its verdict counts then."""
        return self._sends

    def judge_send(
        self, code: int, name: str, signature: str, content: bytes, topic: str, address: bytes
    ) -> SendVerdict:
        """The decision on a send that is not among `decided_sends`; nothing is written to the audit log. None: `check`
        says what is wrong, if anything is. `content`: what is signed; `address`: four bytes of IPv4."""
        user, key = self._keys.get(name, _NO_USER_KEY)
        if not self._has_signed(key, content, signature) or user is None or topic.startswith(RETRY_PREFIX):
            return None
        verdict = self._decide_send(code, user, topic, str(IPv4Address(address)))
        if len(topic) <= REMEMBERED_CHARACTERS_MAX:
            self._remember(self._sends, (name, topic, address, code), SendDecision(key, verdict))
        return verdict

    def _decide_send(self, code: int, user: User, topic: str, address: str) -> SendVerdict:
        if user.status is UserStatus.DISABLE:
            return None
        if not self._is_authorizing or code in self._free_codes:
            return user.username
        if not topic.strip():
            return None
        judged = self._judged_anew(code, send_rights(topic), user, address)
        return user.username if judged.refusal is None else judged.refusal

    def allows_pull(self, fields: Mapping[str, str], version: int, topic: str, group: str, address: str) -> User | None:
        """The user of a pull that is allowed beyond doubt; else None, as for sends."""
        user = self._find_signer(fields, b"", version)[0]
        if user is None or topic.startswith(RETRY_PREFIX):
            return None
        key = (user.username, topic, group, address)
        is_allowed = self._pulls.get(key)
        if is_allowed is None:
            is_allowed = self._is_allowed(user, pull_rights(topic, group), address)
            if len(topic) + len(group) <= REMEMBERED_CHARACTERS_MAX:
                self._remember(self._pulls, key, is_allowed)
        return user if is_allowed and not self._audit.wants_accesses else None

    def _is_allowed(self, user: User, rights: tuple[Right, ...], address: str) -> bool:
        return not self._is_authorizing or all(self._verdict(user, right, address).is_allowed for right in rights)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _authenticate(self, command: RemotingCommand, address: str) -> User | None:
        fields = command.ext_fields or {}
        user, answer, reason = self._find_signer(fields, command.body, command.version)
        if user is not None or command.code in self._unsigned_codes:
            return user
        raise self._refused(self._unproved(command.code, fields.get(ACCESS_KEY), address, answer, reason))

    def refuse_signature(
        self, code: int, fields: Mapping[str, str], body: bytes, version: int, address: str
    ) -> Refusal | None:
        """The refusal of a request whose signature is not that of an enabled user; None if it is. It is not noted."""
        user, answer, reason = self._find_signer(fields, body, version)
        if user is not None or code in self._unsigned_codes:
            return None
        return self._unproved(code, fields.get(ACCESS_KEY), address, answer, reason)

    def _unproved(self, code: int, claimed: str | None, address: str, answer: str, reason: str) -> Refusal:
        key = (code, claimed, address, reason)
        refusal = self._refusals.get(key)
        if refusal is None:
            rest = denial_rest(AUTHENTICATION, user=claimed, address=address, request=_name(code), reason=reason)
            refusal = Refusal(self._audit, AUTHENTICATION, answer, rest)
            if len(claimed or "") <= REMEMBERED_CHARACTERS_MAX:
                self._remember(self._refusals, key, refusal, most=REFUSALS_MAX)
        return refusal

    def _find_signer(
        self, fields: Mapping[str, str], body: bytes | memoryview, version: int
    ) -> tuple[User | None, str, str]:
        """The user that signed; or None, the answer to the client, and the reason for the audit log."""
        name = fields.get(ACCESS_KEY)
        if not name:
            return None, NO_USER, NO_USER
        user, key = self._keys.get(name, _NO_USER_KEY)
        signature = fields.get(SIGNATURE) or ""
        is_signed = self._has_signed(key, signed_content(fields, body, version=version), signature)
        if not is_signed and SECURITY_TOKEN in fields:
            is_signed = key.has_signed(signed_content_without_token(fields, body, version=version), signature)
        if user is None:
            return None, BAD_SIGNATURE, f"User:{name} is not found."
        if not is_signed:
            return None, BAD_SIGNATURE, BAD_SIGNATURE
        if user.status is UserStatus.DISABLE:
            text = f"User:{name} is disabled."
            return None, text, text
        return user, "", ""

    def remember_unsigned(self, key: SigningKey, content: bytes, signature: str) -> None:
        """A key has not signed this; asked once more at once, it is not tried again."""
        self._last_signed = (key, content, signature), False

    def _has_signed(self, key: SigningKey, content: bytes, signature: str) -> bool:
        """Whether a signature is that of a content. The last result is kept: a send that the message path does not
        allow is checked once more, at once."""
        asked = (key, content, signature)
        if self._last_signed is None or self._last_signed[0] != asked:
            self._last_signed = asked, key.has_signed(content, signature)
        return self._last_signed[1]

    def _verdict(self, user: User, right: Right, address: str) -> Verdict:
        key = (user.username, right, address)
        verdict = self._verdicts.get(key)
        if verdict is None:
            acl = self.snapshot.acls.get(user.subject)
            verdict = decide(user, acl, resource=right.resource, actions=right.actions, source_address=address)
            if len(right.resource.name or "") <= REMEMBERED_CHARACTERS_MAX:
                self._remember(self._verdicts, key, verdict)
        return verdict

    @staticmethod
    def _remember(memory: dict[_K, _V], key: _K, value: _V, most: int = DECISIONS_MAX) -> _V:
        if len(memory) >= most:
            memory.clear()
        memory[key] = value
        return value

    def _forget(self) -> None:
        self._keys = {name: (user, SigningKey(user.password.encode())) for name, user in self.snapshot.users.items()}
        self._last_signed = None
        self._verdicts.clear()
        self._judgements.clear()
        self._refusals.clear()
        self._sends.clear()
        self._pulls.clear()

    def _refused(self, refusal: Refusal) -> PermissionDeniedError:
        refusal.note()
        return refusal.error()

    def _denial(
        self,
        command: RemotingCommand,
        user: User | None,
        address: str,
        answer: str,
        reason: str,
    ) -> PermissionDeniedError:
        name = user.username if user is not None else None
        self._audit.denied(
            AUTHORIZATION,
            denial_rest(AUTHORIZATION, user=name, address=address, request=_name(command.code), reason=reason),
        )
        return PermissionDeniedError(answer)

    def _note(
        self,
        command: RemotingCommand,
        user: User | None,
        address: str,
        rights: tuple[Right, ...],
        verdicts: tuple[Verdict, ...],
    ) -> None:
        """Write a change, or on request an access, to the audit log."""
        is_change = command.code in CHANGES
        if not is_change and not self._audit.wants_accesses:
            return
        name = user.username if user is not None else None
        request = _name(command.code)
        if is_change:
            about = _changed(command) or ",".join(right.resource.key for right in self._named(command, rights)) or None
            entry = ",".join(dict.fromkeys(verdict.maker for verdict in verdicts)) or None
            self._audit.changed(user=name, address=address, request=request, resource=about, entry=entry)
            return
        if not rights:
            self._audit.accessed(user=name, address=address, request=request, action=None, resource=None, entry=None)
        for right, verdict in zip(rights, verdicts, strict=True):
            self._audit.accessed(
                user=name,
                address=address,
                request=request,
                action=_actions(right),
                resource=right.resource.key,
                entry=verdict.maker,
            )

    def _named(self, command: RemotingCommand, rights: tuple[Right, ...]) -> tuple[Right, ...]:
        """What a change is about: `rights`, or where none were needed those that its rule has."""
        rule = RULES.get(command.code)
        if rights or rule is None:
            return rights
        try:
            return rule.rights(command, self._cluster_name)
        except InvalidRequestError:
            return ()


def _changed(command: RemotingCommand) -> str | None:
    """The subject of a change of users or policies, as the request is served: that of the body counts first. None for
    other requests, whatever fields they have."""
    fields = command.ext_fields or {}
    if command.code in USER_CHANGES:
        username = fields.get("username")
        return subject_of(username) if username else None
    if command.code not in POLICY_CHANGES:
        return None
    subject = None
    if command.code != RequestCode.AUTH_DELETE_ACL and command.body:
        with contextlib.suppress(InvalidRequestError):  # then nothing is changed
            subject = AclInfo.decode(command.body).subject
    return subject or fields.get("subject")


def _refusal(audit: AuditLog, code: int, user: User, right: Right, verdict: Verdict, address: str) -> Refusal:
    resource = right.resource
    return Refusal(
        audit,
        AUTHORIZATION,
        denial_text(subject=user.subject, resource=resource, source_address=address, reason=verdict.reason),
        denial_rest(
            AUTHORIZATION,
            user=user.username,
            address=address,
            request=_name(code),
            action=_actions(right),
            resource=resource.key,
            reason=verdict.reason,
            entry=verdict.maker if verdict.entry is not None else None,
        ),
    )


def send_rights(topic: str) -> tuple[Right, ...]:
    """What a send to an ordinary topic needs, as the table says."""
    return (Right(Resource(ResourceType.TOPIC, topic, ResourcePattern.LITERAL), (PUB,)),)


def pull_rights(topic: str, group: str) -> tuple[Right, ...]:
    """What a pull of an ordinary topic needs, as the table says."""
    return (
        Right(Resource(ResourceType.TOPIC, topic, ResourcePattern.LITERAL), (SUB,)),
        Right(Resource(ResourceType.GROUP, group.removeprefix(RETRY_PREFIX), ResourcePattern.LITERAL), (SUB,)),
    )


def _actions(right: Right) -> str:
    return ",".join(action.title for action in right.actions)


_NAMES = {int(code): code.name for codes in (RequestCode, PrivateRequestCode) for code in codes}


def _name(code: int) -> str:
    return _NAMES.get(code) or str(code)
