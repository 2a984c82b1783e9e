"""AccessCheck: is a request of a proxy's client allowed? Decided as a broker decides (auth/access_control.py).

    signature of the user's key over the request     else refused, unless the request is on authenticationWhitelist
    every right that the request needs               else refused, unless it is on authorizationWhitelist

Rules
  - Users and policies are the brokers': a change counts within the time that the directory states.
  - An unknown user gets the answer of a wrong signature; the audit log has the reason.
  - A request that proves no user, and may do without, is served only if it needs no right.
  - Where no broker can be asked, the request fails; it is never allowed.
  - A request that waits is checked once more when it is answered: `check_again`.
Bound: DECISIONS_MAX remembered decisions; then all are forgotten. Belongs to one event loop.
Source: auth/authentication/chain/DefaultAuthenticationHandler.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from thermocline.auth.access_control import BAD_SIGNATURE, NO_USER, REMEMBERED_CHARACTERS_MAX, UNCLEAR
from thermocline.auth.audit import AUTHENTICATION, AUTHORIZATION, AuditLog, denial_rest
from thermocline.auth.authorization import Verdict, decide, denial_text
from thermocline.auth.rights import Right
from thermocline.auth.users import User, UserStatus
from thermocline.proxy.access.account import Account
from thermocline.proxy.access.proof import Proof, RequestName
from thermocline.proxy.access.user_directory import UserDirectory
from thermocline.remoting.errors import PermissionDeniedError
from thermocline.remoting.request_signature import SigningKey

__all__ = ["AccessCheck", "AccessRules", "Permit"]

DECISIONS_MAX = 10_000
_KEY_OF_NO_USER = SigningKey(b"the key of no user")


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """`authorizes`: whether users need rights. The white lists hold `RequestName.listed`: of requests that need no
    signature, and of requests that need no right."""

    authorizes: bool = True
    unsigned: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()


class Permit(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was allowed. `user` is None where it needed no user."""

    user: User | None
    rights: tuple[Right, ...]
    request: RequestName
    address: str

    @property
    def username(self) -> str:
        """The user's name; "" without one."""
        return "" if self.user is None else self.user.username


