"""The archive of `streamhouse doctor --bundle`: responses of agents, without secrets.

Owns which pages are fetched; what is hidden; the archive Leaves health checks to the agents

A page that can't be fetched is listed in the archive with the reason. Records are never read.
"""

import io
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamhouse import __version__
from streamhouse.cli.dependencies import Dependencies
from streamhouse.clock import SystemClock
from streamhouse.errors import StreamhouseError

if TYPE_CHECKING:
    from streamhouse.client.http import Http

SHARED: Final[Mapping[str, str]] = {
    "cluster": "/v1/cluster",
    "agents": "/v1/agents",
    "topics": "/v1/topics",
    "partitions": "/v1/partitions",
    "segments": "/v1/segments?limit=1000",
    "groups": "/v1/groups",
    "lag": "/v1/lag?history=true",
    "transactions": "/v1/transactions",
    "pipelines": "/v1/pipelines",
    "tables": "/v1/tables",
    "views": "/v1/views",
    "supervisors": "/v1/supervisors",
    "sql-workers": "/v1/sql/workers",
    "damaged-logs": "/v1/damaged-logs",
    "checks": "/v1/doctor",
}
OF_AN_AGENT: Final[Mapping[str, str]] = {
    "checks": "/v1/doctor?local=1",
    "metrics": "/metrics",
    "settings": "/v1/settings",
}
HIDDEN: Final = "(hidden)"
SECRET_NAME: Final = re.compile(r"password|passwd|secret|token|credential|private|api.?key|access.?key", re.IGNORECASE)
SECRET_IN_URL: Final = re.compile(r"(\w+://[^\s/:@\"']*):[^\s/@\"']+@")
SECRET_ASSIGNED: Final = re.compile(
    r"((?:password|passwd|secret|token|credential|api.?key|access.?key)[\w.\-]*['\"]?\s*[=:]\s*)('[^']*'|\"[^\"]*\"|[^\s,;&)'\"]+)",
    re.IGNORECASE,
)


async def write_bundle(deps: Dependencies, address: str, path: Path) -> dict[str, str]:
    """Write the archive; returns the pages that are missing, with the reasons."""
    pages: dict[str, bytes] = {}
    missing: dict[str, str] = {}
    async with deps.http(address) as http:
        agents = await http.agents()
        for name, page in SHARED.items():
            await _add(http, f"{name}.json", page, pages, missing)
    for agent in agents:
        if agent.is_alive:
            async with deps.http(address if agent.is_responder else agent.http) as http:
                for name, page in OF_AN_AGENT.items():
                    ending = "json" if page.startswith("/v1") else "txt"
                    await _add(http, f"agent-{agent.node}/{name}.{ending}", page, pages, missing)
    about = {"version": __version__, "made_at_ms": SystemClock().now_ms(), "missing": missing}
    pages["about.json"] = json.dumps(about, indent=2).encode()
    _write(path, pages)
    return missing


async def _add(http: "Http", name: str, page: str, pages: dict[str, bytes], missing: dict[str, str]) -> None:
    try:
        response = await http.send("GET", page)
    except StreamhouseError as error:
        missing[name] = str(error)
        return
    text = response.content.decode(errors="replace")
    if response.status != 200:
        missing[name] = f"status {response.status}"
    elif name.endswith(".json"):
        pages[name] = json.dumps(without_secrets(json.loads(text)), indent=2, ensure_ascii=False).encode()
    else:
        pages[name] = text.encode()


def without_secrets(value: Any, name: str = "") -> Any:
    """The same JSON, with possible secrets hidden: by name, or within a URL or statement."""
    if isinstance(value, dict):  # of a setting, its value has the setting's name
        named = str(value["name"]) if value.keys() >= {"name", "value"} else "value"
        return {key: without_secrets(item, named if key == "value" else key) for key, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item, name) for item in value]
    if not isinstance(value, str):
        return value
    if value and SECRET_NAME.search(name):
        return HIDDEN
    return SECRET_ASSIGNED.sub(rf"\1{HIDDEN}", SECRET_IN_URL.sub(rf"\1:{HIDDEN}@", value))


def _write(path: Path, pages: Mapping[str, bytes]) -> None:
    now_s = SystemClock().now_ms() // 1000
    with tarfile.open(path, "w:gz") as archive:
        for name in sorted(pages):
            entry = tarfile.TarInfo(f"streamhouse-support/{name}")
            entry.size, entry.mtime, entry.mode = len(pages[name]), now_s, 0o600
            archive.addfile(entry, io.BytesIO(pages[name]))
    path.chmod(0o600)
