"""Where an S3 client takes its credentials from: the library's own chain, or a chosen part of it in a chosen order.

    keys           those of the options
    environment    AWS_ACCESS_KEY_ID and so on
    profile        AWS_PROFILE, or the profile of the options: keys, roles, sign-on and processes of the AWS files
    web-identity   AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, as Kubernetes sets them
    container      the role of an ECS or EKS container
    instance       the role of an EC2 machine
    anonymous      none: requests are not signed

The first that has something counts, once, when the store is opened; a source that gives credentials for a time renews
them. With no choice (None) it is keys, and without keys the library's chain, which is all of these but the last.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiobotocore.credentials import AioCredentialResolver, AioCredentials, AioEnvProvider, create_credential_resolver
from aiobotocore.session import AioSession, get_session
from botocore import UNSIGNED

from thermocline.tiered.s3.s3_options import S3Options

ENVIRONMENT_METHOD = "env"
METHODS = {
    "environment": (ENVIRONMENT_METHOD,),
    "profile": ("assume-role", "sso", "shared-credentials-file", "login", "custom-process", "config-file"),
    "web-identity": ("assume-role-with-web-identity",),
    "container": ("container-role",),
    "instance": ("iam-role",),
}
"""botocore's names of its providers."""


class _Provider(Protocol):
    METHOD: str

    async def load(self) -> AioCredentials | None: ...


class _Keys:
    """The keys of the options, as one of the library's providers."""

    METHOD = "keys"

    def __init__(self, options: S3Options) -> None:
        self._options = options

    async def load(self) -> AioCredentials | None:
        options = self._options
        if options.access_key is None or options.secret_key is None:
            return None
        return AioCredentials(options.access_key, options.secret_key, options.session_token, method=self.METHOD)


@functools.cache
def shared_session() -> AioSession:
    """The library's session: it keeps the service model, which takes half a second to load."""
    return get_session()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """The session to make a client of, the arguments with which it does, and those of its configuration."""

    session: AioSession
    arguments: dict[str, Any] = field(default_factory=dict, repr=False)
    config: dict[str, Any] = field(default_factory=dict)


async def credentials_for(options: S3Options) -> ClientCredentials:
    """What the options choose.

    Raises:
        botocore.exceptions.BotoCoreError: A source that was chosen is there, and cannot be used.
    """
    if options.credentials is None:
        keys = {
            "aws_access_key_id": options.access_key,
            "aws_secret_access_key": options.secret_key,
            "aws_session_token": options.session_token,
        }
        return ClientCredentials(session=shared_session(), arguments=keys)
    session = AioSession(profile=options.profile)
    if options.credentials_file is not None:
        session.set_config_variable("credentials_file", options.credentials_file)
    session.register_component("data_loader", shared_session().get_component("data_loader"))
    chosen = _chosen(session, options)
    session.register_component("credential_provider", AioCredentialResolver(chosen))
    if "anonymous" in options.credentials and await session.get_credentials() is None:
        return ClientCredentials(session=session, config={"signature_version": UNSIGNED})
    return ClientCredentials(session=session)


def _chosen(session: AioSession, options: S3Options) -> list[_Provider]:
    """The providers in the order of the options, those before `anonymous`."""
    assert options.credentials is not None
    providers: dict[str, _Provider] = {each.METHOD: each for each in create_credential_resolver(session).providers}
    # With a profile the library leaves the environment out of its chain; here the options name it.
    providers[ENVIRONMENT_METHOD] = AioEnvProvider()
    chosen: list[_Provider] = []
    for kind in options.credentials:
        if kind == "anonymous":
            break
        if kind == "keys":
            chosen.append(_Keys(options))
        else:
            chosen += [providers[method] for method in METHODS[kind] if method in providers]
    return chosen
