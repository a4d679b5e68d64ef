"""TLS: contexts of listeners and of connections to other agents, and the users whom client certificates name.

Certificate files are read again when they change (`ReloadingContext`): connections that are open go on, new ones get
the new certificate, with or without SNI. Files that can't be read, or don't belong together, leave the old ones in use.
"""

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streamhouse.clock import Clock
from streamhouse.config import SecuritySettings, Settings
from streamhouse.config.exposure import grpc_listeners, http_listeners, kafka_listeners
from streamhouse.config.secrets import Secrets
from streamhouse.errors import Misconfigured

log = logging.getLogger(__name__)

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
ALPN_HTTP: Final = ("http/1.1",)

Certificate = Mapping[str, Any]
"""What `SSLObject.getpeercert` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The TLS files of the settings; the key's password as it was read."""

    settings: SecuritySettings
    key_password: str = ""

    def __repr__(self) -> str:
        return f"<TlsFiles {self.settings.tls_certificate}>"  # never the password

    @property
    def paths(self) -> Sequence[Path]:
        named = (self.settings.tls_certificate, self.settings.tls_key, self.settings.tls_ca)
        return [Path(name) for name in named if name]

    def server_context(self) -> ssl.SSLContext:
        """A context of a listener, from the files as they are now; raise `Misconfigured`."""
        settings = self.settings
        if not settings.tls_certificate or not settings.tls_key:
            raise Misconfigured(
                "a listener with TLS needs security.tls_certificate and security.tls_key, two PEM files"
            )
        if settings.tls_client_auth != "none" and not settings.tls_ca:
            raise Misconfigured(
                f"security.tls_client_auth={settings.tls_client_auth} needs security.tls_ca, the authorities of clients"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[settings.tls_min_version]
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
        self._load_certificate(context)
        if settings.tls_ca:
            _load(lambda: context.load_verify_locations(settings.tls_ca), settings.tls_ca)
        context.verify_mode = _CLIENT_AUTH[settings.tls_client_auth]
        return context

    def client_context(self) -> ssl.SSLContext:
        """A context of connections to other agents: their certificates are checked, and ours is shown."""
        settings = self.settings
        context = ssl.create_default_context(cafile=None)
        context.minimum_version = _VERSIONS[settings.tls_min_version]
        if settings.tls_ca:
            _load(lambda: context.load_verify_locations(settings.tls_ca), settings.tls_ca)
        if settings.tls_certificate and settings.tls_key:
            self._load_certificate(context)
        return context

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        certificate, key = self.settings.tls_certificate, self.settings.tls_key
        _load(lambda: context.load_cert_chain(certificate, key, self.key_password or None), f"{certificate}, {key}")


def _load(load: Callable[[], None], paths: str) -> None:
    try:
        load()
    except FileNotFoundError:
        raise Misconfigured(f"a TLS file is missing; path={paths}") from None
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise Misconfigured(f"TLS files can't be used; path={paths} why={getattr(error, 'reason', error)}") from None


ACCEPTED: Final[ContextVar[socket.socket | None]] = ContextVar("accepted", default=None)
"""The socket whose handshake begins."""


class _Handshake(ssl.SSLObject):
    """Tells a client why its handshake fails. Event loops close the connection without the alert, and clients would
    connect again and again: to them it looks like a network that breaks off."""

    send_alert: Callable[[], None] | None = None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.send_alert is not None:
                self.send_alert()
            raise
        self.send_alert = None


class ReloadingContext(ssl.SSLContext):
    """A listener's context whose connections are made by the newest context that could be read."""

    current: ssl.SSLContext

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        wrapped = self.current.wrap_bio(incoming, outgoing, *args, **kwargs)
        accepted = ACCEPTED.get()
        if isinstance(wrapped, _Handshake) and accepted is not None:
            wrapped.send_alert = lambda: _send_rest(outgoing, accepted)
        return wrapped


def _send_rest(outgoing: ssl.MemoryBIO, accepted: socket.socket) -> None:
    """Send what is left, as far as the socket takes it at once."""
    if data := outgoing.read():
        with suppress(OSError):
            accepted.send(data)


class ServerTls:
    """The contexts of an agent's listeners, and the loop that keeps them up to date."""

    def __init__(self, files: TlsFiles, *, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._contexts: dict[tuple[str, ...], ReloadingContext] = {}
        self._seen = self._stamps()
        self._rules = parse_principal_rules(files.settings.tls_principal_rules)
        files.server_context()
        self._on_reload: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<ServerTls {self._files!r}>"

    @property
    def files(self) -> TlsFiles:
        return self._files

    def context(self, *alpn: str) -> ssl.SSLContext:
        """The context of a listener that offers these protocols by ALPN."""
        if alpn not in self._contexts:
            context = ReloadingContext(ssl.PROTOCOL_TLS_SERVER)
            context.current = self._made(alpn)
            self._contexts[alpn] = context
        return self._contexts[alpn]

    def user_of(self, certificate: Certificate | None) -> str | None:
        """The user whom a client's certificate names; None without one, or if no rule fits it."""
        return user_of(certificate, self._rules)

    def on_reload(self, call: Callable[[], None]) -> None:
        """Call this after new files were read."""
        self._on_reload.append(call)

    @asynccontextmanager
    async def reloading(self) -> AsyncIterator[None]:
        """Read changed files while this is entered."""
        task = asyncio.get_running_loop().create_task(self._watch(), name="tls-files")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(self._files.settings.tls_reload_s)
            self.reload()

    def reload(self) -> bool:
        """Read the files if they have changed; whether new ones are in use now."""
        if (stamps := self._stamps()) == self._seen:
            return False
        self._seen = stamps
        try:
            self._files.server_context()
            made = {alpn: self._made(alpn) for alpn in self._contexts}
        except Misconfigured as error:
            log.error("TLS files have changed and can't be used; the old ones stay", extra={"why": str(error)})
            return False
        for alpn, context in made.items():
            self._contexts[alpn].current = context
        for call in self._on_reload:
            call()
        log.info("TLS files were read again", extra={"certificate": self._files.settings.tls_certificate})
        return True

    def _made(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        context = self._files.server_context()
        context.sslobject_class = _Handshake
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def _stamps(self) -> Mapping[Path, tuple[int, int] | None]:
        return {path: _stamp(path) for path in self._files.paths}


def server_tls(settings: Settings, secrets: Secrets, clock: Clock) -> ServerTls | None:
    """The certificates of an agent's listeners; None where no listener has TLS."""
    specs = (*kafka_listeners(settings), *http_listeners(settings), *grpc_listeners(settings))
    if not any(spec.protocol.has_tls for spec in specs):
        return None
    return ServerTls(TlsFiles(settings=settings.security, key_password=secrets.tls_key_password), clock=clock)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


# --- users of certificates

_SHORT_NAMES: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "domainComponent": "DC",
    "userId": "UID",
    "streetAddress": "STREET",
    "emailAddress": "EMAILADDRESS",
}
_RULE: Final = re.compile(
    r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)(?:,|$)|(DEFAULT|SAN:email|SAN:dns|SAN:uri)(?:,|$)"
)
_SAN_KINDS: Final = {"SAN:email": "email", "SAN:dns": "DNS", "SAN:uri": "URI"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalRule:
    """How one kind of certificate gets a user's name; None: the whole distinguished name."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""
    alternative: str = ""

    def name_of(self, certificate: Certificate) -> str | None:
        """The user's name; None where the rule says nothing about this certificate."""
        if self.alternative:
            names = certificate.get("subjectAltName", ())
            return next((value for kind, value in names if kind == self.alternative), None)
        subject = distinguished_name(certificate)
        if self.pattern is None:
            return subject or None
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None
        name = match.expand(self.replacement)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


def parse_principal_rules(text: str) -> Sequence[PrincipalRule]:
    """The rules in `security.tls_principal_rules`, in Kafka's notation; raise `Misconfigured`."""
    rules: list[PrincipalRule] = []
    position, text = 0, text.strip()
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise Misconfigured(
                "bad value for security.tls_principal_rules; "
                f"at={text[position : position + 40]!r} allowed=RULE:PATTERN/REPLACEMENT/[LU],DEFAULT,SAN:email|dns|uri"
            )
        rules.append(_rule(match))
        position = match.end()
        position += len(text[position:]) - len(text[position:].lstrip())
    return rules


def _rule(match: re.Match[str]) -> PrincipalRule:
    pattern, replacement, case, word = match.groups()
    if word:
        return PrincipalRule(alternative=_SAN_KINDS.get(word, ""))
    try:
        compiled = re.compile(pattern)
        # Java writes $1 where Python writes \g<1>.
        template = re.sub(r"\$(\d+)", r"\\g<\1>", replacement)
        if any(int(number) > compiled.groups for number in re.findall(r"\\g<(\d+)>", template)):
            raise Misconfigured(f"a rule of security.tls_principal_rules names no group of its own; rule={match[0]!r}")
    except re.error as error:
        raise Misconfigured(
            f"a rule of security.tls_principal_rules is no regex; rule={match[0]!r} why={error}"
        ) from None
    return PrincipalRule(pattern=compiled, replacement=template, case=case)


def user_of(certificate: Certificate | None, rules: Sequence[PrincipalRule]) -> str | None:
    """The user whom a client's certificate names; None without a certificate, or if no rule fits it."""
    if not certificate:
        return None
    return next((name for rule in rules if (name := rule.name_of(certificate))), None)


def distinguished_name(certificate: Certificate) -> str:
    """The subject as Java writes it (RFC 2253): the last part first."""
    parts = certificate.get("subject", ())
    return ",".join(
        "+".join(f"{_SHORT_NAMES.get(key, key)}={_escaped(value)}" for key, value in part) for part in reversed(parts)
    )


def _escaped(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(escaped) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped
