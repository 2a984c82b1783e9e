"""Server context: key, certificate and trust of a port, made from settings and made again when their files change.

A change is noticed by what `stat` tells of the files, and taken over once they have stayed the same for one look: key
and certificate are two files, and between their two writes they do not fit. New files that cannot be used leave the old
context in place, with one line in the log.
"""

from __future__ import annotations

import logging
import ssl

from thermocline.remoting.errors import SettingError
from thermocline.remoting.settings import TlsConfig, TlsMode
from thermocline.remoting.tls.certificate_files import file_marks, load_certificate, load_trust
from thermocline.remoting.tls.client_context import ClientTls
from thermocline.remoting.tls.self_signed import load_self_signed
from thermocline.remoting.tls.tls_options import outgoing_options

__all__ = ["LOOK_INTERVAL_S", "ReloadedContext", "check_files", "make_server_context", "watched_files"]

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 0.25
"""A changed file counts after two looks, so within half a second."""
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


def make_server_context(config: TlsConfig) -> ssl.SSLContext:
    """Read the files and make the context of a port.

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
    return context


def check_files(config: TlsConfig) -> None:
    """Read the files of a port and of outgoing connections once, for errors, and say what is weak about them.

    Raises:
        SettingError: A file cannot be read or used.
    """
    options = outgoing_options(config)
    if options is not None:
        ClientTls(options)
    if not config.takes_tls:
        return
    if not config.is_self_signed:
        make_server_context(config)
    elif config.server_mode == TlsMode.ENFORCING:
        logger.warning(
            "tls.server.mode=enforcing with a self-signed certificate: clients cannot check it; "
            "set tls.server.certPath and tls.server.keyPath"
        )


def watched_files(config: TlsConfig) -> tuple[str, ...]:
    """The files that a port's context is made of."""
    return tuple(
        path for path in (config.server_key_path, config.server_certificate_path, config.server_trust_path) if path
    )


class ReloadedContext:
    """The context for connections that come now. Belongs to one thread, which calls `look` from time to time."""

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._paths = watched_files(config)
        self._seen = self._loaded = file_marks(self._paths)
        self.current: ssl.SSLContext | None = None
        """None: the files could not be used when this process started."""
        self._load()

    def look(self) -> None:
        """Take changed files over. At most every LOOK_INTERVAL_S it needs to be called."""
        seen, self._seen = self._seen, file_marks(self._paths)
        if self._seen != self._loaded and self._seen == seen:
            self._loaded = self._seen
            self._load()

    def _load(self) -> None:
        had_context = self.current is not None
        try:
            self.current = make_server_context(self._config)
        except SettingError as error:
            consequence = "those from before stay in use" if had_context else "TLS connections are refused until then"
            logger.error("TLS files cannot be used, %s: %s", consequence, error)
            return
        if had_context:
            logger.info("TLS files were read again, they count for new connections")
