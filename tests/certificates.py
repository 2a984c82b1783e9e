"""A private authority and a server's certificate by it, for tests of TLS: only clients configured with it trust it."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFE = datetime.timedelta(days=2)


def make_certificates(folder: Path, *, address: str = "127.0.0.1", age: datetime.timedelta | None = None) -> Path:
    """`authority.pem`, and `public.crt` and `private.key` of a server at `address`; its life ended `age` ago, or has
    begun. Returns the file of the authority."""
    folder.mkdir(parents=True)
    start = datetime.datetime.now(datetime.UTC) - (LIFE / 2 if age is None else LIFE + age)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("Authority of a test")
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _blank(authority_name, authority_name, authority_key, start=start, end=start + 100 * LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(authority_id, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    alternatives = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    server = (
        _blank(_name("S3 server of a test"), authority_name, server_key, start=start, end=start + LIFE)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    path = folder / "authority.pem"
    path.write_bytes(authority.public_bytes(pem))
    (folder / "public.crt").write_bytes(server.public_bytes(pem))
    key_format, no_password = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "private.key").write_bytes(server_key.private_bytes(pem, key_format, no_password))
    return path


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _blank(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    start: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
