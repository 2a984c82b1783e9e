"""Readers: may a user who gives its name and key themselves, as over HTTP, read what an operator reads?

The key is compared with the user's in a time that tells nothing of it; a name that does not exist takes the same work.
Denials are in the audit log, accesses on request, as those of requests are.
Owner: one event loop. No I/O.
"""

from __future__ import annotations

from thermocline.auth.access_control import NO_USER, AccessControl
from thermocline.auth.audit import denial_rest
from thermocline.auth.rights import Right
from thermocline.auth.users import UserStatus
from thermocline.remoting.request_signature import SigningKey

__all__ = ["is_reader"]

WRONG_KEY = "the name or the key is wrong"
_KEY_OF_NO_USER = SigningKey(b"the key of no user")


def is_reader(
    control: AccessControl, *, username: str, key: str, right: Right, address: str, request: str, authorizes: bool
) -> bool:
    """Whether the user, which is "" when none is given, has the right. `request` names what is read, for the audit log.

    `authorizes`: whether rights count; without authorization every user may.
    """
    reason = _unproven(control, username, key)
    stage, entry = "authentication", None
    if not reason and authorizes:
        verdict = control.explain(username, right, address)
        stage, entry = "authorization", verdict.maker
        reason = "" if verdict.is_allowed else verdict.reason
    if reason:
        rest = denial_rest(stage, user=username or None, address=address, request=request, reason=reason, entry=entry)
        control.audit.denied(stage, rest)
    elif control.audit.wants_accesses:
        control.audit.accessed(
            user=username,
            address=address,
            request=request,
            action=",".join(action.title for action in right.actions),
            resource=right.resource.key,
            entry=entry,
        )
    return not reason


def _unproven(control: AccessControl, username: str, key: str) -> str:
    """Why name and key prove no user; "" when they do."""
    if not username:
        return NO_USER
    user = control.snapshot.users.get(username)
    kept = _KEY_OF_NO_USER if user is None else SigningKey(user.password.encode())
    # Two keys are equal when they sign alike: the comparison is that of signatures.
    if not kept.has_signed(b"", SigningKey(key.encode()).signature(b"").decode()) or user is None:
        return WRONG_KEY
    return f"User:{username} is disabled." if user.status is UserStatus.DISABLE else ""
