"""Validation of new users and policies; errors have RocketMQ's words.

Source: auth/authentication/manager/AuthenticationMetadataManagerImpl.java,
auth/authorization/manager/AuthorizationMetadataManagerImpl.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Iterable

from thermocline.auth.actions import Action
from thermocline.auth.policies import Policy
from thermocline.auth.source_addresses import is_valid_source
from thermocline.auth.users import User, UserStatus, UserType, subject_of, username_of
from thermocline.remoting.errors import InvalidParameterError, PermissionDeniedError

TEXT_CHARACTERS_MAX = 1_024
"""Of a user's name, its password, a resource, an address: those that a request brings."""


def check_new_user(username: str, password: str | None, kind: UserType | None, status: UserStatus | None) -> User:
    """A user to be made.

    Raises:
        PermissionDeniedError: Name or password is blank.
    """
    if not username.strip():
        raise PermissionDeniedError("username can not be blank")
    if password is None or not password.strip():
        raise PermissionDeniedError("password can not be blank")
    return User(username=username, password=password, type=kind or UserType.NORMAL, status=status or UserStatus.ENABLE)


def check_lengths(**texts: str) -> None:
    """Refuse texts that are too long to be kept, by what they are.

    Raises:
        InvalidParameterError: One is; it is not shown, as it may be a password.
    """
    for name, text in texts.items():
        if len(text) > TEXT_CHARACTERS_MAX:
            raise InvalidParameterError(f"the {name} is too long", characters=len(text), most=TEXT_CHARACTERS_MAX)


def check_policies(subject: str | None, policies: Iterable[Policy]) -> str:
    """The subject of policies that are valid, as it is kept.

    Raises:
        PermissionDeniedError: Something is missing, or an address is none.
    """
    username = username_of(subject)
    if username is None:
        raise PermissionDeniedError("The subject type is null.")
    found = tuple(policies)
    if not found:
        raise PermissionDeniedError("The policies is empty.")
    for policy in found:
        if not policy.entries:
            raise PermissionDeniedError("The policy entries is empty.")
        for entry in policy.entries:
            if Action.ANY in entry.actions:
                raise PermissionDeniedError("The actions can not be Any.")
            for source in entry.sources:
                if not source.strip():
                    raise PermissionDeniedError("The source ip is empty.")
                if not is_valid_source(source):
                    raise PermissionDeniedError("The source ip is invalid.")
    return subject_of(username)
