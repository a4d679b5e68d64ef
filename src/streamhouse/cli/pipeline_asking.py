"""Pipeline asking: what commands ask agents about pipelines, and how they wait until these run.

Owns        answers that are refusals, as errors; waiting for pipelines
Leaves      flags to the commands, how pipelines look to `pipeline_view`
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from streamhouse.cli.doors import Doors
from streamhouse.cli.output import StatusLine, say
from streamhouse.cli.pipeline_view import NO_ROOM, has_no_room, is_waiting_for_somebody, phase_of
from streamhouse.clock import SystemClock
from streamhouse.errors import Rejected, Unavailable

if TYPE_CHECKING:
    from streamhouse.client.http import Http


def path_of(name: str) -> str:
    return f"/v1/pipelines/{quote(name, safe='')}"


async def asked(http: "Http", method: str, path: str, body: object = None) -> dict[str, Any]:
    """What an agent answers; raises `Rejected` or `Unavailable` with its words where it refuses."""
    import msgspec

    answer = await http.ask(method, path, body=body)
    try:
        told: dict[str, Any] = msgspec.json.decode(answer.content) if answer.content else {}
    except msgspec.DecodeError:
        told = {}
    if answer.status >= 500:
        raise Unavailable(str(told.get("detail") or f"refused; status={answer.status}"))
    if answer.status >= 400:
        raise Rejected(str(told.get("detail") or f"refused; status={answer.status}"))
    return told


def phase_now(pipeline: Mapping[str, Any]) -> str:
    """What it does as it is defined now; what was told of an older revision says nothing of this one."""
    told = (pipeline.get("status") or {}).get("revision") or 0
    is_older = 0 < told < pipeline.get("revision", 0) and pipeline.get("wish") == "run"
    return "waiting" if is_older else phase_of(pipeline)


async def until_running(doors: Doors, address: str, names: Sequence[str]) -> None:
    """Wait until these pipelines run as they are defined now, and say so; raises `Rejected` where one fails."""
    status = StatusLine()
    async with doors.http(address) as http:
        while True:
            found = [await asked(http, "GET", path_of(name)) for name in names]
            waiting = [each for each in found if phase_now(each) not in ("running", "done", "paused")]
            failed = [each for each in waiting if phase_now(each) == "failed"]
            if failed:
                status.clear()
                raise Rejected("; ".join(f"{each['name']} failed: {each['status']['error']}" for each in failed))
            if not waiting:
                break
            supervisors = (await asked(http, "GET", "/v1/supervisors"))["supervisors"]
            hint = "" if supervisors else "; nobody runs pipelines yet, start one with: streamhouse pipelines run"
            if has_no_room(supervisors) and is_waiting_for_somebody(waiting):
                hint = f"; {NO_ROOM}"
            status.show(f"waiting for {', '.join(each['name'] for each in waiting)}{hint}")
            await SystemClock().sleep(0.5)
    status.clear()
    for each in found:
        say(f"{phase_of(each)} {each['name']}", color="green")
