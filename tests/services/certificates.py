"""Certificates for servers and clients of tests, signed by an authority that exists in one folder only."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_PEM = serialization.Encoding.PEM
_LOCALHOST = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])


def write_certificates(folder: Path) -> None:
    """Write ca.pem, and for `server` and `client` each NAME.pem, NAME.key and NAME.both with the two of them."""
    folder.mkdir()
    authority = ec.generate_private_key(ec.SECP256R1())
    root = _signed("ca", authority, "ca", authority, is_authority=True)
    (folder / "ca.pem").write_bytes(root)
    for name in ("server", "client"):
        own = ec.generate_private_key(ec.SECP256R1())
        key = own.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        certificate = _signed(name, own, "ca", authority)
        for ending, content in (("pem", certificate), ("key", key), ("both", key + certificate)):
            (folder / f"{name}.{ending}").write_bytes(content)


def _signed(
    name: str,
    key: EllipticCurvePrivateKey,
    issuer: str,
    signer: EllipticCurvePrivateKey,
    *,
    is_authority: bool = False,
) -> bytes:
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(_LOCALHOST, critical=False)
        .sign(signer, hashes.SHA256())
    )
    return certificate.public_bytes(_PEM)
