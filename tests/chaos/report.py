"""Report: one page that anybody can open and nobody has to be online for: verdict, timeline, figures.

Data path   history, anomalies, figures, timeline -> **report** -> a file
Owns        the page; it needs nothing beside itself, and runs no script
Leaves      the picture to `timeline`, the numbers to `figures`
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from tests.history.anomaly import Anomaly

from .checker import promises
from .faults import PROFILES
from .figures import (
    KindOfFault,
    by_kind,
    effects,
    kind_of,
    latencies,
    pauses,
    quantile,
    totals,
)
from .history import History, Send
from .timeline import timeline
from .transaction_report import transactions_section

STYLE = Path(__file__).with_name("report.css")
LEGEND = (
    ("--ready", "ready"),
    ("--starting", "starting, waking"),
    ("--paused", "paused"),
    ("--stopping", "stopping"),
    ("--down", "down"),
    ("--store", "store cut off (dashed: reset, or bad answers)"),
    ("--database", "database cut off"),
    ("--clients", "clients cut off"),
    ("--peers", "other agents cut off"),
    ("--agent-1", "led by agent 1"),
    ("--agent-2", "2"),
    ("--agent-3", "3"),
    ("--agent-4", "4 · its epoch"),
    ("--pause", "no ack for 0.5 s or more"),
    ("--good", "faults are over"),
)


def write_report(path: Path, history: History, anomalies: Sequence[Anomaly]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(history, anomalies), encoding="utf-8")


def page(history: History, anomalies: Sequence[Anomaly]) -> str:
    parts = (_head(history), _verdict(history, anomalies), _tiles(history), _anomalies(anomalies))
    rest = (_picture(history, anomalies), _kinds(history), _promises(history, anomalies), _clients(history))
    last = (transactions_section(history), _exchanged(history), _faults(history), _notes(history))
    return "\n".join((*parts, *rest, *last, "</main></body></html>\n"))


def _head(history: History) -> str:
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Chaos run, seed {history.seed}</title>
<style>{STYLE.read_text()}</style></head><body><main>
<h1>Chaos run, seed {history.seed}</h1>
<p class="quiet">{history.minutes:g} minutes of faults on real processes: PostgreSQL, an S3 server and
{len(history.agents)} agents (one of them comes and goes), lease of {history.lease_ttl_s:g} s.
Again: <code>make chaos MINUTES={history.minutes:g} SEED={history.seed} PROFILE={history.profile}</code></p>"""


def _verdict(history: History, anomalies: Sequence[Anomaly]) -> str:
    if anomalies:
        kinds = Counter(each.kind for each in anomalies)
        result = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
        return f'<div class="verdict bad"><strong>Promises were broken.</strong> {escape(result)}</div>'
    every = totals(history)
    return (
        f'<div class="verdict good"><strong>Every promise was kept.</strong> All {every.acked:,} acknowledged records '
        f"are where they were acknowledged, read back from zero, and again after every agent was killed.</div>"
    )


def _tiles(history: History) -> str:
    every, waits = totals(history), latencies(history)
    longest = max((each.seconds for each in pauses(history)), default=0.0)
    moved = len(history.leaders) - len({leader.partition for leader in history.leaders})
    tiles = (
        (f"{len(history.faults)}", "faults"),
        (f"{every.acked:,}", f"acks of {every.sent:,} records sent"),
        (f"{every.stored:,}", "records in the log"),
        (f"{every.consumed:,}", "records consumed by groups"),
        (f"{every.commits_accepted:,}", f"commits accepted of {every.commits:,}"),
        (f"{moved}", "changes of leaders"),
        (f"{longest:.1f} s", "longest pause of a partition"),
        (f"{quantile(waits, 0.5) * 1000:.0f} ms", f"median latency; 99 %: {quantile(waits, 0.99):.2f} s"),
    )
    return '<div class="tiles">' + "".join(_tile(*each) for each in tiles) + "</div>"


def _tile(figure: str, what: str) -> str:
    return f'<div class="tile"><b>{escape(figure)}</b><span>{escape(what)}</span></div>'


