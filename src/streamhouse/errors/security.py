"""Errors of authentication and access control."""

from streamhouse.errors.base import Rejected, Retriable


class NotAuthenticated(Rejected):
    """The listener wants to know who is there: credentials are missing, wrong or expired.

    The text never says which of user and password was wrong.
    """


class AccessDenied(Rejected):
    """The caller may not do this to that resource."""

    def __init__(self, principal: object, *, operation: str, resource_type: str, name: str) -> None:
        super().__init__(f"not authorised; principal={principal} operation={operation} {resource_type}={name}")
        self.operation, self.resource_type, self.name = operation, resource_type, name


class TopicAccessDenied(AccessDenied):
    """`AccessDenied` to a topic; each of Kafka's resources has a code of its own."""


class GroupAccessDenied(AccessDenied):
    """`AccessDenied` to a consumer group."""


class TransactionalIdAccessDenied(AccessDenied):
    """`AccessDenied` to a transactional id."""


class DelegationTokenAccessDenied(AccessDenied):
    """`AccessDenied` to a delegation token."""


class InvalidAcl(Rejected):
    """A rule, or a part of it, is not one; the text says what is allowed."""


class InvalidCredentials(Rejected):
    """A user, password or key can't be stored like this; the text says what is allowed."""


class UnknownUser(Rejected):
    """There is no such user."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no such user; user={name!r}")


class UserExists(Rejected):
    """There is a user of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the user exists; user={name!r}")


class UnknownKey(Rejected):
    """There is no such API key."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"no such key; key={key_id!r}")


class SecurityLimit(Rejected):
    """There are as many users, keys or rules as the settings allow."""

    def __init__(self, what: str, *, limit: int, setting: str) -> None:
        super().__init__(f"too many {what}; limit={limit} setting={setting}")


class SecurityDisabled(Rejected):
    """The agent has no access control; the text says which setting turns it on."""


class QuotaExceeded(Retriable):
    """The caller has used more than its quota; the same request may be made after `retry_after_s`."""

    def __init__(self, limit: str, *, retry_after_s: float) -> None:
        super().__init__(f"quota exceeded; limit={limit} retry_after_s={retry_after_s:.3g}")
        self.retry_after_s = retry_after_s


class TooManyLogins(Retriable):
    """More logins are being checked at once than the settings allow."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(f"too many logins at once; limit={limit} setting=security.max_logins")
