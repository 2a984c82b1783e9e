"""The subject of a certificate as text: `CN=name,OU=unit,O=organization`, most specific first, as in RFC 4514."""

from __future__ import annotations

__all__ = ["certificate_subject"]

_ATTRIBUTES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "userId": "UID",
}


def certificate_subject(certificate: object) -> str:
    """Of what `SSLObject.getpeercert` gives; empty when no certificate was shown."""
    if not isinstance(certificate, dict):
        return ""
    pairs = [pair for names in reversed(certificate.get("subject", ())) for pair in names]
    return ",".join(f"{_ATTRIBUTES.get(name, name)}={_escaped(value)}" for name, value in pairs)


def _escaped(value: str) -> str:
    text = "".join(f"\\{letter}" if letter in ',+"\\<>;=' else letter for letter in value)
    if text.endswith(" ") and not text.endswith("\\ "):
        text = f"{text[:-1]}\\ "
    return f"\\{text}" if text.startswith(("#", " ")) else text
