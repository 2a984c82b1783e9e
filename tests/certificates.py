"""A private authority and certificates by it, for tests of TLS: only sides configured with it trust them."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFE = datetime.timedelta(days=2)
PEM = serialization.Encoding.PEM


class Authority:
    """An authority whose certificate is in `folder`/authority.pem; its life began half of LIFE ago, or at `start`."""

    def __init__(
        self, folder: Path, *, name: str = "Authority of a test", start: datetime.datetime | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._start = start or datetime.datetime.now(datetime.UTC) - LIFE / 2
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = (
            _blank(self._name, self._name, self._key, start=self._start, end=self._start + 100 * LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(self._id, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.path = folder / "authority.pem"
        self.path.write_bytes(certificate.public_bytes(PEM))

    def issue(
        self,
        certificate_name: str,
        key_name: str,
        *,
        subject: str,
        addresses: Sequence[str] = (),
        names: Sequence[str] = (),
        password: str = "",
    ) -> tuple[Path, Path]:
        """A certificate and its key, in files of these names; for a client, or a server of these IP addresses and host
        names."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _blank(_name(subject), self._name, key, start=self._start, end=self._start + LIFE)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._id), critical=False)
        )
        alternatives: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(text)) for text in addresses]
        alternatives += [x509.DNSName(text) for text in names]
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        encryption = (
            serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        )
        certificate_path, key_path = self._folder / certificate_name, self._folder / key_name
        certificate_path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(PEM))
        key_path.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, encryption))
        return certificate_path, key_path


def make_certificates(folder: Path, *, address: str = "127.0.0.1", age: datetime.timedelta | None = None) -> Path:
    """`authority.pem`, and `public.crt` and `private.key` of a server at `address`; its life ended `age` ago, or has
    begun. Returns the file of the authority."""
    start = None if age is None else datetime.datetime.now(datetime.UTC) - (LIFE + age)
    authority = Authority(folder, start=start)
    authority.issue("public.crt", "private.key", subject="S3 server of a test", addresses=[address])
    return authority.path


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
