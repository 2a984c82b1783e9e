"""Certificate files: read into an `ssl.SSLContext`, with errors that name the file; how a change of them is noticed.

Every file is PEM. A key that is encrypted without a password given is an error, never a question at the terminal.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from thermocline.remoting.errors import SettingError
from thermocline.remoting.settings import CONFIG_FILE_DEFAULT, parse_config_text

__all__ = ["load_certificate", "load_trust", "read_tls_file"]


def load_certificate(context: ssl.SSLContext, certificate_path: str, key_path: str, password: str) -> None:
    """Load a certificate and its key.

    Raises:
        SettingError: A file cannot be read, is none of these, or the password is wrong.
    """
    for path in (certificate_path, key_path):
        _check_readable(path)
    try:
        context.load_cert_chain(certificate_path, key_path, password=password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingError(
                "the private key does not belong to the certificate", certificate=certificate_path, key=key_path
            ) from error
        raise SettingError(
            "the certificate or its private key cannot be read: they must be PEM, and the password right",
            certificate=certificate_path,
            key=key_path,
            reason=error.reason or error.strerror,
        ) from error
    except (OSError, ValueError) as error:
        raise SettingError(
            "the certificate or its private key cannot be read", certificate=certificate_path, key=key_path
        ) from error


def load_trust(context: ssl.SSLContext, path: str, *, purpose: ssl.Purpose) -> None:
    """Trust the authorities in a file; the system's for an empty path.

    Raises:
        SettingError: The file cannot be read, or holds no certificate.
    """
    if not path:
        context.load_default_certs(purpose)
        return
    _check_readable(path)
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise SettingError("the file holds no certificate that can be read: it must be PEM", path=path) from error


def read_tls_file(path: str) -> dict[str, str]:
    """The settings in tls.properties; none if it is not there and not named by a setting.

    Raises:
        SettingError: It cannot be read, or has a setting that is none of TLS.
    """
    if path == CONFIG_FILE_DEFAULT and not os.path.exists(path):
        return {}
    _check_readable(path)
    try:
        values = dict(parse_config_text(Path(path).read_text(encoding="utf-8")))
    except UnicodeDecodeError as error:
        raise SettingError("the file of TLS settings is no text", path=path) from error
    for name in values:
        if not name.startswith("tls"):
            raise SettingError(f"{name} is no TLS setting", path=path)
    return values


def _check_readable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise SettingError(f"a TLS file cannot be read: {error.strerror}", path=path) from error
