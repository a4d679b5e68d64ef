"""Staging: the Markdown files of the repository become the source folder of one Sphinx site.

Owns        which files are pages, what they are called in the site, links between them, the order of the navigation
Leaves      HTML to Sphinx, and with it the check that every link and anchor of a page exists

The README is the home page. Its list of pages is the navigation of the site: each heading below `## Documentation` is
a group, and the pages that it links to are the entries. A folder's README lists the pages of the folder.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[2]
OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting-vulnerabilities.md",
    "benchmarks/README.md": "measuring.md",
}
"""Pages that live outside of docs/, with their names in the site."""
HOME: Final = "index.md"
IMAGES: Final = "docs/images"
LIST_OF_PAGES: Final = "## Documentation"

_LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^\]\[]*)\]\((?P<path>[^)#:\s]*)(?P<anchor>#[^)\s]*)?\)")
_FENCED: Final = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_HEADING: Final = re.compile(r"^(?=##)", re.MULTILINE)


class BrokenLink(Exception):
    """A page links to a file that doesn't exist."""


def pages(root: Path = ROOT) -> dict[str, str]:
    """The pages of the site: path in the repository, and path in the site."""
    inside = [page.relative_to(root).as_posix() for page in sorted(root.glob("docs/**/*.md"))]
    named = {page: page.removeprefix("docs/").replace("README.md", "index.md") for page in inside}
    return {**{page: name for page, name in OUTSIDE.items() if (root / page).exists()}, **named}


def stage(target: Path, root: Path = ROOT) -> None:
    """Write all pages and images into the target folder, with their links changed and with the navigation."""
    names = pages(root)
    if (root / IMAGES).is_dir():
        shutil.copytree(root / IMAGES, target / "images", dirs_exist_ok=True)
    for page, name in names.items():
        text = (root / page).read_text(encoding="utf-8")
        staged = relink(text, page, names, root).replace(f"]({IMAGES}/", "](images/")
        if PurePosixPath(name).name == HOME:
            staged += navigation(text, page, names)
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(staged, encoding="utf-8")


def relink(text: str, page: str, names: Mapping[str, str], root: Path = ROOT) -> str:
    """The text of a page with links that hold in the site. A link to a file that isn't a page becomes its text."""

    def replace(link: re.Match[str]) -> str:
        if not link["path"]:
            return link[0]
        target = resolve(page, link["path"], names, root)
        if target not in names:
            return link["text"]
        path = os.path.relpath(names[target], PurePosixPath(names[page]).parent)
        return f"[{link['text']}]({path}{link['anchor'] or ''})"

    return "".join(part if is_code else _LINK.sub(replace, part) for part, is_code in _parts(text))


def resolve(page: str, path: str, names: Mapping[str, str], root: Path = ROOT) -> str:
    """The file of the repository that a link means; a folder means its README where it has one."""
    target = os.path.normpath(PurePosixPath(page).parent / path)
    if not (root / target).exists():
        raise BrokenLink(f"{page} links to {path}, which doesn't exist")
    return f"{target}/README.md" if f"{target}/README.md" in names else target


def navigation(text: str, page: str, names: Mapping[str, str]) -> str:
    """The hidden tables of contents of a list of pages."""
    groups = {"": ["Quick start <self>"]} if page == "README.md" else {}
    caption, is_listing = "", page != "README.md"
    for part in _HEADING.split("".join(part for part, is_code in _parts(text) if not is_code)):
        heading = part.partition("\n")[0].strip()
        is_listing = is_listing or heading == LIST_OF_PAGES
        if heading.startswith("### "):
            caption = heading.removeprefix("### ")
        for link in _LINK.finditer(part) if is_listing else ():
            target = resolve(page, link["path"] or ".", names)
            if target in names and target != page:
                name = os.path.relpath(names[target], PurePosixPath(names[page]).parent)
                entries = groups.setdefault(caption, [])
                entries += [name] if name not in entries else []
    if "" in groups and len(groups) > 1:
        first = next(caption for caption in groups if caption)
        groups[first] = groups.pop("") + groups[first]
    return "".join(map(_toctree, groups.keys(), groups.values()))


def _toctree(caption: str, entries: list[str]) -> str:
    options = f":caption: {caption}\n" if caption else ""
    return "\n\n```{toctree}\n:hidden:\n" + options + "\n" + "\n".join(entries) + "\n```\n"


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """The text in parts, and whether each is a block of code."""
    for number, part in enumerate(_FENCED.split(text)):
        yield part, number % 2 == 1
