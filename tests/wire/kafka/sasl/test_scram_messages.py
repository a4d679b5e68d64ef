"""The server's side of SCRAM, message by message."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import NotAuthenticated
from streamhouse.model.scram import ScramCredential, ScramMechanism, credential_of, salted_password
from streamhouse.wire.kafka.sasl.oauthbearer import parse_bearer
from streamhouse.wire.kafka.sasl.plain import parse_plain
from streamhouse.wire.kafka.sasl.scram import ScramChallenge, parse_first

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
UNPROVEN = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL = UNPROVEN + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


@pytest.fixture(scope="module")
def credential() -> ScramCredential:
    mechanism = ScramMechanism.SHA_256
    salted = salted_password(mechanism, "pencil", salt=SALT, iterations=4096)
    return credential_of(mechanism, salted, salt=SALT, iterations=4096)


def challenge(credential: ScramCredential, first: bytes = FIRST, nonce: str = SERVER_NONCE) -> ScramChallenge:
    return ScramChallenge(parse_first(first), credential, server_nonce=nonce)


def test_the_exchange_of_rfc_7677(credential: ScramCredential) -> None:
    made = challenge(credential)
    assert made.text == f"r=rOprNGfwEbeRWgbNEkqO{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert made.verify(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_nonce_of_librdkafka_before_2_6_1_has_the_clients_part_twice(credential: ScramCredential) -> None:
    nonce = "rOprNGfwEbeRWgbNEkqO"
    for repeated, is_accepted in ((nonce + nonce, True), (nonce + nonce + nonce, False), ("x" + nonce, False)):
        unproven = f"c=biws,r={repeated}{SERVER_NONCE}"
        made = challenge(credential)
        auth_message = f"n=user,r={nonce},{made.text},{unproven}".encode()
        proof = base64.b64encode(client_proof(auth_message)).decode()
        message = f"{unproven},p={proof}".encode()
        if is_accepted:
            assert made.verify(message).startswith(b"v=")
        else:
            with pytest.raises(NotAuthenticated):
                made.verify(message)


def client_proof(auth_message: bytes) -> bytes:
    salted = salted_password(ScramMechanism.SHA_256, "pencil", salt=SALT, iterations=4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), auth_message, "sha256")
    return bytes(a ^ b for a, b in zip(key, signature, strict=True))


def test_a_recorded_exchange_is_worth_nothing(credential: ScramCredential) -> None:
    with pytest.raises(NotAuthenticated):
        challenge(credential, nonce="another").verify(FINAL)


def test_no_changed_byte_of_the_last_message_is_accepted(credential: ScramCredential) -> None:
    for position in range(len(FINAL)):
        changed = FINAL[:position] + bytes([FINAL[position] ^ 1]) + FINAL[position + 1 :]
        if position == len(FINAL) - 2 and base64.b64decode(changed[-44:]) == base64.b64decode(FINAL[-44:]):
            continue  # bits of the last digit that count for nothing
        with pytest.raises(NotAuthenticated):
            challenge(credential).verify(changed)


def test_the_binding_must_be_that_of_the_first_message(credential: ScramCredential) -> None:
    with pytest.raises(NotAuthenticated):
        challenge(credential, b"y,,n=user,r=rOprNGfwEbeRWgbNEkqO").verify(FINAL)


def test_names_are_unescaped_and_the_authorization_id_is_the_name() -> None:
    assert parse_first(b"n,a=a=2Cb=3D,n=a=2Cb=3D,r=x").name == "a,b="
    assert parse_first("y,,n=größe,r=x".encode()).name == "größe"
    assert parse_first(b"n,,n=id,r=x,tokenauth=true").is_token
    assert not parse_first(b"n,,n=id,r=x,tokenauth=truely").is_token


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"p=tls-unique,,n=user,r=x",
        b"n,a=root,n=user,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=x",
        b"n,,n=us\x00er,r=x",
        b"n,,n=user,r=x y",
        b"n,,n=user,r=x\n",
        b"n,,n=\xff,r=x",
        b"n,,r=x,n=user",
        b"N,,n=user,r=x",
    ],
)
def test_other_first_messages_are_refused(message: bytes) -> None:
    with pytest.raises(NotAuthenticated):
        parse_first(message)


@pytest.mark.parametrize(
    "message",
    [b"", b"alice", b"\x00alice", b"\x00\x00pw", b"\x00alice\x00", b"root\x00alice\x00pw", b"\x00a\x00p\x00x"],
)
def test_plain_needs_exactly_user_and_password(message: bytes) -> None:
    with pytest.raises(NotAuthenticated):
        parse_plain(message)


def test_plain_and_bearer_messages_are_understood() -> None:
    assert tuple(parse_plain("\x00ålice\x00pässwörd".encode())) == ("ålice", "pässwörd")
    assert tuple(parse_plain(b"alice\x00alice\x00pw")) == ("alice", "pw")
    assert parse_bearer(b"n,,\x01auth=Bearer a.b-c\x01\x01").token == "a.b-c"
    assert parse_bearer(b"n,a=alice,\x01auth=bearer abc==\x01ext=1\x01\x01").authorization_id == "alice"
    assert "pw" not in repr(parse_plain(b"\x00alice\x00pw"))


@pytest.mark.parametrize(
    "message",
    [b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01"],
)
def test_bearer_needs_one_token(message: bytes) -> None:
    with pytest.raises(NotAuthenticated):
        parse_bearer(message)


@given(st.binary(max_size=200) | st.text(alphabet="n,=ayrcp\x00\x01BeardA1", max_size=60).map(str.encode))
def test_whatever_comes_is_refused_or_understood(message: bytes) -> None:
    for parse in (parse_first, parse_plain, parse_bearer):
        try:
            parse(message)
        except NotAuthenticated:
            continue
