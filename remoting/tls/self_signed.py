"""A certificate signed by its own key, made at the start, for a port without certificate files (test mode).

It lets clients encrypt that check nothing; it protects against no one on the way. The key is in memory alone.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl

__all__ = ["load_self_signed"]

LIFE = datetime.timedelta(days=3650)
NAME = "localhost"


def load_self_signed(context: ssl.SSLContext) -> None:
    """Make a key and its certificate, and load both."""
    descriptor = os.memfd_create("tls")  # OpenSSL reads files alone
    try:
        os.write(descriptor, _make_pem())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _make_pem() -> bytes:
    # Imported here: it is slow to load, and a port with a certificate of its own does not need it.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME), *addresses]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key_text + certificate.public_bytes(pem)
