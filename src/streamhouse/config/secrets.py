"""Secrets that settings name: the text in a file or in an environment variable, never the secret itself."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamhouse.config.exposure import http_listeners, kafka_listeners
from streamhouse.config.settings import Settings
from streamhouse.errors import Misconfigured

FILE: Final = "file:"
ENVIRONMENT: Final = "env:"
MAX_SECRET_BYTES: Final = 64 * 1024
MIN_CLUSTER_SECRET_CHARS: Final = 16
CLUSTER_SECRET_FILE: Final = "cluster-secret"
"""In the data folder of an agent that is alone and was given no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """The secrets of an agent."""

    cluster_secret: str = ""
    bootstrap_password: str = ""
    tls_key_password: str = ""

    def __repr__(self) -> str:
        return "<Secrets>"  # never what is in it


def read_secrets(settings: Settings, environ: Mapping[str, str]) -> Secrets:
    """The secrets that the settings name; raise `Misconfigured` where access control lacks one."""
    security = settings.security

    def read(named: str, setting: str) -> str:
        return read_secret(named, environ, setting=f"security.{setting}") if named else ""

    known = Secrets(
        cluster_secret=read(security.cluster_secret, "cluster_secret"),
        bootstrap_password=read(security.bootstrap_password, "bootstrap_password"),
        tls_key_password=read(security.tls_key_password, "tls_key_password"),
    )
    if known.cluster_secret and len(known.cluster_secret) < MIN_CLUSTER_SECRET_CHARS:
        raise Misconfigured(
            f"security.cluster_secret is too short; it needs {MIN_CLUSTER_SECRET_CHARS} characters or more"
        )
    if security.bootstrap_user and not known.bootstrap_password:
        raise Misconfigured("security.bootstrap_user needs security.bootstrap_password, as file:PATH or env:NAME")
    if security.authorization == "acls" and settings.metadata.url:
        _check_agents_can_log_in(settings, known)
    return known


def own_cluster_secret(folder: Path) -> str:
    """The cluster secret of the only agent of a data folder, made at its first start.

    SQL workers and supervisors on the same machine name the same file.
    """
    path = folder / CLUSTER_SECRET_FILE
    try:
        if not path.exists():
            _write_secret(path, secrets.token_urlsafe(32))
    except OSError as error:
        raise Misconfigured(f"the cluster secret can't be written; path={path} why={error.strerror}") from None
    return read_secret(f"{FILE}{path}", {}, setting="security.cluster_secret")


def _write_secret(path: Path, secret: str) -> None:
    """Write a file that only its owner reads, whole or not at all."""
    staged = path.with_suffix(".new")
    staged.unlink(missing_ok=True)
    with os.fdopen(os.open(staged, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)


def _check_agents_can_log_in(settings: Settings, secrets: Secrets) -> None:
    """Raise `Misconfigured` if agents with access control couldn't prove to each other that they are agents."""
    if not secrets.cluster_secret:
        raise Misconfigured(
            "agents with access control need a secret that all of them share: security.cluster_secret=file:PATH"
        )
    for section, specs in (("kafka", kafka_listeners(settings)), ("http", http_listeners(settings))):
        if not specs[0].protocol.has_login:
            raise Misconfigured(
                f"agents log in at each other's first {section} listener, so it needs SASL_SSL or SASL_PLAINTEXT; "
                f"listener={specs[0].name} protocol={specs[0].protocol} setting={section}.protocol"
            )


def read_secret(named: str, environ: Mapping[str, str], *, setting: str) -> str:
    """The secret behind `file:PATH` or `env:NAME`; raise `Misconfigured` if it can't be read or is empty."""
    if named.startswith(FILE):
        secret = _from_file(Path(named[len(FILE) :]), setting=setting)
    elif named.startswith(ENVIRONMENT):
        secret = environ.get(named[len(ENVIRONMENT) :], "")
    else:
        raise Misconfigured(f"a secret is named as file:PATH or env:NAME, not written into settings; where={setting}")
    if not secret:
        raise Misconfigured(f"the secret is empty or missing; where={setting} named={named}")
    return secret


def _from_file(path: Path, *, setting: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SECRET_BYTES + 1)
        if len(data) > MAX_SECRET_BYTES:
            raise Misconfigured(f"the secret is too long; where={setting} path={path} limit_bytes={MAX_SECRET_BYTES}")
        return data.decode().rstrip("\r\n")
    except OSError as error:
        raise Misconfigured(f"the secret can't be read; where={setting} path={path} why={error.strerror}") from None
    except UnicodeDecodeError:
        raise Misconfigured(f"the secret is not UTF-8; where={setting} path={path}") from None
