"""Opening the key service that the settings name."""

from collections.abc import Mapping
from pathlib import Path

from streamhouse.clock import Clock
from streamhouse.config import EncryptionSettings
from streamhouse.errors import Misconfigured
from streamhouse.stores.encryption.aws import AwsKeys
from streamhouse.stores.encryption.base import KeyService
from streamhouse.stores.encryption.data_keys import DataKeys
from streamhouse.stores.encryption.google import GoogleKeys
from streamhouse.stores.encryption.http import KeyServiceHttp
from streamhouse.stores.encryption.key_file import KeyFile
from streamhouse.stores.encryption.vault import VaultKeys


def open_data_keys(settings: EncryptionSettings, environ: Mapping[str, str], clock: Clock) -> DataKeys:
    """Open without a request; raises `Misconfigured`."""
    return DataKeys(_service(settings, environ, clock), settings, clock=clock)


def _service(settings: EncryptionSettings, environ: Mapping[str, str], clock: Clock) -> KeyService:
    if settings.kms == "file":
        if not settings.key:
            raise Misconfigured("encryption.kms=file needs encryption.key: the path of the file with keys")
        return KeyFile(Path(settings.key))
    http = KeyServiceHttp(settings)
    if settings.kms == "vault":
        return VaultKeys(settings, http, environ)
    if settings.kms == "aws":
        return AwsKeys(settings, http, environ, clock)
    return GoogleKeys(settings, http, environ, clock)
