"""Users: creating users and API keys, and checking passwords, keys and SCRAM proofs against what is stored.

Checking a password costs milliseconds of CPU, by intent. It runs in a few threads, so many wrong logins delay
other logins, never the event loop. An unknown user costs as much as a wrong password.
"""

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple, TypeVar

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.security.audit import describe_acts
from streamhouse.broker.security.decoys import Decoys
from streamhouse.errors import InvalidCredentials, NotAuthenticated, TooManyLogins, UnknownKey, UnknownUser
from streamhouse.model.access import USER, CredentialKind, CredentialRef, Principal
from streamhouse.model.credentials import (
    MAX_DESCRIPTION_CHARS,
    MAX_PASSWORD_CHARS,
    ApiKey,
    User,
    check_password,
    check_user_name,
    hash_secret,
    key_text,
    parse_key,
)
from streamhouse.model.scram import (
    ScramCredential,
    ScramMechanism,
    credential_of,
    is_password,
    make_credential,
)

T = TypeVar("T")
WRONG_LOGIN: Final = "user or password is wrong"
WRONG_KEY: Final = "the API key is wrong, revoked or expired"
KEY_ID_BYTES: Final = 8
KEY_SECRET_BYTES: Final = 32


class Challenge(NamedTuple):
    """The credential that a login has to prove; a decoy, which no password fits, without `is_stored`."""

    credential: ScramCredential
    is_stored: bool


class _Verified(NamedTuple):
    credential: CredentialRef | ApiKey
    until: float


