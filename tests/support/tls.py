"""Certificates and keys that a test makes for itself: an authority, its servers, a service account of Google's."""

import base64
import datetime
import ipaddress
import json
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM
_DAY = datetime.timedelta(days=1)


class Authority:
    """One of our own; `path` is what clients trust."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} of a test")])
        certificate = (
            _builder(self._name, self._key.public_key(), self._name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(certificate.public_bytes(PEM))

    def server(self, address: str = "127.0.0.1", *, age_days: int = 0) -> ssl.SSLContext:
        """A server that shows a certificate of ours for that address, good for two days since `age_days` ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        named = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, address)])
        certificate = (
            _builder(subject, key.public_key(), self._name, age_days=age_days)
            .add_extension(named, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        path = self._folder / f"server-{certificate.serial_number:x}.pem"
        private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path.write_bytes(certificate.public_bytes(PEM) + private)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


class ServiceAccount:
    """A key as Google gives it out, and Google's look at what it signs."""

    EMAIL = "agent@project.iam.gserviceaccount.com"
    KEY_ID = "0123abcd"

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.seen: list[dict[str, Any]] = []

    def as_json(self) -> str:
        """The file that the console offers for download."""
        private = self._key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        known = {
            "type": "service_account",
            "project_id": "project",
            "private_key_id": self.KEY_ID,
            "private_key": private.decode(),
            "client_email": self.EMAIL,
            "client_id": "1",
            "token_uri": "http://127.0.0.1:9/token",  # nobody is there
        }
        return json.dumps(known)

    def knows(self, token: str) -> bool:
        """Whether it is a token that this account signed itself; what it claims is `seen`."""
        head, _, signature = token.rpartition(".")
        try:
            self._key.public_key().verify(_decoded(signature), head.encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return False
        header, claims = (json.loads(_decoded(part)) for part in head.split("."))
        self.seen.append(header | claims)
        return True


def _builder(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    *,
    age_days: int = 0,
) -> x509.CertificateBuilder:
    made = datetime.datetime.now(datetime.UTC) - _DAY * (age_days + 1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(made)
        .not_valid_after(made + 2 * _DAY)
    )


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
