"""Command `streamhouse search`: find records of a topic by key, text, header or a field of their JSON."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, TopicName, http_addresses
from streamhouse.cli.output import StatusLine, count, counted, format_time, parse_time, print_line, print_note, size
from streamhouse.cli.typer_setup import help_text
from streamhouse.clock import SystemClock

HELP: Final = help_text(
    "Find records by key, text, header or a field of their JSON. Agents search and return only matches. All conditions "
    "must hold. Prints the matches as they are found, as JSON with --json.",
    "streamhouse search orders --key alice",
    "streamhouse search orders --text 'card declined' --since -1h",
    "streamhouse search orders --json-path user.id=7 --limit 5",
    "streamhouse search orders --header trace=4bf92f --json",
)


def search(
    context: typer.Context,
    topic: TopicName,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Records with this key.", show_default=False)] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", "-t", help="Records with this text in key, value or a header.", show_default=False),
    ] = None,
    header: Annotated[
        str | None,
        typer.Option("--header", metavar="NAME[=VALUE]", help="Records with this header.", show_default=False),
    ] = None,
    json_path: Annotated[
        list[str] | None,
        typer.Option(
            "--json-path",
            metavar="PATH=VALUE",
            help="Records with this value in their JSON, such as user.roles[0]=admin; may be repeated.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Start time: 2026-11-15T12:00 or -1h.", show_default=False),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="End time, exclusive.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of records.")] = 100,
    value_format: Annotated[
        str,
        typer.Option("--value-format", metavar="FORMAT", help="Show values as json, text, base64, or by their schema."),
    ] = "json",
    agents: Agents = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each record as a line of JSON.")] = False,
) -> None:
    body: dict[str, Any] = {"value_format": value_format}
    body |= {} if key is None else {"key": key}
    body |= {} if text is None else {"text": text}
    body |= {} if header is None else {"header": _header(header)}
    body |= {"json": [_condition(text_value) for text_value in json_path]} if json_path else {}
    body |= {} if since is None else {"from_ms": _time(since, "--since")}
    body |= {} if until is None else {"until_ms": _time(until, "--until")}
    if not {"key", "text", "header", "json"} & set(body):
        raise typer.BadParameter("give a condition: --key, --text, --header or --json-path")
    run(_search(dependencies_of(context), http_addresses(agents), topic, body, limit, as_json))


def _time(text: str, flag: str) -> int:
    try:
        return parse_time(text, now_ms=SystemClock().now_ms())
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint=flag) from None


def _header(text: str) -> dict[str, str]:
    name, has_value, value = text.partition("=")
    return {"name": name, "value": value} if has_value else {"name": name}


def _condition(condition: str) -> dict[str, object]:
    """Parse PATH=VALUE; the value is a JSON scalar, or else text."""
    path, has_value, text = condition.partition("=")
    if not has_value:
        raise typer.BadParameter(f"{condition!r} has no value; write PATH=VALUE", param_hint="--json-path")
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return {"path": path, "equals": text if isinstance(value, dict | list) else value}


async def _search(
    deps: Dependencies, address: str, topic: str, body: dict[str, Any], limit: int, as_json: bool
) -> None:
    status, offsets, found = StatusLine(), 0, 0
    sums = dict.fromkeys(("bytes", "skipped_bytes", "segments", "segments_needed"), 0)
    async with deps.http(address) as http:
        cursor: str | None = ""
        while cursor is not None and found < limit:
            request = {**body, "cursor": cursor, "limit": min(limit - found, 1000)}
            page = await http.search(topic, request)
            sums = {name: value + page["searched"][name] for name, value in sums.items()}
            offsets += page["searched"]["offsets"]
            status.clear()
            for record in page["records"]:
                _print(record, as_json)
            found += len(page["records"])
            cursor, left = page["cursor"], page["searched"]["left"]
            if cursor is not None and found < limit:
                status.show(
                    f"searched {count(offsets)} of {count(offsets + left)} offsets, {_searched(sums)}, "
                    f"found {counted(found, 'record')}"
                )
        status.clear()
    rest = "" if cursor is None else f", {count(left)} left"
    print_note(f"found {counted(found, 'record')}; searched {count(offsets)} offsets, {_searched(sums)}{rest}")


def _searched(sums: Mapping[str, int]) -> str:
    """Format the bytes read; if filters skipped segments, also the totals."""
    if not sums["skipped_bytes"]:
        return size(sums["bytes"])
    total = size(sums["bytes"] + sums["skipped_bytes"])
    return f"{size(sums['bytes'])} of {total}, {sums['segments_needed']} of {counted(sums['segments'], 'segment')}"


def _print(record: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(record, ensure_ascii=False))
        return
    position = f"{record['partition']}:{record['offset']}"
    key = "-" if record["key"] is None else _text(record["key"])
    print_line(f"{position:>14}  {format_time(record['timestamp_ms'])}  {key}  {_text(record['value'])}")


def _text(value: object) -> str:
    """Return one line; control characters are escaped."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
