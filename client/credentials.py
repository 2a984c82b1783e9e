"""Credentials: where the keys come from by which a client signs its requests.

    Credentials(access_key=..., secret_key=...)      given by the program
    without any: environment_credentials()           THERMOCLINE_ACCESS_KEY, THERMOCLINE_SECRET_KEY and, if wanted,
                                                     THERMOCLINE_SECURITY_TOKEN; or THERMOCLINE_CREDENTIALS_FILE
    credentials_from_file(path)                      a file of lines `accessKey: ...`, `secretKey: ...`, as RocketMQ's
                                                     conf/tools.yml; or of JSON

Keys are never in `repr`, errors or logs. A file that others may read is used with a warning.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.request_signature import Credentials

__all__ = ["Credentials", "credentials_from_environment", "credentials_from_file", "environment_credentials"]

logger = logging.getLogger(__name__)

ACCESS_KEY, SECRET_KEY, SECURITY_TOKEN = "accessKey", "secretKey", "securityToken"
ENVIRONMENT = {
    ACCESS_KEY: "THERMOCLINE_ACCESS_KEY",
    SECRET_KEY: "THERMOCLINE_SECRET_KEY",
    SECURITY_TOKEN: "THERMOCLINE_SECURITY_TOKEN",
}
ENVIRONMENT_FILE = "THERMOCLINE_CREDENTIALS_FILE"
OTHERS = 0o077


def credentials_from_environment(environment: Mapping[str, str]) -> Credentials | None:
    """The credentials that variables give; None without any of them.

    Raises:
        InvalidRequestError: One of the two keys is missing, or the file cannot be read.
    """
    values = {name: environment[variable] for name, variable in ENVIRONMENT.items() if environment.get(variable)}
    if values:
        return _credentials(values, "the environment")
    path = environment.get(ENVIRONMENT_FILE)
    return credentials_from_file(path) if path else None


def environment_credentials() -> Credentials | None:
    """The credentials in the environment of this process; what a client has that was given none."""
    return credentials_from_environment(os.environ)


def credentials_from_file(path: str | Path) -> Credentials:
    """The credentials in a file.

    Raises:
        InvalidRequestError: It cannot be read, or one of the two keys is missing.
    """
    file = Path(path)
    try:
        if file.stat().st_mode & OTHERS and stat.S_ISREG(file.stat().st_mode):
            logger.warning("keys can be read by other users of this machine: chmod 600 %s", path)
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidRequestError(f"a file of keys cannot be read: {error.strerror}", path=str(path)) from error
    except UnicodeDecodeError:
        raise InvalidRequestError("a file of keys is no text", path=str(path)) from None
    return _credentials(_parse(text, str(path)), str(path))


def _parse(text: str, path: str) -> Mapping[str, str]:
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except msgspec.MsgspecError:
            raise InvalidRequestError("a file of keys is no JSON object of texts", path=path) from None
    values = {}
    for line in text.splitlines():
        name, separator, value = line.partition(":" if ":" in line.partition("=")[0] else "=")
        if separator and not line.lstrip().startswith("#"):
            values[name.strip()] = value.strip().strip("\"'")
    return values


def _credentials(values: Mapping[str, str], place: str) -> Credentials:
    access_key, secret_key = values.get(ACCESS_KEY), values.get(SECRET_KEY)
    if not access_key or not secret_key:
        missing = ACCESS_KEY if not access_key else SECRET_KEY
        raise InvalidRequestError(f"{missing} is missing", place=place)
    return Credentials(access_key=access_key, secret_key=secret_key, security_token=values.get(SECURITY_TOKEN) or "")
