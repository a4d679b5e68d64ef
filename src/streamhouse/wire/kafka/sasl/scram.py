"""SCRAM (RFC 5802): the server's side of the exchange. Decides; touches nothing.

Bound channels (`p=`) are not offered; `n` and `y` say that the client does without. The nonce has a part of each side,
so that a recorded exchange can't be replayed, and the client must repeat it. librdkafka before 2.6.1 puts its own part
before it once more, which proves as much; Kafka 3.9 accepts that, too. Names and passwords are compared as they
come, without SASLprep, as in Kafka. The extension `tokenauth=true` names a delegation token instead of a user.
"""

import base64
import binascii
import hmac
import re
from typing import Final, NamedTuple

from streamhouse.errors import NotAuthenticated
from streamhouse.model.scram import ScramCredential, is_proof, server_signature

_NAME: Final = r"(?:[^=,\x00]|=2C|=3D)+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[^,\x00]*)*"
_FIRST: Final = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_FINAL: Final = re.compile(
    rf"(?P<unproven>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_TOKEN_AUTH: Final = ",tokenauth=true,"


class ClientFirst(NamedTuple):
    """The first message: `header` says how the channel is bound, `bare` is what both sides prove to have seen."""

    header: str
    bare: str
    name: str
    nonce: str
    is_token: bool


def parse_first(message: bytes) -> ClientFirst:
    """The client's first message; raise `NotAuthenticated`."""
    match = _FIRST.fullmatch(_text(message))
    if match is None:
        raise NotAuthenticated("not a first message of SCRAM")
    name = _unescaped(match["name"])
    if match["authzid"] is not None and _unescaped(match["authzid"]) != name:
        raise NotAuthenticated("the authorization id is not the user's name")
    return ClientFirst(match["header"], match["bare"], name, match["nonce"], _TOKEN_AUTH in f"{match['extensions']},")


class ScramChallenge:
    """The server's first message, and what the client's answer to it must be."""

    def __init__(self, first: ClientFirst, credential: ScramCredential, *, server_nonce: str) -> None:
        self._first = first
        self._credential = credential
        self._nonce = first.nonce + server_nonce
        salt = base64.b64encode(credential.salt).decode()
        self.text = f"r={self._nonce},s={salt},i={credential.iterations}"

    def __repr__(self) -> str:
        return f"<ScramChallenge {self._credential.mechanism}>"

    def verify(self, message: bytes) -> bytes:
        """The server's last message, for a client that has proven that it knows the password; raise
        `NotAuthenticated` for any other."""
        match = _FINAL.fullmatch(_text(message))
        if match is None:
            raise NotAuthenticated("not a last message of SCRAM")
        header = base64.b64encode(self._first.header.encode()).decode()
        nonces = (self._nonce, self._first.nonce + self._nonce)
        is_repeated = any(hmac.compare_digest(match["nonce"], nonce) for nonce in nonces)
        is_same = is_repeated and hmac.compare_digest(match["binding"], header)
        auth_message = f"{self._first.bare},{self.text},{match['unproven']}".encode()
        if not is_same or not is_proof(self._credential, _decoded(match["proof"]), auth_message):
            raise NotAuthenticated("user or password is wrong")
        return b"v=" + base64.b64encode(server_signature(self._credential, auth_message))


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise NotAuthenticated("a message of SCRAM is not UTF-8") from None


def _decoded(proof: str) -> bytes:
    try:
        return base64.b64decode(proof, validate=True)
    except (binascii.Error, ValueError):
        raise NotAuthenticated("a proof of SCRAM is not base64") from None


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
