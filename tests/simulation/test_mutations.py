"""The simulator itself is tested: with a guard taken out of the product, some seed must fail soon."""

import pytest

from tests.simulation.group_mutations import GROUP_MUTATIONS
from tests.simulation.job_mutations import JOB_MUTATIONS
from tests.simulation.mutations import MUTATIONS
from tests.simulation.placing_mutations import PLACING_MUTATIONS
from tests.simulation.scenario import run_seed
from tests.simulation.team_mutations import TEAM_MUTATIONS
from tests.simulation.transaction_mutations import TRANSACTION_MUTATIONS

ALL = {
    **MUTATIONS,
    **GROUP_MUTATIONS,
    **TEAM_MUTATIONS,
    **PLACING_MUTATIONS,
    **JOB_MUTATIONS,
    **TRANSACTION_MUTATIONS,
}
NO_TRANSACTIONS = {"transactors": 0, "committed_followers": 0}
"""Where it isn't about them, there are none: other things happen more often."""


@pytest.mark.parametrize("name", list(ALL))
def test_a_missing_guard_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = ALL[name]
    mutation.apply(monkeypatch)
    tweaks = {**NO_TRANSACTIONS, **mutation.tweaks}
    outcomes = (run_seed(seed, profile=mutation.profile, tweaks=tweaks) for seed in mutation.range)
    noticed = next((outcome.failure for outcome in outcomes if outcome.failure), None)
    assert noticed, f"nobody noticed: {name}"
    assert not noticed.startswith(("TypeError", "AttributeError")), f"the product has moved on: {name}; {noticed}"
