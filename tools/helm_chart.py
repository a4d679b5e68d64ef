"""Renders the Helm chart for the tests: `python -m tools.helm_chart`. It needs helm 3 on the PATH; tests do not.

The tests compare what helm made of the chart with the kustomization and with what an agent has. The rendered file
begins with a digest of the chart, so that a chart that was changed since, and not rendered again, is noticed.
"""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "deploy" / "helm" / "streamhouse"
FOLDER: Final = ROOT / "tests" / "deploy" / "chart"
INSTALLATIONS: Final = ("default", "everything")
KUBERNETES: Final = "1.30"
TIMEOUT_S: Final = 60


def values_of(installation: str) -> Path:
    return FOLDER / f"{installation}.values.yaml"


def rendered_of(installation: str) -> Path:
    return FOLDER / f"{installation}.rendered.yaml"


def digest(installation: str) -> str:
    """Of all files of the chart, and of the installation's values."""
    sums = hashlib.sha256()
    for path in sorted(each for each in CHART.rglob("*") if each.is_file()):
        sums.update(f"{path.relative_to(CHART)}\n".encode() + path.read_bytes())
    sums.update(values_of(installation).read_bytes())
    return sums.hexdigest()


def render(installation: str) -> str:
    command = ["helm", "template", "streamhouse", str(CHART), "--namespace", "streamhouse"]
    command += ["--kube-version", KUBERNETES, "--values", str(values_of(installation))]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    return f"# Rendered by `python -m tools.helm_chart` from {digest(installation)}\n{run.stdout}"


def main() -> int:
    subprocess.run(["helm", "lint", str(CHART), "--values", str(values_of("default"))], check=True, timeout=TIMEOUT_S)
    for installation in INSTALLATIONS:
        rendered_of(installation).write_text(render(installation))
    return 0


if __name__ == "__main__":
    sys.exit(main())
