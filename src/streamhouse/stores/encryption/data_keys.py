"""DataKeys: the data key that an agent encrypts with, and those that it decrypts with.

Data path   put -> **current** -> `format.encryption` ; get -> header -> **unwrap** -> `format.encryption`
Owns        the age of the data key in use; how many unwrapped keys are remembered, and how long
Leaves      wrapping to the key service, bytes to `format.encryption`
Invariant   a key that can't be unwrapped is an error that names the key and the object; it is never taken for damage
"""

import asyncio
import hmac
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from streamhouse.clock import Clock
from streamhouse.config import EncryptionSettings
from streamhouse.errors import DataKeyUnavailable, Unavailable
from streamhouse.format.encryption import KEY_BYTES, DataKey, KeyEnvelope, check_of, make_data_key
from streamhouse.stores.encryption.base import KeyService, WrappedKey

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Between two requests for a key that could not be unwrapped, and for a new data key while the service is
unavailable."""


class DataKeys:
    """Used on one event loop."""

    def __init__(self, service: KeyService, settings: EncryptionSettings, *, clock: Clock) -> None:
        self._service = service
        self.settings = settings
        self._clock = clock
        self._current: DataKey | None = None
        self._created_at = 0.0
        self._tried_at: float | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._unwrapped: OrderedDict[KeyEnvelope, tuple[bytes, float]] = OrderedDict()
        self._failed: OrderedDict[KeyEnvelope, tuple[Unavailable, float]] = OrderedDict()
        self._under_way: dict[KeyEnvelope, asyncio.Task[bytes]] = {}
        self.before_use: Callable[[KeyEnvelope], Awaitable[None]] | None = None
        """Called with a new data key before it encrypts anything; raises `Unavailable` if it may not yet."""
        self.why_stale: str = ""
        """Why the key in use could not be replaced; empty: it could."""

    def __repr__(self) -> str:
        current = self._current.envelope.key_id if self._current is not None else "none"
        return f"<DataKeys key_id={current} remembered={len(self._unwrapped)}>"

    # --- encrypting

    async def renew(self) -> DataKey:
        """Make the next data key; raises `Unavailable` if the key service doesn't wrap it."""
        key = os.urandom(KEY_BYTES)
        try:
            async with asyncio.timeout(2 * self.settings.timeout_s):
                key_id, wrapped = await self._service.wrap(key)
        except TimeoutError:
            raise Unavailable(f"the key service didn't answer in {2 * self.settings.timeout_s:g} s") from None
        data_key = make_data_key(key, key_id=key_id, wrapped=wrapped)
        if self.before_use is not None:
            await self.before_use(data_key.envelope)
        self._current, self._created_at = data_key, self._clock.monotonic()
        self._remember(self._current.envelope, key)
        self.why_stale = ""
        return self._current

    async def first(self) -> DataKey:
        """`current`, made now if there was none yet."""
        return self.current() if self._current is not None else await self.renew()

    @property
    def key_id(self) -> str:
        """The id of the current wrapping key; empty: nothing is encrypted."""
        return self._current.envelope.key_id if self._current is not None and self.settings.new_objects else ""

    def current(self) -> DataKey:
        """The key to encrypt with. Begins to replace an old one in the background; raises `DataKeyUnavailable` for one
        that should have been replaced long ago."""
        age_s = self._clock.monotonic() - self._created_at
        if self._current is None or age_s > self.settings.data_key_s:
            self._begin_renewal()
        if self._current is None or age_s > 2 * self.settings.data_key_s:
            why = self.why_stale or "the data key is being renewed"
            raise DataKeyUnavailable("writing", key_id=self.settings.key, why=why, is_away=True)
        return self._current

    def _begin_renewal(self) -> None:
        now = self._clock.monotonic()
        if self._renewing is None and (self._tried_at is None or now - self._tried_at >= RETRY_S):
            self._tried_at = now
            self._renewing = asyncio.get_running_loop().create_task(self._renew_quietly(), name="data-key")

    async def _renew_quietly(self) -> None:
        try:
            await self.renew()
        except Unavailable as error:
            self.why_stale = str(error)
            log.warning("the data key can't be replaced, will retry", extra={"why": self.why_stale})
        finally:
            self._renewing = None

    # --- decrypting

    async def unwrap(self, envelope: KeyEnvelope, *, where: str) -> bytes:
        """The data key in an envelope, for the object or file `where`; raises `DataKeyUnavailable`."""
        now = self._clock.monotonic()
        known = self._unwrapped.get(envelope)
        if known is not None and now < known[1]:
            self._unwrapped.move_to_end(envelope)
            return known[0]
        failed = self._failed.get(envelope)
        if failed is not None and now < failed[1]:
            raise _unavailable(where, envelope, failed[0])
        task = self._under_way.get(envelope)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._unwrap(envelope), name="unwrap")
            self._under_way[envelope] = task
            task.add_done_callback(lambda _: self._under_way.pop(envelope, None))
        try:
            return await asyncio.shield(task)
        except Unavailable as error:
            raise _unavailable(where, envelope, error) from None

    async def _unwrap(self, envelope: KeyEnvelope) -> bytes:
        try:
            try:
                async with asyncio.timeout(self.settings.timeout_s):
                    key = await self._service.unwrap(WrappedKey(envelope.key_id, envelope.wrapped))
            except TimeoutError:
                raise Unavailable(f"no answer within {self.settings.timeout_s:g} s") from None
            if len(key) != KEY_BYTES or not hmac.compare_digest(check_of(key), envelope.check):
                raise DataKeyUnavailable("data key", key_id=envelope.key_id, why="another key was unwrapped")
        except Unavailable as error:
            self._failed[envelope] = error, self._clock.monotonic() + RETRY_S
            while len(self._failed) > self.settings.cached_keys:
                self._failed.popitem(last=False)
            raise
        self._failed.pop(envelope, None)
        self._remember(envelope, key)
        return key

    def _remember(self, envelope: KeyEnvelope, key: bytes) -> None:
        self._unwrapped[envelope] = key, self._clock.monotonic() + self.settings.cached_key_s
        self._unwrapped.move_to_end(envelope)
        while len(self._unwrapped) > self.settings.cached_keys:
            self._unwrapped.popitem(last=False)

    async def aclose(self) -> None:
        tasks = [*self._under_way.values(), *([self._renewing] if self._renewing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._service.aclose()


def _unavailable(where: str, envelope: KeyEnvelope, error: Unavailable) -> DataKeyUnavailable:
    if isinstance(error, DataKeyUnavailable):
        return DataKeyUnavailable(where, key_id=envelope.key_id, why=error.why, is_away=error.is_away)
    return DataKeyUnavailable(where, key_id=envelope.key_id, why=str(error), is_away=True)
