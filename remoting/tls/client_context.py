"""Client context: what a client trusts and shows, read from files at its start and again when they have changed."""

from __future__ import annotations

import logging
import ssl

from thermocline.remoting.errors import SettingError
from thermocline.remoting.tls.certificate_files import load_certificate, load_trust
from thermocline.remoting.tls.file_changes import file_marks
from thermocline.remoting.tls.tls_options import TlsOptions

__all__ = ["ClientTls"]

logger = logging.getLogger(__name__)


class ClientTls:
    """The TLS of one client's connections. Belongs to one thread."""

    def __init__(self, options: TlsOptions) -> None:
        """Read the files, so that a wrong one is an error here and not at some later connection.

        Raises:
            SettingError: A file cannot be read or used.
        """
        self._options = options
        self._paths = [path for path in (options.ca_file, options.cert_file, options.key_file) if path]
        self._marks = file_marks(self._paths)
        self._context = _make_context(options)
        if not options.verify:
            logger.warning("the certificates of servers are not checked: anyone on the way can read and change all")

    def server_name(self, host: str) -> str:
        """The name that the certificate of the server at `host` must have."""
        return self._options.server_name or host

    def context(self) -> ssl.SSLContext:
        """The context for a new connection; files that were changed since the last one are read again."""
        marks = file_marks(self._paths)
        if marks != self._marks:
            self._marks = marks
            try:
                self._context = _make_context(self._options)
            except SettingError as error:
                logger.error("TLS files cannot be used, those from before stay in use: %s", error)
        return self._context


def _make_context(options: TlsOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if options.verify:
        load_trust(context, options.ca_file or "", purpose=ssl.Purpose.SERVER_AUTH)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.cert_file is not None:
        key_file = options.key_file or options.cert_file
        load_certificate(context, options.cert_file, key_file, options.key_password or "")
    return context
