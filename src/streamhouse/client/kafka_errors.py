"""Kafka errors: aiokafka's exceptions and Kafka's error codes as errors of `streamhouse.errors`."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from aiokafka import errors as kafka

from streamhouse import errors
from streamhouse.errors.base import from_text

_NON_EMPTY_GROUP: Final = 68
_GROUP_ID_NOT_FOUND: Final = 69


def _denied(kind: type[errors.AccessDenied], what: str) -> Callable[[str, str], errors.StreamhouseError]:
    return lambda subject, text: from_text(kind, f"not authorised; {what}={subject}")


# The error for each code. `subject` is the topic or group of the request; `text` is the agent's message, if any.
_BY_CODE: Final[Mapping[int, Callable[[str, str], errors.StreamhouseError]]] = {
    kafka.UnknownTopicOrPartitionError.errno: lambda subject, text: errors.UnknownTopic(subject),
    kafka.TopicAlreadyExistsError.errno: lambda subject, text: errors.TopicExists(subject),
    kafka.InvalidTopicError.errno: lambda subject, text: errors.InvalidTopicName(text),
    kafka.InvalidPartitionsError.errno: lambda subject, text: errors.InvalidPartitions(text),
    kafka.InvalidReplicationFactorError.errno: lambda subject, text: errors.InvalidReplication(text),
    kafka.InvalidConfigurationError.errno: lambda subject, text: errors.InvalidConfig(text),
    kafka.InvalidTimestampError.errno: lambda subject, text: errors.InvalidTimestamp(text),
    kafka.InvalidGroupIdError.errno: lambda subject, text: errors.GroupIdInvalid(text),
    _NON_EMPTY_GROUP: lambda subject, text: errors.NonEmptyGroup(subject),
    _GROUP_ID_NOT_FOUND: lambda subject, text: errors.GroupNotFound(subject),
    kafka.TopicAuthorizationFailedError.errno: _denied(errors.TopicAccessDenied, "topic"),
    kafka.GroupAuthorizationFailedError.errno: _denied(errors.GroupAccessDenied, "group"),
    kafka.ClusterAuthorizationFailedError.errno: _denied(errors.AccessDenied, "what"),
    kafka.TransactionalIdAuthorizationFailed.errno: _denied(errors.TransactionalIdAccessDenied, "transactional id"),
    kafka.SaslAuthenticationFailed.errno: lambda subject, text: errors.NotAuthenticated(f"login failed; {text}"),
}
_CONNECTION_ERRORS: Final = (
    kafka.KafkaConnectionError,
    kafka.NodeNotReadyError,
    kafka.KafkaTimeoutError,
    kafka.StaleMetadata,
    asyncio.TimeoutError,
    OSError,
)


def no_agent(bootstrap: str) -> errors.Unavailable:
    return errors.Unavailable(f"no agent answers on {bootstrap}; start one with: streamhouse up")


def from_code(code: int, *, subject: str, text: str | None = None) -> errors.StreamhouseError:
    """The error for a code other than 0."""
    kind = kafka.for_code(code)
    message = text or f"{_words(kind)}; name={subject}"
    if code in _BY_CODE:
        return _BY_CODE[code](subject, message)
    return errors.Unavailable(message) if kind.retriable else errors.Rejected(message)


def from_exception(error: BaseException, *, bootstrap: str, subject: str) -> errors.StreamhouseError:
    if isinstance(error, errors.StreamhouseError):
        return error
    if isinstance(error, kafka.RequestTimedOutError):
        return errors.Unavailable(f"the agent on {bootstrap} took too long; name={subject}")
    if isinstance(error, kafka.BrokerResponseError):
        return from_code(error.errno, subject=subject, text=str(error.args[0]) if error.args else None)
    if isinstance(error, _CONNECTION_ERRORS):
        return no_agent(bootstrap)
    return errors.Rejected(f"{_words(type(error))}; name={subject} why={error}")


@contextmanager
def translate_errors(*, bootstrap: str, subject: str) -> Iterator[None]:
    """Translate errors of agents and connections to `StreamhouseError`."""
    try:
        yield
    except (kafka.KafkaError, TimeoutError, OSError, NotImplementedError) as error:
        raise from_exception(error, bootstrap=bootstrap, subject=subject) from None


def _words(kind: type[BaseException]) -> str:
    """`NotLeaderForPartitionError` as `not leader for partition`."""
    name = kind.__name__.removesuffix("Error").removesuffix("Exception")
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()
