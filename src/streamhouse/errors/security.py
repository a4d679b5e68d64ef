"""Errors of authentication and access control."""

from streamhouse.errors.base import Rejected, Retriable


class NotAuthenticated(Rejected):
    """The listener requires authentication, and credentials are missing, wrong or expired.

    The text never says whether the user or the password was wrong.
    """


class AccessDenied(Rejected):
    """The caller lacks the permission for this operation on the resource."""

    def __init__(self, principal: object, *, operation: str, resource_type: str, name: str) -> None:
        super().__init__(f"not authorised; principal={principal} operation={operation} {resource_type}={name}")
        self.operation, self.resource_type, self.name = operation, resource_type, name


class TopicAccessDenied(AccessDenied):
    """`AccessDenied` to a topic. Kafka has one error code per resource type."""


class GroupAccessDenied(AccessDenied):
    """`AccessDenied` to a consumer group."""


class TransactionalIdAccessDenied(AccessDenied):
    """`AccessDenied` to a transactional id."""


class DelegationTokenAccessDenied(AccessDenied):
    """`AccessDenied` to a delegation token."""


class InvalidAcl(Rejected):
    """An access rule is invalid; the text says what is allowed."""


class InvalidCredentials(Rejected):
    """A user name, password or key is invalid; the text says what is allowed."""


class UnknownUser(Rejected):
    """No user has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no such user; user={name!r}")


class UserExists(Rejected):
    """A user of this name exists."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the user exists; user={name!r}")


class UnknownKey(Rejected):
    """There is no such API key."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"no such key; key={key_id!r}")


class SecurityLimit(Rejected):
    """The maximum number of users, keys or rules is reached."""

    def __init__(self, what: str, *, limit: int, setting: str) -> None:
        super().__init__(f"too many {what}; limit={limit} setting={setting}")


class SecurityDisabled(Rejected):
    """Access control is disabled; the text names the setting that enables it."""


class QuotaExceeded(Retriable):
    """The caller exceeds its quota; it may retry after `retry_after_s`."""

    def __init__(self, limit: str, *, retry_after_s: float) -> None:
        super().__init__(f"quota exceeded; limit={limit} retry_after_s={retry_after_s:.3g}")
        self.retry_after_s = retry_after_s


class TooManyLogins(Retriable):
    """The maximum number of concurrent logins is reached."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(f"too many logins at once; limit={limit} setting=security.max_logins")
