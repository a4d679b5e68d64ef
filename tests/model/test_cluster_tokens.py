"""Tokens that are signed with the cluster secret."""

import pytest

from streamhouse.errors import NotAuthenticated
from streamhouse.model.access import AGENT, GROUP, USER, Principal
from streamhouse.model.cluster_tokens import CLOCK_SKEW_MS, PROCESS_TTL_S, ClusterTokens
from tests.contracts.clocks import ManualClock

SECRET = "correct horse battery staple"


def test_a_token_names_the_principal_and_its_groups() -> None:
    clock = ManualClock()
    token = ClusterTokens(SECRET, clock=clock).make(Principal(USER, "Ålice"), groups=(Principal(GROUP, "ops"),))
    caller = ClusterTokens(SECRET, clock=clock).verify(token)
    assert (caller.principal, caller.groups) == (Principal(USER, "Ålice"), (Principal(GROUP, "ops"),))
    assert not caller.is_unrestricted


def test_a_token_of_another_cluster_is_refused() -> None:
    clock = ManualClock()
    token = ClusterTokens(SECRET + "!", clock=clock).make(Principal(AGENT, "1"))
    with pytest.raises(NotAuthenticated, match="not signed"):
        ClusterTokens(SECRET, clock=clock).verify(token)


def test_a_token_ends() -> None:
    clock = ManualClock()
    tokens = ClusterTokens(SECRET, clock=clock)
    token = tokens.make(Principal(AGENT, "1"))
    clock.advance(ms=PROCESS_TTL_S * 1000 + CLOCK_SKEW_MS - 1000)
    tokens.verify(token)
    clock.advance(ms=2000)
    with pytest.raises(NotAuthenticated, match="expired"):
        tokens.verify(token)


def test_no_changed_character_is_accepted() -> None:
    clock = ManualClock()
    tokens = ClusterTokens(SECRET, clock=clock)
    token = tokens.make(Principal(USER, "alice"))
    for position in range(len(token)):
        changed = token[:position] + ("A" if token[position] != "A" else "B") + token[position + 1 :]
        if changed[-1:] != token[-1:] and position == len(token) - 1:
            continue  # the last character has spare bits
        with pytest.raises(NotAuthenticated):
            tokens.verify(changed)


@pytest.mark.parametrize("token", ["", "sht1.", "sht1..", "sht1.e30", "sht1.é.é", "x" * 5000, "sht1." + "a" * 5000])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(NotAuthenticated):
        ClusterTokens(SECRET, clock=ManualClock()).verify(token)
