"""A certificate signed by its own key, made at the first use, for a port without certificate files (test mode).

It lets clients encrypt that check nothing; it protects against no one on the way. The key is in memory alone.

certificate_maker.py makes both, in a process of its own.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import sys

from thermocline.remoting.errors import SettingError

__all__ = ["load_self_signed"]

MAKE_TIMEOUT_S = 60.0


def load_self_signed(context: ssl.SSLContext) -> None:
    """Make a key and its certificate, and load both.

    Raises:
        SettingError: It did not work.
    """
    try:
        made = subprocess.run(
            [sys.executable, "-m", "thermocline.remoting.tls.certificate_maker"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=MAKE_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SettingError("a self-signed certificate could not be made: name one by tls.server.certPath") from error
    descriptor = os.memfd_create("tls")  # OpenSSL reads files alone
    try:
        os.write(descriptor, made.stdout)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
