"""Certificates: an authority of this cluster, and a certificate for its agents on loopback.

The authority is kept, for clients trust it; the agents' certificate is made again at every start.
"""

import datetime
import ipaddress
import os
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
SERVER_DAYS: Final = 365
BEFORE: Final = datetime.timedelta(hours=1)
"""For clients whose clock is late."""
NAMES: Final = ("localhost",)
ADDRESSES: Final = ("127.0.0.1", "::1")

PrivateKey = ec.EllipticCurvePrivateKey


def make_certificates(folder: Path, *, now: datetime.datetime) -> None:
    """Write ca.pem and ca-key.pem, unless they are there, and server.pem and server-key.pem."""
    ca, ca_key = folder / "ca.pem", folder / "ca-key.pem"
    if not (ca.exists() and ca_key.exists()):
        _make_authority(ca, ca_key, now)
    authority = x509.load_pem_x509_certificate(ca.read_bytes())
    signer = serialization.load_pem_private_key(ca_key.read_bytes(), password=None)
    assert isinstance(signer, PrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = [x509.DNSName(name) for name in NAMES]
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ADDRESSES]
    certificate = (
        _builder("StreamHouse agent", authority.subject, key, now, days=SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName([*alternatives, *addresses]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    write_private(folder / "server-key.pem", _as_pem(key))
    write_private(folder / "server.pem", certificate.public_bytes(serialization.Encoding.PEM))


def _make_authority(path: Path, key_path: Path, now: datetime.datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("StreamHouse local cluster")
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder("StreamHouse local cluster", name, key, now, days=AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(key_path, _as_pem(key))
    write_private(path, certificate.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: str, issuer: x509.Name, key: PrivateKey, now: datetime.datetime, *, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _as_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write_private(path: Path, data: bytes) -> None:
    """Replace a file by one that only its owner may read."""
    partial = path.with_name(f"{path.name}.new")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    os.replace(partial, path)
