"""The site of the documentation: each page has an address of its own, and links lead to files that exist."""

from pathlib import Path

from tools.docs_site.staging import pages, stage


def test_each_page_has_an_address_of_its_own() -> None:
    names = list(pages().values())
    assert sorted(names) == sorted(set(names))


def test_a_page_at_the_root_is_staged_beside_one_of_the_same_name_below_docs(tmp_path: Path) -> None:
    stage(tmp_path)
    assert "Reporting" in (tmp_path / "reporting-vulnerabilities.md").read_text()
    assert "Listeners" in (tmp_path / "security.md").read_text()
