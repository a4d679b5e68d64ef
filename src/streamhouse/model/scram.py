"""SCRAM (RFC 5802, RFC 7677): stored credentials, and the computation of proofs and signatures.

The password and the client key can't be computed from a stored credential, so a stolen credential can't be used to log
in.
"""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from streamhouse.errors import InvalidCredentials

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 1_000_000
SALT_BYTES: Final = 24


class ScramMechanism(StrEnum):
    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def kafka_code(self) -> int:
        """The mechanism's number in Kafka's messages."""
        return 1 if self is ScramMechanism.SHA_256 else 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """The stored credential of one user for one mechanism."""

    mechanism: ScramMechanism
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @property
    def version(self) -> str:
        """Differs for every change of the password, and reveals nothing about it."""
        return f"{self.mechanism} {hashlib.sha256(self.stored_key).hexdigest()[:32]}"

    def __repr__(self) -> str:
        return f"<ScramCredential {self.mechanism} iterations={self.iterations}>"  # never the keys


def salted_password(mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int) -> bytes:
    """Compute the salted password. Takes milliseconds of CPU, by design: call it in a thread."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, *, salt: bytes, iterations: int) -> ScramCredential:
    """The credential to store; raises `InvalidCredentials` under the same rules as Kafka."""
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise InvalidCredentials(
            f"iterations must be {MIN_ITERATIONS} to {MAX_ITERATIONS}; iterations={iterations} mechanism={mechanism}"
        )
    if len(salted) != hashlib.new(mechanism.hash_name).digest_size or not salt:
        raise InvalidCredentials(f"salt or salted password has a wrong length; mechanism={mechanism}")
    client_key = _hmac(mechanism, salted, b"Client Key")
    return ScramCredential(
        mechanism=mechanism,
        salt=salt,
        iterations=iterations,
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=_hmac(mechanism, salted, b"Server Key"),
    )


def make_credential(
    mechanism: ScramMechanism, password: str, *, iterations: int, random_bytes: Callable[[int], bytes]
) -> ScramCredential:
    """A credential for a password; takes milliseconds of CPU."""
    salt = random_bytes(SALT_BYTES)
    salted = salted_password(mechanism, password, salt=salt, iterations=iterations)
    return credential_of(mechanism, salted, salt=salt, iterations=iterations)


def is_password(credential: ScramCredential, password: str) -> bool:
    """Whether this is the password; takes milliseconds of CPU, in constant time."""
    mechanism = credential.mechanism
    salted = salted_password(mechanism, password, salt=credential.salt, iterations=credential.iterations)
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return hmac.compare_digest(stored_key, credential.stored_key)


def is_proof(credential: ScramCredential, proof: bytes, auth_message: bytes) -> bool:
    """Whether this client proof is valid."""
    mechanism = credential.mechanism
    signature = _hmac(mechanism, credential.stored_key, auth_message)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.new(mechanism.hash_name, client_key).digest(), credential.stored_key)


def server_signature(credential: ScramCredential, auth_message: bytes) -> bytes:
    """The signature with which the server proves that it has the credential."""
    return _hmac(credential.mechanism, credential.server_key, auth_message)


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)
