"""The page about reliability names modules, tests and mutations that exist."""

import re
from pathlib import Path

from tests.simulation.group_mutations import GROUP_MUTATIONS
from tests.simulation.job_mutations import JOB_MUTATIONS
from tests.simulation.mutations import MUTATIONS
from tests.simulation.placing_mutations import PLACING_MUTATIONS
from tests.simulation.team_mutations import TEAM_MUTATIONS
from tests.simulation.transaction_mutations import TRANSACTION_MUTATIONS
from tests.simulation.wire_mutations import WIRE_MUTATIONS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()


def test_every_module_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`([a-z_/]+\.py)`", PAGE))
    assert len(named) > 40
    roots = (ROOT, ROOT / "src" / "streamhouse")
    assert [path for path in sorted(named) if not any((root / path).is_file() for root in roots)] == []


def test_every_test_that_the_page_names_is_there() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", PAGE))
    assert len(named) > 40
    assert [name for name in sorted(named) if f"def {name}(" not in sources] == []


def test_every_mutation_that_the_page_names_is_there() -> None:
    cells = [line.split("|")[4] for line in PAGE.splitlines() if line.count("|") == 5]
    named = {name for cell in cells if "sim: " in cell for name in re.findall(r'"([^"]+)"', cell)}
    assert len(named) > 30
    known = {*MUTATIONS, *GROUP_MUTATIONS, *TEAM_MUTATIONS, *PLACING_MUTATIONS, *JOB_MUTATIONS}
    known |= {*TRANSACTION_MUTATIONS, *WIRE_MUTATIONS}
    assert named - known == set()
