"""Directory of a local cluster: lock, secrets, environment file, logs and data.

DIR/lock  DIR/secrets.json  DIR/env  DIR/logs/*.log  DIR/postgres/  DIR/s3/  DIR/agents/N/
"""

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from streamhouse.clock import Ids
from streamhouse.errors import Misconfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Made once, for the servers remember them."""

    postgres: str
    s3: str


class ClusterDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def environment_file(self) -> Path:
        return self.path / "env"

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def take(self) -> IO[str]:
        """Lock it until the returned file is closed."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("w")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise Misconfigured(f"another cluster runs in {self.path}; stop it, or choose another --dir") from None
        except OSError as error:
            raise Misconfigured(
                f"the folder {self.path} can't be used: {error.strerror}; choose another --dir"
            ) from None
        for name in (self.environment_file, self._secrets_file):
            name.touch(mode=0o600)  # other users must never be able to read them
        return lock

    def secrets(self) -> Secrets:
        text = self._secrets_file.read_text()
        if text:
            return Secrets(**json.loads(text))
        ids = Ids()
        new_secrets = Secrets(postgres=ids.token(), s3=ids.token())
        partial = self._secrets_file.with_suffix(".new")
        partial.touch(mode=0o600)
        partial.write_text(json.dumps(asdict(new_secrets)))
        os.replace(partial, self._secrets_file)
        return new_secrets

    @property
    def _secrets_file(self) -> Path:
        return self.path / "secrets.json"
