"""Certificates for tests: an authority that lives as long as a test, and what it signs."""

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True, kw_only=True)
class Authority:
    """A certificate authority that lives as long as a test."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def issue(self, folder: Path, name: str) -> None:
        """Write NAME.pem and NAME.key, of a certificate for this machine."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Ex, Inc."), x509.NameAttribute(NameOID.COMMON_NAME, name)]
        )
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.RFC822Name("a@ex.org")]
        )
        certificate = _builder(subject, self.certificate.subject, key).add_extension(names, critical=False)
        signed = certificate.sign(self.key, hashes.SHA256())
        _write(folder / f"{name}.pem", signed.public_bytes(serialization.Encoding.PEM))
        _write(folder / f"{name}.key", _pem(key))


def make_authority(folder: Path, name: str = "ca") -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    certificate = _builder(subject, subject, key).add_extension(constraints, critical=True).sign(key, hashes.SHA256())
    _write(folder / f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM))
    return Authority(certificate=certificate, key=key)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - datetime.timedelta(hours=1))
        .not_valid_after(NOW + datetime.timedelta(hours=1))
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def _write(path: Path, data: bytes) -> None:
    staged = path.with_suffix(".new")
    staged.write_bytes(data)
    os.replace(staged, path)
