"""KeyService: what wraps data keys, as an interface."""

from typing import NamedTuple, Protocol


class WrappedKey(NamedTuple):
    key_id: str
    """Names the wrapping key, with its version where the service has versions; stored in every header."""
    wrapped: bytes


class KeyService(Protocol):
    """Raises `Unavailable` while the service is unavailable, and `DataKeyUnavailable` when it refuses or lacks the
    key."""

    async def wrap(self, key: bytes) -> WrappedKey:
        """Wrap a data key with the newest wrapping key."""
        ...

    async def unwrap(self, wrapped: WrappedKey) -> bytes: ...

    async def aclose(self) -> None: ...