def _anomalies(anomalies: Sequence[Anomaly]) -> str:
    if not anomalies:
        return ""
    rows = "".join(
        f'<tr><td class="anomaly">{escape(each.kind)}</td><td class="number">{_at(each.at)}</td>'
        f"<td>{escape(each.text)}</td></tr>"
        for each in anomalies
    )
    return f'<h2>What went wrong</h2><div class="card"><table>{rows}</table></div>'


def _picture(history: History, anomalies: Sequence[Anomaly]) -> str:
    legend = "".join(f'<span><i style="background:var({colour})"></i>{text}</span>' for colour, text in LEGEND)
    return (
        '<h2>Timeline</h2><p class="quiet">Minutes and seconds since the start. Dashed lines: a fault begins. '
        "Everything tells more when the pointer rests on it.</p>"
        f'<div class="card"><div class="legend">{legend}</div>{timeline(history, anomalies)}</div>'
    )


def _kinds(history: History) -> str:
    kinds = by_kind(effects(history))
    longest = max((kind.worst_s for kind in kinds), default=1.0) or 1.0
    rows = "".join(_kind_row(kind, longest) for kind in kinds)
    return f"""<h2>Pauses by kind of fault</h2>
<p class="quiet">From the fault to the next acknowledgement, in the slowest partition that it touched: one that its
target led, or any when it was done to everybody. Where faults of a kind came alone, only those count; pauses below
0.5 s count as none. A fault that is felt by all lasts as long as it lasts: the pause includes it. Felt: connections
cut or kept waiting, answers spoiled, times told wrongly; once for a process. {_left_out(history)}</p>
<div class="card"><table><tr><th>fault</th><th class="number">times</th><th class="number">alone</th>
<th class="number">felt</th><th class="number">median pause</th><th class="number">worst</th><th></th></tr>
{rows}</table></div>"""


def _left_out(history: History) -> str:
    """Kinds of the profile for which the run was too short."""
    left = [kind for kind in PROFILES[history.profile] if all(each.kind != kind for each in history.faults)]
    return f"Did not come in this run: {escape(', '.join(left))}." if left else "Every kind of the profile came."


def _kind_row(kind: KindOfFault, longest: float) -> str:
    bars = "".join(
        f'<div class="bar{extra}" style="width:{value / longest * 100:.1f}%"></div>'
        for value, extra in ((kind.median_s, ""), (kind.worst_s, " soft"))
    )
    return (
        f'<tr><td>{escape(kind.kind)}</td><td class="number">{kind.count}</td><td class="number">{kind.alone}</td>'
        f'<td class="number">{kind.hits:,}</td>'
        f'<td class="number">{_seconds(kind.median_s)}</td><td class="number">{_seconds(kind.worst_s)}</td>'
        f'<td class="wide">{bars}</td></tr>'
    )


def _promises(history: History, anomalies: Sequence[Anomaly]) -> str:
    rows = []
    for promise in promises(history):
        broken = sum(1 for _ in promise.broken()) if anomalies else 0
        state = f'<span class="anomaly">{broken} times broken</span>' if broken else '<span class="kept">kept</span>'
        rows.append(
            f'<tr><td>{escape(promise.name)}</td><td>{state}</td><td class="quiet">{escape(promise.text)}</td></tr>'
        )
    return f'<h2>What was checked</h2><div class="card"><table>{"".join(rows)}</table></div>'


def _clients(history: History) -> str:
    by_producer: dict[str, list[Send]] = {}
    for send in history.sends:
        by_producer.setdefault(send.record.producer, []).append(send)
    producers = "".join(_producer_row(history, name, sends) for name, sends in by_producer.items())
    return f"""<h2>Clients</h2><div class="columns"><div class="card"><table>
<tr><th>producer</th><th class="number">sent</th><th class="number">acked</th><th class="number">refused</th>
<th class="number">stored again</th><th class="number">99 % latency</th></tr>{producers}</table></div>
<div class="card"><table><tr><th>group</th><th class="number">members</th><th class="number">consumed</th>
<th class="number">commits</th><th class="number">accepted</th><th class="number">asked</th></tr>
{"".join(_group_rows(history))}</table></div></div>
<p class="quiet">Stubborn producers send to one agent only, whether it leads or not, and go on while it is paused:
what a zombie would acknowledge, they would be told. Idempotent producers must never be stored again; plain ones may be.
</p>"""


