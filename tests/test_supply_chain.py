"""What StreamHouse is made of: the SBOM and the licences of its dependencies."""

import pytest

from tools.supply_chain import LOCK, is_allowed, pins, refused, sbom, vendored


def test_every_locked_dependency_is_a_component_with_version_and_hashes() -> None:
    locked = list(pins(LOCK.read_text(encoding="utf-8")))
    names = {line.partition("==")[0].lower() for line in LOCK.read_text().splitlines() if "==" in line}
    document = sbom(locked)
    libraries = {package["name"] for package in vendored()}
    assert {component["name"] for component in document["components"]} == names | libraries
    assert "preact" in libraries
    assert all(component["version"] and component["hashes"] for component in document["components"])
    assert len(names) > 50


def test_every_installed_dependency_has_a_licence_that_is_allowed() -> None:
    assert refused(list(pins(LOCK.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    ("licence", "is_fine"),
    [
        ("MIT", True),
        ("Apache-2.0 OR AGPL-3.0-only", True),
        ("MIT AND BSD-3-Clause", True),
        ("MIT AND GPL-3.0-only", False),
        ("AGPL-3.0-only", False),
        ("", False),
    ],
)
def test_licences_are_judged_by_their_expressions(licence: str, is_fine: bool) -> None:
    assert is_allowed(licence) is is_fine
