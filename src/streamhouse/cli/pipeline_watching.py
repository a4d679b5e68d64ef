"""Pipeline watching: what agents say of pipelines, once or for as long as somebody looks.

Owns        asking again, and what of the answer is new
Leaves      flags to `pipelines`, tables on the screen to `pipeline_view`, refusals to `pipeline_asking`
"""

import json
from typing import TYPE_CHECKING, Any, Final

import typer

from streamhouse.cli.doors import Doors
from streamhouse.cli.output import console, on_terminal, print_json, say
from streamhouse.cli.pipeline_asking import asked, path_of
from streamhouse.cli.pipeline_view import print_pipelines
from streamhouse.cli.words import when
from streamhouse.clock import SystemClock

if TYPE_CHECKING:
    from streamhouse.client.http import Http

LOGS_LIMIT: Final = 1000


async def listed_once(doors: Doors, address: str) -> list[dict[str, Any]]:
    async with doors.http(address) as http:
        return await _listed(http)


async def find_supervisors(doors: Doors, address: str) -> list[dict[str, Any]]:
    """Those whose lease is held, with the pipelines that each of them has."""
    async with doors.http(address) as http:
        supervisors: list[dict[str, Any]] = (await asked(http, "GET", "/v1/supervisors"))["supervisors"]
        return supervisors


async def _listed(http: "Http") -> list[dict[str, Any]]:
    told = await asked(http, "GET", "/v1/pipelines")
    pipelines: list[dict[str, Any]] = told["pipelines"]
    return pipelines


async def watch_list(doors: Doors, address: str, as_json: bool) -> None:
    """On a terminal the table is drawn over the last one; a pipe gets one after the other."""
    async with doors.http(address) as http:
        while True:
            pipelines = await _listed(http)
            if on_terminal() and not as_json:
                console().clear()
            print_json(pipelines) if as_json else print_pipelines(pipelines)
            await SystemClock().sleep(1.0)


async def show_events(doors: Doors, address: str, name: str, limit: int, follow: bool, as_json: bool) -> None:
    path = f"{path_of(name)}/events?limit={{}}"
    async with doors.http(address) as http:
        seen: list[Any] = []
        while True:
            told = await asked(http, "GET", path.format(limit if not seen else LOGS_LIMIT))
            events = told["events"]
            fresh = [event for event in events if event not in seen]
            for event in fresh:
                _print_event(event, as_json)
            seen = events or seen
            if not follow:
                return
            await SystemClock().sleep(1.0)


def _print_event(event: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(event, ensure_ascii=False))
        return
    color = {"error": "red", "warning": "yellow"}.get(event["level"])
    say(f"{when(event['at_ms'])}  {event['level']:<7}  {event['text']}", color=color)
