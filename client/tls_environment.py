"""TLS options of the environment: what a client has that was given none, as with its keys (`credentials.py`).

THERMOCLINE_CLIENT_TLS                     true: connections are TLS
THERMOCLINE_CLIENT_TLS_CA                  file with the authorities that are trusted; else the system's
THERMOCLINE_CLIENT_TLS_CERT, _KEY          files with the client's certificate and its key
THERMOCLINE_CLIENT_TLS_KEY_PASSWORD        the key's password
THERMOCLINE_CLIENT_TLS_KEY_PASSWORD_FILE   a file with it
THERMOCLINE_CLIENT_TLS_SERVER_NAME         the name that certificates of servers must have
THERMOCLINE_CLIENT_TLS_VERIFY              false: certificates of servers are not checked
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.tls import TlsOptions

__all__ = ["TLS_VARIABLE", "environment_tls", "tls_of_environment"]

TLS_VARIABLE = "THERMOCLINE_CLIENT_TLS"
_DETAILS = ("CA", "CERT", "KEY", "KEY_PASSWORD", "KEY_PASSWORD_FILE", "SERVER_NAME", "VERIFY")


def tls_of_environment(environment: Mapping[str, str]) -> TlsOptions | None:
    """The options that the variables say; None: without TLS. An empty variable counts as none.

    Raises:
        InvalidParameterError: A value is none, variables contradict each other, or the password cannot be read.
    """
    details = {
        name: environment[f"{TLS_VARIABLE}_{name}"] for name in _DETAILS if environment.get(f"{TLS_VARIABLE}_{name}")
    }
    if not _is_true(environment, TLS_VARIABLE, default="false"):
        if details:
            raise InvalidParameterError(f"{TLS_VARIABLE}_{min(details)} is set, and {TLS_VARIABLE}=true is not")
        return None
    if "KEY_PASSWORD" in details and "KEY_PASSWORD_FILE" in details:
        raise InvalidParameterError("the password of the key is given twice: by itself, and by a file")
    return TlsOptions(
        ca_file=details.get("CA"),
        cert_file=details.get("CERT"),
        key_file=details.get("KEY"),
        key_password=details.get("KEY_PASSWORD") or _read_password(details.get("KEY_PASSWORD_FILE")),
        server_name=details.get("SERVER_NAME"),
        verify=_is_true(environment, f"{TLS_VARIABLE}_VERIFY", default="true"),
    )


def environment_tls() -> TlsOptions | None:
    """The options that the environment of this process says. Raises as `tls_of_environment` does."""
    return tls_of_environment(os.environ)


def _is_true(environment: Mapping[str, str], variable: str, *, default: str) -> bool:
    word = (environment.get(variable) or default).strip().lower()
    if word not in ("true", "false"):
        raise InvalidParameterError(f"{variable} must be true or false", value=word)
    return word == "true"


def _read_password(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidParameterError("the file with the key's password cannot be read", path=path) from error
