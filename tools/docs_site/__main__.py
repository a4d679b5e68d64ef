"""Builds the site into the package, where an agent serves it at /docs: `python -m tools.docs_site [folder]`."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tools.docs_site.staging import ROOT, stage

PACKAGED: Final = ROOT / "src" / "streamhouse" / "wire" / "http" / "site"
HERE: Final = Path(__file__).parent
SERVED: Final = (".html", ".css", ".js", ".svg", ".png", ".woff2", ".ico")
"""What an agent serves; Sphinx writes more, which would only make the package larger."""


def build(target: Path) -> int:
    """Build the site into the folder; the exit code of Sphinx. A broken link, an anchor that doesn't exist and a page
    that no list has are errors."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder) / "source", Path(folder) / "site"
        stage(source)
        command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-j", "auto"]
        code = subprocess.run([*command, "-c", str(HERE), str(source), str(built)], check=False).returncode
        if code == 0:
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(built, target, ignore=_not_served)
    return code


def _not_served(folder: str, names: list[str]) -> set[str]:
    return {
        name
        for name in names
        if name.startswith(".") or not (name.endswith(SERVED) or (Path(folder) / name).is_dir()) or name == ".doctrees"
    }


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGED))
