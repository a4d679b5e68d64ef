"""Tokens of owners in a runner: in files for it alone, renewed now and then, gone with the run."""

from pathlib import Path

from streamhouse.client.credentials import Credentials
from streamhouse.spark.agents.address import AgentLogin, address_options, with_login
from streamhouse.spark.pipelines.runner import RENEW_S, OwnerLogins
from streamhouse.spark.pipelines.runner_protocol import Renewed, Start, encode_message, read_command
from tests.contracts.clocks import ManualClock


def test_a_token_is_read_by_its_runner_alone_and_renewed() -> None:
    clock = ManualClock()
    logins = OwnerLogins("https://a:1", clock)
    login = logins.login(1, "first")
    assert isinstance(login, AgentLogin)
    path = Path(login.credentials.token_file)
    assert (path.stat().st_mode & 0o077, path.parent.stat().st_mode & 0o077) == (0, 0)
    assert login.credentials.headers == {"authorization": "Bearer first"}
    logins.renew({1: "too early", 2: "of no run"})
    assert login.credentials.bearer == "first"
    clock.advance(ms=round(RENEW_S * 1000))
    logins.renew({1: "second"})
    assert login.credentials.bearer == "second"
    assert with_login("https://a:1", address_options(login)) == login
    logins.keep([])
    assert not path.exists()
    logins.close()
    assert not path.parent.exists()


def test_where_nobody_logs_in_there_is_no_login() -> None:
    logins = OwnerLogins("a:1", ManualClock())
    assert logins.login(1, "") is None
    logins.close()


def test_tokens_are_in_no_repr_and_travel() -> None:
    start = Start(run=1, epoch=2, lineage="l", pipeline={}, token="sht1.secret")
    renewed = Renewed(deadline=1.0, tokens={1: "sht1.secret"})
    for command in (start, renewed):
        assert "secret" not in repr(command)
        assert read_command(encode_message(command)) == command
    made = Credentials(make_token=lambda: "sht1.secret")
    assert "secret" not in repr(made)
    assert made.headers == {"authorization": "Bearer sht1.secret"}