class Users:
    def __init__(self, dependencies: Dependencies) -> None:
        self._settings = dependencies.settings.security
        self._metadata = dependencies.metadata
        self._clock = dependencies.clock
        self._threads = ThreadPoolExecutor(self._settings.max_logins, thread_name_prefix="login")
        self._waiting = 0
        self._secret = secrets.token_bytes(32)  # of this process: names cache entries
        self._decoys = Decoys(dependencies)
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()
        self._generation = 0

    def __repr__(self) -> str:
        return f"<Users remembered={len(self._verified)} waiting={self._waiting}>"

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def generation(self) -> int:
        """Grows whenever users or keys may have changed."""
        return self._generation

    def remembers(self, name: str, password: str) -> bool:
        """Whether this password was verified a moment ago: checking it again costs nothing."""
        return self._remembered(self._entry("password", name, password)) is not None

    def remembers_key(self, text: str) -> bool:
        """Whether this API key was verified a moment ago: checking it again asks no database."""
        return self._remembered(self._entry("key", text)) is not None

    # --- users

    async def list(self) -> Sequence[User]:
        return await self._metadata.users()

    async def find(self, name: str) -> User:
        """A user; raise `UnknownUser`."""
        if (user := await self._metadata.find_user(name)) is None:
            raise UnknownUser(name)
        return user

    async def create(self, name: str, password: str, *, is_new: bool = True) -> None:
        """Create a user who can log in with every mechanism, or without `is_new` give one another password."""
        check_user_name(name)
        describe_acts(f"user {name}")
        check_password(password)
        iterations = self._settings.scram_iterations
        make = partial(make_credential, password=password, iterations=iterations, random_bytes=secrets.token_bytes)
        credentials = [await self._in_thread(partial(make, mechanism)) for mechanism in ScramMechanism]
        await self._metadata.put_credentials(
            name, upserts=credentials, is_new=is_new, max_users=self._settings.max_users
        )
        self.forget()

    async def alter_credentials(
        self,
        name: str,
        *,
        upserts: Sequence[tuple[ScramMechanism, bytes, bytes, int]] = (),
        deletions: Sequence[ScramMechanism] = (),
    ) -> None:
        """Kafka's AlterUserScramCredentials (KIP-554): `upserts` are mechanism, salt, salted password, iterations."""
        check_user_name(name)
        describe_acts(*(f"user {name}: {mechanism}" for mechanism, *_ in upserts))
        describe_acts(*(f"user {name}: without {mechanism}" for mechanism in deletions))
        credentials = [
            credential_of(mechanism, salted, salt=salt, iterations=iterations)
            for mechanism, salt, salted, iterations in upserts
        ]
        await self._metadata.put_credentials(
            name, upserts=credentials, deletions=deletions, max_users=self._settings.max_users
        )
        self.forget()

    async def delete(self, name: str) -> None:
        """Delete a user, with its keys and roles; raise `UnknownUser`."""
        describe_acts(f"user {name}")
        if not await self._metadata.delete_user(name):
            raise UnknownUser(name)
        self.forget()

    async def bootstrap(self, name: str, password: str) -> bool:
        """Create the first user, unless it exists; whether it was created."""
        if await self._metadata.find_user(name) is not None:
            return False
        await self.create(name, password, is_new=False)
        return True

    # --- API keys

    async def keys(self) -> Sequence[ApiKey]:
        return await self._metadata.keys()

    async def create_key(
        self, principal: Principal, *, description: str = "", ttl_s: float | None = None
    ) -> tuple[ApiKey, str]:
        """A new key and its text, which can't be read again."""
        if principal.kind != USER:
            raise InvalidCredentials(f"API keys are for users; principal={principal}")
        check_user_name(principal.name)
        if len(description) > MAX_DESCRIPTION_CHARS:
            raise InvalidCredentials(f"a description has at most {MAX_DESCRIPTION_CHARS} characters")
        now_ms = self._clock.now_ms()
        secret = secrets.token_hex(KEY_SECRET_BYTES)
        key = ApiKey(
            key_id=secrets.token_hex(KEY_ID_BYTES),
            principal=principal,
            secret_hash=hash_secret(secret),
            description=description,
            created_at_ms=now_ms,
            expires_at_ms=None if ttl_s is None else now_ms + round(ttl_s * 1000),
        )
        describe_acts(f"key {key.key_id} of {principal}")
        await self._metadata.add_key(key, max_keys=self._settings.max_keys)
        return key, key_text(key.key_id, secret)

    async def revoke_key(self, key_id: str) -> None:
        """Revoke a key; raise `UnknownKey`."""
        describe_acts(f"key {key_id}")
        if not await self._metadata.delete_key(key_id):
            raise UnknownKey(key_id)
        self.forget()

    # --- checking

    async def check_password(self, name: str, password: str) -> CredentialRef:
        """The stored credential that this password fits; raise `NotAuthenticated` for any other, and for a user that
        isn't there."""
        entry = self._entry("password", name, password)
        if isinstance(remembered := self._remembered(entry), CredentialRef):
            return remembered
        generation = self._generation
        if len(password) > MAX_PASSWORD_CHARS:
            raise NotAuthenticated(WRONG_LOGIN)
        credential, is_stored = await self.challenge(name, ScramMechanism.SHA_256, ScramMechanism.SHA_512)
        is_right = await self._in_thread(lambda: is_password(credential, password))
        if not is_stored or not is_right:
            raise NotAuthenticated(WRONG_LOGIN)
        shown = CredentialRef(CredentialKind.PASSWORD, name, credential.version)
        self._remember(entry, shown, generation)
        return shown

    async def check_key(self, text: str) -> ApiKey:
        """The API key with this text; raise `NotAuthenticated`."""
        entry = self._entry("key", text)
        known = self._remembered(entry)
        if not isinstance(known, ApiKey):
            generation = self._generation
            known = await self._find_key(text)
            self._remember(entry, known, generation)
        if not known.is_valid_at(self._clock.now_ms()):
            raise NotAuthenticated(WRONG_KEY)
        return known

    async def _find_key(self, text: str) -> ApiKey:
        parsed = parse_key(text)
        key = await self._metadata.find_key(parsed[0]) if parsed is not None else None
        if parsed is None or key is None or not hmac.compare_digest(hash_secret(parsed[1]), key.secret_hash):
            raise NotAuthenticated(WRONG_KEY)
        return key

    async def challenge(self, name: str, *mechanisms: ScramMechanism) -> Challenge:
        """The stored credential of a user for the first mechanism that it has, or a decoy, in the same time."""
        await self._decoys.refresh(self._generation)
        user = await self._metadata.find_user(name)
        decoy = self._decoys.make(name, *mechanisms)
        stored = [user.credentials.get(mechanism) for mechanism in mechanisms] if user is not None else []
        found = next((each for each in stored if each is not None), None)
        return Challenge(found or decoy, is_stored=found is not None)

    async def holds(self, shown: CredentialRef) -> bool:
        """Whether a password is still the user's, or a key still there."""
        if shown.kind is CredentialKind.KEY:
            return await self._metadata.find_key(shown.name) is not None
        user = await self._metadata.find_user(shown.name)
        return user is not None and shown.version in [each.version for each in user.credentials.values()]

    # --- what was verified a moment ago

    def _entry(self, kind: str, *parts: str) -> bytes:
        message = b"".join(len(data).to_bytes(4, "big") + data for data in (part.encode() for part in (kind, *parts)))
        return hmac.digest(self._secret, message, "sha256")

    def _remembered(self, entry: bytes) -> CredentialRef | ApiKey | None:
        verified = self._verified.get(entry)
        return verified.credential if verified is not None and self._clock.monotonic() < verified.until else None

    def _remember(self, entry: bytes, shown: CredentialRef | ApiKey, generation: int) -> None:
        if generation == self._generation and self._settings.login_cache_entries:
            self._verified[entry] = _Verified(shown, self._clock.monotonic() + self._settings.login_cache_s)
            self._verified.move_to_end(entry)
            while len(self._verified) > self._settings.login_cache_entries:
                self._verified.popitem(last=False)

    def forget(self) -> None:
        """Users or keys may have changed: nothing that was verified before counts any more."""
        self._generation += 1
        self._verified.clear()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        limit = self._settings.max_logins + self._settings.max_waiting_logins
        if self._waiting >= limit:
            raise TooManyLogins(limit=limit)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1
