"""The files of the console: vendored libraries are what they should be, and no data is ever parsed as HTML."""

import json
import re
from pathlib import Path

import pytest

from streamhouse.console import PAGES
from tools.console_vendor import MANIFEST, PACKAGES, VENDOR, differences
from tools.supply_chain import is_allowed

OWN = sorted(path for path in PAGES.rglob("*.js") if VENDOR not in path.parents)
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML|\beval\(|new Function|setAttribute"
    r"|createContextualFragment|DOMParser|https?://(?!www\.w3\.org)"
)
IMPORT = re.compile(r"""(?:\bfrom |\bimport\()"([^"]+)\"""")
MAX_LINES = 300


def test_vendored_files_are_those_of_the_packages() -> None:
    assert differences() == []


def test_a_changed_vendored_file_is_noticed(tmp_path: Path) -> None:
    for path in VENDOR.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "htm.js").write_bytes(b"changed")
    (tmp_path / "more.js").write_bytes(b"")
    assert differences(tmp_path) == ["htm.js", "more.js"]


def test_every_vendored_library_is_there_with_its_licence() -> None:
    result = {each["name"]: each for each in json.loads((VENDOR / MANIFEST).read_text(encoding="utf-8"))}
    assert result.keys() == {package.name for package in PACKAGES}
    for name, each in result.items():
        assert is_allowed(each["licence"])
        assert f"{name}.LICENSE.txt" in each["files"]


@pytest.mark.parametrize("path", OWN, ids=lambda path: str(path.relative_to(PAGES)))
def test_a_module_is_small_imports_what_is_there_and_parses_no_html(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert FORBIDDEN.findall(text) == []
    assert len(text.splitlines()) <= MAX_LINES
    for imported in IMPORT.findall(text):
        assert imported.startswith("."), imported
        assert (path.parent / imported).resolve().is_file(), imported


def test_the_page_has_no_inline_scripts_and_loads_only_its_own_files() -> None:
    page = (PAGES / "index.html").read_text(encoding="utf-8")
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert re.findall(r"<script(?![^>]*src=)", page) == []
    assert " style=" not in page
    assert all((PAGES / source.removeprefix("/console/files/{version}/")).is_file() for source in sources)
