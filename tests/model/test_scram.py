"""SCRAM's computations, by the example of RFC 7677 and against each other."""

import base64
import hashlib
import hmac
import secrets

import pytest

from streamhouse.errors import InvalidCredentials
from streamhouse.model.scram import (
    ScramMechanism,
    credential_of,
    is_password,
    is_proof,
    make_credential,
    salted_password,
    server_signature,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
AUTH_MESSAGE = (
    b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
)
PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_example_of_rfc_7677() -> None:
    salted = salted_password(ScramMechanism.SHA_256, "pencil", salt=SALT, iterations=4096)
    credential = credential_of(ScramMechanism.SHA_256, salted, salt=SALT, iterations=4096)
    assert is_proof(credential, PROOF, AUTH_MESSAGE)
    assert server_signature(credential, AUTH_MESSAGE) == SIGNATURE
    assert not is_proof(credential, PROOF, AUTH_MESSAGE + b"x")
    assert not is_proof(credential, bytes([PROOF[0] ^ 1]) + PROOF[1:], AUTH_MESSAGE)
    assert not is_proof(credential, PROOF[:-1], AUTH_MESSAGE)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_only_the_password_fits(mechanism: ScramMechanism) -> None:
    credential = make_credential(mechanism, "pässword", iterations=4096, random_bytes=secrets.token_bytes)
    assert is_password(credential, "pässword")
    assert not is_password(credential, "password")
    assert not is_password(credential, "")


def test_a_stored_credential_is_no_proof() -> None:
    credential = make_credential(ScramMechanism.SHA_256, "secret", iterations=4096, random_bytes=secrets.token_bytes)
    signature = hmac.digest(credential.stored_key, AUTH_MESSAGE, hashlib.sha256)
    forged = bytes(a ^ b for a, b in zip(credential.stored_key, signature, strict=True))
    assert not is_proof(credential, forged, AUTH_MESSAGE)
    assert repr(credential) == "<ScramCredential SCRAM-SHA-256 iterations=4096>"


@pytest.mark.parametrize("iterations", [0, 4095, 1_000_001])
def test_iterations_have_bounds(iterations: int) -> None:
    with pytest.raises(InvalidCredentials, match="4096 to 1000000"):
        credential_of(ScramMechanism.SHA_256, b"x" * 32, salt=b"salt", iterations=iterations)
