"""Server context: key, certificate and trust of a port, made from settings and made again when their files change.

A change is noticed by what `stat` tells of the files, and taken over once they have stayed the same for one look: key
and certificate are two files, and between their two writes they do not fit. New files that cannot be used leave the old
context in place, with one line in the log.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence

from thermocline.remoting.errors import SettingError
from thermocline.remoting.settings import TlsConfig, TlsMode
from thermocline.remoting.tls.certificate_files import load_certificate, load_trust
from thermocline.remoting.tls.file_changes import FileChanges
from thermocline.remoting.tls.self_signed import load_self_signed

__all__ = ["ReloadedContext"]

logger = logging.getLogger(__name__)

"""A changed file counts after two looks, so within half a second."""
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


def make_server_context(config: TlsConfig, *, alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """Read the files and make the context of a port. `alpn`: protocols that are agreed on with clients that ask.

    Raises:
        SettingError: A file cannot be read or used.
    """
    assert config.takes_tls
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in config.protocol_names] or list(_VERSIONS.values())
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client could make the server compute for ever
    if config.is_self_signed:
        load_self_signed(context)
    else:
        load_certificate(context, config.server_certificate_path, config.server_key_path, config.server_key_password)
    if config.asks_certificate:
        load_trust(context, config.server_trust_path, purpose=ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = _VERIFY_MODES[config.client_certificate]
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


class ReloadedContext:
    """The context for connections that come now. `look` on the loop; `current` and `read_again` in one thread."""

    def __init__(self, config: TlsConfig, *, alpn: Sequence[str] = ()) -> None:
        """Read the files.

        Raises:
            SettingError: One cannot be read or used.
        """
        self._config = config
        self._alpn = tuple(alpn)
        paths = (config.server_key_path, config.server_certificate_path, config.server_trust_path)
        self._paths = [path for path in paths if path and config.takes_tls]
        self._changes = FileChanges(self._paths)
        self._context: ssl.SSLContext | None = None
        if config.takes_tls and not config.is_self_signed:
            self._context = make_server_context(config, alpn=self._alpn)
        elif config.server_mode == TlsMode.ENFORCING:
            logger.warning(
                "tls.server.mode=enforcing with a self-signed certificate, which clients cannot check: "
                "set tls.server.certPath and tls.server.keyPath"
            )

        if config.server_mode == TlsMode.PERMISSIVE and config.client_certificate == "require":
            logger.warning(
                "tls.server.need.client.auth=require with tls.server.mode=permissive: plain connections are served "
                "without a certificate; set tls.server.mode=enforcing"
            )

    @property
    def has_files(self) -> bool:
        """Whether there is something to look at."""
        return bool(self._paths)

    def current(self) -> ssl.SSLContext:
        """The context for a new connection. A self-signed certificate is made for the first one, which takes a while.

        Raises:
            SettingError: It could not be made.
        """
        if self._context is None:
            self._context = make_server_context(self._config, alpn=self._alpn)
            logger.info("a self-signed certificate was made for TLS, which clients cannot check")
        return self._context

    def is_outdated(self) -> bool:
        """Whether the files have changed and are to be read again; to be called every CHECK_INTERVAL_S."""
        return self._changes.are_settled()

    def read_again(self) -> None:
        """Take the files over, if they can be used."""
        try:
            self._context = make_server_context(self._config, alpn=self._alpn)
        except SettingError as error:
            logger.error("TLS files cannot be used, those from before stay in use: %s", error)
        else:
            logger.info("TLS files were read again, they count for new connections")