def _producer_row(history: History, name: str, sends: Sequence[Send]) -> str:
    stored = Counter(each.record for records in history.log.values() for each in records if each.record is not None)
    again = sum(max(0, stored[send.record] - 1) for send in sends)
    waits = sorted((send.answered_at or 0.0) - send.sent_at for send in sends if send.acked)
    figures = (len(sends), len(waits), sum(bool(send.error) for send in sends), again)
    cells = "".join(f'<td class="number">{figure:,}</td>' for figure in figures)
    return f'<tr><td>{escape(name)}</td>{cells}<td class="number">{quantile(waits, 0.99):.2f} s</td></tr>'


def _group_rows(history: History) -> Iterator[str]:
    for group in sorted({each.group for each in history.consumed}):
        consumed = [each for each in history.consumed if each.group == group]
        commits = [each for each in history.commits if each.group == group]
        figures = (
            len({each.member for each in consumed}),
            len(consumed),
            len(commits),
            sum(bool(each.accepted) for each in commits),
            sum(each.group == group for each in history.observed),
        )
        cells = "".join(f'<td class="number">{figure:,}</td>' for figure in figures)
        yield f"<tr><td>{escape(group)}</td>{cells}</tr>"


def _faults(history: History) -> str:
    rows = "".join(
        f'<tr><td class="number">{each.fault.begun_at:.1f} s</td><td>{escape(kind_of(each.fault))}</td>'
        f"<td>{escape(', '.join(each.fault.targets))}</td>"
        f'<td class="number">{_since(each.fault.begun_at, each.fault.ended_at)}</td>'
        f'<td class="number">{_since(each.fault.begun_at, each.fault.healed_at)}</td>'
        f'<td class="number">{each.fault.hits:,}</td><td class="number">{each.touched}</td>'
        f'<td class="number">{_seconds(each.pause_s)}</td>'
        f'<td class="quiet">{"alone " if each.alone else ""}{escape(each.fault.note)}</td></tr>'
        for each in effects(history)
    )
    return f"""<h2>Faults</h2><div class="card"><table><tr><th class="number">at</th><th>fault</th><th>whom</th>
<th class="number">lasted</th><th class="number">all ready after</th><th class="number">felt</th>
<th class="number">partitions</th><th class="number">longest pause</th><th></th></tr>{rows}</table></div>"""


def _exchanged(history: History) -> str:
    """The faults after the faults: databases that aren't the cluster's."""
    if (exchanged := history.exchanged) is None:
        return ""
    rows = "".join(
        f'<tr><td class="number">{each.begun_at:.1f} s</td><td>{escape(each.kind)}</td>'
        f"<td>{escape(', '.join(each.targets))}</td>"
        f'<td class="number">{_since(each.begun_at, each.healed_at)}</td><td>{escape(each.note)}</td></tr>'
        for each in exchanged.faults
    )
    acked = sum(each.acked for each in exchanged.sends)
    return f"""<h2>Databases that aren't the cluster's</h2>
<p class="quiet">At the end PostgreSQL fails over to a copy that lacks the last transactions, while {acked:,} records
are acknowledged; then agents are started on databases that don't belong to the bucket. Every agent must say so and
not serve; when the newest database is back, all that was acknowledged must be there.</p>
<div class="card"><table><tr><th class="number">at</th><th>what</th><th>agents</th><th class="number">over after</th>
<th>noticed</th></tr>{rows}</table></div>"""


def _notes(history: History) -> str:
    if not history.notes:
        return ""
    rows = "".join(
        f'<tr><td class="number">{each.at:.1f} s</td><td>{escape(each.who)}</td><td>{escape(each.text)}</td></tr>'
        for each in history.notes
    )
    return f"<details><summary>Notes of the run</summary><table>{rows}</table></details>"


def _at(at: float | None) -> str:
    return "" if at is None else f"{at:.2f} s"


def _since(begun_at: float, at: float | None) -> str:
    return "" if at is None else f"{at - begun_at:.1f} s"


def _seconds(value: float) -> str:
    return "none" if value == 0 else f"{value:.2f} s"
