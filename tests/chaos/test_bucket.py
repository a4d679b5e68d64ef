"""Another S3 server than a run's own is named by the environment, and must be one that tunnels can lead to."""

import pytest

from tests.chaos.bucket import VARIABLE, Bucket, named_bucket

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}


def test_without_the_variable_no_bucket_is_named_whatever_keys_there_are() -> None:
    assert named_bucket(KEYS, run="17") is None


def test_a_run_gets_a_prefix_of_its_own_and_nothing_of_the_environment_but_the_keys() -> None:
    environ = KEYS | {VARIABLE: "s3://records/x/", "HOME": "/root"}
    assert named_bucket(environ, run="17") == Bucket(url="s3://records/x/chaos-17", port=9000, environment=KEYS)


@pytest.mark.parametrize(
    "wrong",
    [
        {VARIABLE: "gs://records"},
        {"AWS_ENDPOINT_URL": ""},
        {"AWS_ENDPOINT_URL": "https://127.0.0.1:9000"},
        {"AWS_ENDPOINT_URL": "http://example.org:9000"},
    ],
)
def test_a_server_that_no_tunnel_leads_to_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(SystemExit, match="AWS_ENDPOINT_URL its server at"):
        named_bucket(KEYS | {VARIABLE: "s3://records"} | wrong, run="17")
