"""PLAIN (RFC 4616): user and password in one message. Decides; touches nothing."""

from typing import NamedTuple

from streamhouse.errors import NotAuthenticated


class PlainMessage(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        return f"<PlainMessage {self.user!r}>"  # never the password


def parse_plain(message: bytes) -> PlainMessage:
    """The user and password in `[authzid] NUL authcid NUL password`; raise `NotAuthenticated`.

    No user may act as another one: an authorisation id must be the user's own name. Names are compared as they come,
    without SASLprep, as in Kafka.
    """
    try:
        parts = message.decode().split("\x00")
    except UnicodeDecodeError:
        raise NotAuthenticated("the message of PLAIN is not UTF-8") from None
    if len(parts) != 3:
        raise NotAuthenticated("the message of PLAIN needs three parts")
    authorization_id, user, password = parts
    if not user or not password:
        raise NotAuthenticated("the message of PLAIN has no user or no password")
    if authorization_id not in ("", user):
        raise NotAuthenticated("the authorization id is not the user's name")
    return PlainMessage(user, password)
