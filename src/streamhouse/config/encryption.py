"""Settings of encryption at rest: who wraps data keys, and how long they are used."""

from typing import Annotated, Literal

from streamhouse.config.fields import Section, about


class EncryptionSettings(Section, frozen=True, kw_only=True):
    kms: Annotated[
        Literal["none", "file", "vault", "aws", "google"],
        about(
            "key service that wraps the keys of segments and write-ahead logs; `file`: a file with keys, for trials "
            "and small sites; `none`: nothing is encrypted, and nothing that is can be read"
        ),
    ] = "none"
    key: Annotated[
        str,
        about(
            "the wrapping key: the path of the file; the name of Vault's transit key; id, alias or ARN of the key in "
            "AWS KMS; resource name of the key in Google's"
        ),
    ] = ""
    new_objects: Annotated[bool, about("encrypt what is written from now on; off: only read what is encrypted")] = True
    url: Annotated[str, about("address of the key service; empty: the cloud's own; Vault needs one")] = ""
    vault_mount: Annotated[str, about("path of Vault's transit engine")] = "transit"
    vault_namespace: Annotated[str, about("namespace in Vault; empty: none")] = ""
    vault_token: Annotated[str, about("Vault's token, as file:PATH or env:NAME; read for each request")] = (
        "env:VAULT_TOKEN"
    )
    ca: Annotated[str, about("PEM file with the authorities of the key service; empty: the system's")] = ""
    timeout_s: Annotated[float, about("deadline of a request to the key service", gt=0)] = 5.0
    data_key_s: Annotated[
        float,
        about(
            "age at which an agent's data key is replaced; while the key service is unavailable it is used for up to "
            "twice as long, then writing waits",
            gt=0,
        ),
    ] = 3600.0
    cached_keys: Annotated[int, about("unwrapped data keys that are remembered", gt=0)] = 1000
    cached_key_s: Annotated[float, about("how long an unwrapped data key is remembered", gt=0)] = 600.0
    cached_objects: Annotated[int, about("objects whose encryption header is remembered", gt=0)] = 10_000
