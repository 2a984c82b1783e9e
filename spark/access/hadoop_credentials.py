"""Translates `fs.s3a.aws.credentials.provider` into the credential sources of `s3_credentials.py`.

Its value is a list of Java classes, tried in their order. Classes of s3a and of the AWS SDK whose source every AWS
client can read are translated; those of the SDK's first version as Hadoop replaces them. A class that only a JVM can
run is refused: another source in its place would be another identity.
"""

from __future__ import annotations

import re

from thermocline.remoting.errors import InvalidRequestError

SESSION_KEYS = "session-keys"
"""Keys with a session token; without the token the provider has nothing to give. `keys` are those without one."""
_HADOOP, _SDK_1, _SDK_2 = "org.apache.hadoop.fs.s3a.", "com.amazonaws.auth.", "software.amazon.awssdk.auth.credentials."
_MACHINE = ("container", "instance")
_DEFAULT_CHAIN = ("environment", "web-identity", "profile", *_MACHINE)
HADOOP_PROFILE_PROVIDER = f"{_HADOOP}auth.ProfileAWSCredentialsProvider"
"""The one that heeds `fs.s3a.auth.profile.name` and `fs.s3a.auth.profile.file`."""
PROVIDERS: dict[str, tuple[str, ...]] = {
    f"{_HADOOP}TemporaryAWSCredentialsProvider": (SESSION_KEYS,),
    f"{_HADOOP}SimpleAWSCredentialsProvider": ("keys",),
    f"{_HADOOP}AnonymousAWSCredentialsProvider": ("anonymous",),
    f"{_HADOOP}auth.IAMInstanceCredentialsProvider": _MACHINE,
    HADOOP_PROFILE_PROVIDER: ("profile",),
    f"{_SDK_1}AnonymousAWSCredentials": ("anonymous",),
    f"{_SDK_1}EnvironmentVariableCredentialsProvider": ("environment",),
    f"{_SDK_1}EC2ContainerCredentialsProviderWrapper": _MACHINE,
    f"{_SDK_1}InstanceProfileCredentialsProvider": _MACHINE,
    f"{_SDK_1}WebIdentityTokenCredentialsProvider": ("web-identity",),
    f"{_SDK_1}DefaultAWSCredentialsProviderChain": _DEFAULT_CHAIN,
    f"{_SDK_1}profile.ProfileCredentialsProvider": ("profile",),
    f"{_SDK_2}AnonymousCredentialsProvider": ("anonymous",),
    f"{_SDK_2}EnvironmentVariableCredentialsProvider": ("environment",),
    f"{_SDK_2}ContainerCredentialsProvider": ("container",),
    f"{_SDK_2}InstanceProfileCredentialsProvider": ("instance",),
    f"{_SDK_2}ProfileCredentialsProvider": ("profile",),
    f"{_SDK_2}WebIdentityTokenFileCredentialsProvider": ("web-identity",),
    f"{_SDK_2}DefaultCredentialsProvider": _DEFAULT_CHAIN,
    "software.amazon.awssdk.services.sts.auth.StsWebIdentityTokenFileCredentialsProvider": ("web-identity",),
}


def kinds_of_providers(value: str) -> tuple[str, ...]:
    """The sources that a list of provider classes names, in its order, each once.

    Raises:
        InvalidRequestError: There is a class whose source is not known.
    """
    kinds: list[str] = []
    for name in class_names(value):
        if name not in PROVIDERS:
            raise InvalidRequestError(
                "this credentials provider runs in a JVM only: say s3.credentials beside it, or read_cold with "
                'engine="s3a"',
                option="fs.s3a.aws.credentials.provider",
                provider=name,
            )
        kinds += PROVIDERS[name]
    return tuple(dict.fromkeys(kinds))


def class_names(value: str) -> list[str]:
    """The names in a Hadoop list, parted by commas and white space."""
    return [name for name in re.split(r"[,\s]+", value) if name]
