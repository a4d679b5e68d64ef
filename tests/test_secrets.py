"""Secrets that settings name, and the one that an agent makes for itself."""

from pathlib import Path

import pytest

from streamhouse.config import MetadataSettings, SecuritySettings, Settings
from streamhouse.config.secrets import Secrets, own_cluster_secret, read_secret, read_secrets
from streamhouse.errors import Misconfigured


def test_a_secret_is_the_text_of_a_file_or_of_a_variable(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    assert read_secret(f"file:{tmp_path}/secret", {}, setting="x") == "s3cret"
    assert read_secret("env:SECRET", {"SECRET": "s3cret"}, setting="x") == "s3cret"


@pytest.mark.parametrize("named", ["s3cret", "file:/nowhere/at/all", "env:NOTHING", "file:/", "env:EMPTY"])
def test_what_names_no_secret_is_refused_without_showing_a_secret(named: str) -> None:
    with pytest.raises(Misconfigured, match=r"security\.bootstrap_password"):
        read_secret(named, {"EMPTY": "", "OTHER": "hidden"}, setting="security.bootstrap_password")


def test_a_file_that_is_no_text_or_too_long_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "long").write_bytes(b"x" * 100_000)
    for name in ("binary", "long"):
        with pytest.raises(Misconfigured):
            read_secret(f"file:{tmp_path}/{name}", {}, setting="x")


def test_secrets_are_never_shown() -> None:
    secrets = Secrets(cluster_secret="a very secret text", bootstrap_password="b", tls_key_password="c")
    assert repr(secrets) == "<Secrets>"


def test_an_agent_that_is_alone_makes_its_secret_once_for_its_owner_only(tmp_path: Path) -> None:
    secret = own_cluster_secret(tmp_path)
    assert len(secret) >= 32
    assert own_cluster_secret(tmp_path) == secret
    assert (tmp_path / "cluster-secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("security", "why"),
    [
        (SecuritySettings(authorization="acls"), "cluster_secret"),
        (SecuritySettings(authorization="acls", cluster_secret="env:SHORT"), "too short"),
        (SecuritySettings(authorization="acls", cluster_secret="env:LONG"), "SASL_SSL or SASL_PLAINTEXT"),
        (SecuritySettings(bootstrap_user="admin"), "bootstrap_password"),
    ],
)
def test_agents_that_could_not_trust_each_other_do_not_start(security: SecuritySettings, why: str) -> None:
    settings = Settings(security=security, metadata=MetadataSettings(url="postgresql://h/db"))
    with pytest.raises(Misconfigured, match=why):
        read_secrets(settings, {"SHORT": "short", "LONG": "x" * 20})