class AccessCheck:
    """See the module."""

    def __init__(self, directory: UserDirectory, rules: AccessRules, *, audit: AuditLog) -> None:
        self._directory = directory
        self._rules = rules
        self.audit = audit
        self._verdicts: dict[tuple[str, Right, str], tuple[Account, Verdict]] = {}

    async def check(self, request: RequestName, proof: Proof, rights: Iterable[Right], address: str) -> Permit:
        """Pass if the request is allowed. `address`: the client's, without its port.

        Raises:
            PermissionDeniedError: It is not; the sentence is for the client.
            BrokerBusyError: This address names too many users that do not exist.
            UnavailableError: No broker could be asked.
        """
        needed = tuple(rights)
        account = await self._authenticate(request, proof, address)
        permit = Permit(user=None if account is None else account.user, rights=needed, request=request, address=address)
        self._authorize(permit, account)
        return permit

    async def check_again(self, permit: Permit) -> None:
        """Pass if what was allowed is allowed still, to a user whose key is the same.

        Raises:
            PermissionDeniedError: It is not.
            UnavailableError: No broker could be asked.
        """
        if permit.user is None:
            return
        name = permit.user.username
        account = await self._directory.find(name, permit.address)
        if account is None:
            raise self._unproven(permit.request, name, permit.address, BAD_SIGNATURE, _not_found(name))
        if account.user.password != permit.user.password:
            raise self._unproven(permit.request, name, permit.address, BAD_SIGNATURE, "the key was changed.")
        self._check_enabled(account, permit.request, permit.address)
        self._authorize(permit, account, is_again=True)

    def start(self) -> None:
        """Follow changes of users and policies."""
        self._directory.start()

    async def close(self) -> None:
        """Ask no broker any more. Idempotent."""
        await self._directory.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _authenticate(self, request: RequestName, proof: Proof, address: str) -> Account | None:
        """The user that signed; None where none did, and none has to.

        Raises:
            PermissionDeniedError: None did.
        """
        may_be_unsigned = request.listed in self._rules.unsigned
        problem = proof.problem or ("" if proof.username else NO_USER)
        if problem:
            if may_be_unsigned:
                return None
            raise self._unproven(request, proof.username, address, problem, problem)
        account = await self._directory.find(proof.username, address)
        key = _KEY_OF_NO_USER if account is None else account.key
        is_signed = key.has_signed(proof.content, proof.signature)
        if account is not None and is_signed:
            if may_be_unsigned and account.user.status is UserStatus.DISABLE:
                return None
            self._check_enabled(account, request, address)
            return account
        if may_be_unsigned:
            return None
        reason = BAD_SIGNATURE if account is not None else _not_found(proof.username)
        raise self._unproven(request, proof.username, address, BAD_SIGNATURE, reason)

    def _check_enabled(self, account: Account, request: RequestName, address: str) -> None:
        if account.user.status is UserStatus.DISABLE:
            text = f"User:{account.user.username} is disabled."
            raise self._unproven(request, account.user.username, address, text, text)

    def _authorize(self, permit: Permit, account: Account | None, *, is_again: bool = False) -> None:
        if not self._rules.authorizes or permit.request.listed in self._rules.free:
            if not is_again:
                self._note(permit, None, None)
            return
        if account is None:
            if permit.rights:
                rest = denial_rest(
                    AUTHORIZATION, user=None, address=permit.address, request=permit.request.shown, reason="no user"
                )
                self.audit.denied(AUTHORIZATION, rest)
                raise PermissionDeniedError(UNCLEAR)
            return
        for right in permit.rights:
            verdict = self._verdict(account, right, permit.address)
            if not verdict.is_allowed:
                raise self._denied(permit, account.user, right, verdict)
            if not is_again:
                self._note(permit, right, verdict)
        if not permit.rights and not is_again:
            self._note(permit, None, None)

    def _verdict(self, account: Account, right: Right, address: str) -> Verdict:
        key = (account.user.username, right, address)
        remembered = self._verdicts.get(key)
        if remembered is not None and remembered[0] is account:
            return remembered[1]
        verdict = decide(
            account.user, account.acl, resource=right.resource, actions=right.actions, source_address=address
        )
        if len(right.resource.name or "") <= REMEMBERED_CHARACTERS_MAX:
            if len(self._verdicts) >= DECISIONS_MAX:
                self._verdicts.clear()
            self._verdicts[key] = account, verdict
        return verdict

    def _unproven(
        self, request: RequestName, username: str, address: str, answer: str, reason: str
    ) -> PermissionDeniedError:
        rest = denial_rest(AUTHENTICATION, user=username or None, address=address, request=request.shown, reason=reason)
        self.audit.denied(AUTHENTICATION, rest)
        return PermissionDeniedError(answer)

    def _denied(self, permit: Permit, user: User, right: Right, verdict: Verdict) -> PermissionDeniedError:
        rest = denial_rest(
            AUTHORIZATION,
            user=user.username,
            address=permit.address,
            request=permit.request.shown,
            action=_actions(right),
            resource=right.resource.key,
            reason=verdict.reason,
            entry=verdict.maker if verdict.entry is not None else None,
        )
        self.audit.denied(AUTHORIZATION, rest)
        text = denial_text(
            subject=user.subject, resource=right.resource, source_address=permit.address, reason=verdict.reason
        )
        return PermissionDeniedError(text)

    def _note(self, permit: Permit, right: Right | None, verdict: Verdict | None) -> None:
        """Write an access to the audit log, where that is wanted."""
        if self.audit.wants_accesses:
            self.audit.accessed(
                user=permit.username or None,
                address=permit.address,
                request=permit.request.shown,
                action=None if right is None else _actions(right),
                resource=None if right is None else right.resource.key,
                entry=None if verdict is None else verdict.maker,
            )


def _actions(right: Right) -> str:
    return ",".join(action.title for action in right.actions)


def _not_found(username: str) -> str:
    return f"User:{username} is not found."
