"""Secrets that settings name: the text in a file or in an environment variable, never the secret itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streamhouse.errors import Misconfigured

FILE: Final = "file:"
ENVIRONMENT: Final = "env:"
MAX_SECRET_BYTES: Final = 64 * 1024


def read_secret(named: str, environ: Mapping[str, str], *, setting: str) -> str:
    """The secret behind `file:PATH` or `env:NAME`; raise `Misconfigured` if it can't be had, or is none."""
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
