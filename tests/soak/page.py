"""Page: what a soak run took, series by series, with its verdict, in one file.

Data path   result of a run -> **page** -> HTML, JSON
Owns        the page; the form in which a run is kept
Leaves      pictures to `plot`, the rule to `trend`; the looks to the style of chaos pages
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Final

from tests.soak.plot import bars, curve
from tests.soak.sampling import allowance_of
from tests.soak.trend import Sample, Verdict, judge

STYLE: Final = Path(__file__).parents[1] / "chaos" / "report.css"
GRID: Final = "display:grid;grid-template-columns:repeat(auto-fill,minmax(450px,1fr));gap:12px"


@dataclass(frozen=True, kw_only=True)
class SoakResult:
    """A run, as it is kept."""

    minutes: float
    warm_up_s: float
    at_s: Sequence[float]
    values: Mapping[str, Sequence[float]]
    done: Mapping[str, int]
    failed: Mapping[str, int]
    errors: Sequence[str] = ()
    troubles: Sequence[str] = ()
    """What is wrong whatever the series say: agents that ended, parts that did too little, looks that failed."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.values:
            self.verdicts[name] = judge(self.samples(name), since_s=self.warm_up_s, allowance=allowance_of(name))

    def samples(self, name: str) -> list[Sample]:
        return [Sample(at, value) for at, value in zip(self.at_s, self.values[name], strict=True)]

    @property
    def growing(self) -> list[str]:
        return [name for name, verdict in self.verdicts.items() if verdict.grows]

    @property
    def unjudged(self) -> list[str]:
        return [name for name, verdict in self.verdicts.items() if not verdict.enough]

    @property
    def failures(self) -> list[str]:
        results = [f"{name} grows: {told(self.verdicts[name])}" for name in self.growing]
        if self.unjudged or not self.verdicts:
            results.append(f"too few samples to judge {len(self.unjudged)} series")
        return [*results, *self.troubles]

    def as_json(self) -> dict[str, Any]:
        return {
            "minutes": self.minutes,
            "warm_up_s": self.warm_up_s,
            "at_s": list(self.at_s),
            "values": {name: list(values) for name, values in self.values.items()},
            "done": dict(self.done),
            "failed": dict(self.failed),
            "errors": list(self.errors),
            "troubles": list(self.troubles),
        }


def load_result(path: Path) -> SoakResult:
    return SoakResult(**json.loads(path.read_text()))


def told(verdict: Verdict) -> str:
    return (
        f"level {verdict.level:,.1f}, {verdict.growth:+,.1f} in the judged time ({verdict.per_hour:+,.1f} an hour), "
        f"allowed {verdict.allowed:,.1f}"
    )


def write_page(path: Path, result: SoakResult) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(result), encoding="utf-8")


def page(result: SoakResult) -> str:
    return "\n".join(
        (
            f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Soak run</title><style>{STYLE.read_text()}</style></head><body><main>
<h1>Soak run of {result.minutes:g} minutes</h1>
<p class="quiet">Three agents (one of them comes and goes), PostgreSQL and an S3 server, at a bounded rate. The first
{result.warm_up_s / 60:.1f} minutes (shaded) are not judged. A series grows if its slope (Theil and Sen's, over the
medians of 12 spans) comes to more than it is allowed in the judged time, and half of that is left without its largest
step.</p>""",
            _verdict(result),
            _done(result),
            "<h2>What grew</h2>" if result.growing else "",
            f'<div style="{GRID}">{"".join(_card(result, name) for name in result.growing)}</div>',
            *_groups(result),
            _errors(result),
            "</main></body></html>\n",
        )
    )


def _verdict(result: SoakResult) -> str:
    if failures := result.failures:
        items = "".join(f"<li>{escape(each)}</li>" for each in failures)
        return f'<div class="verdict bad"><strong>Not flat.</strong><ul>{items}</ul></div>'
    return f'<div class="verdict good"><strong>Flat.</strong> None of {len(result.verdicts)} series grows.</div>'


def _done(result: SoakResult) -> str:
    tables = (("What was done", result.done, "--rate"), ("What failed", result.failed, "--pause"))
    cards = "".join(
        f'<div class="card"><b>{title}</b>{bars(sorted(counts.items()), unit="", colour=colour)}</div>'
        for title, counts, colour in tables
    )
    return f'<div class="columns">{cards}</div>'


def _groups(result: SoakResult) -> Iterator[str]:
    """By kind, the last word of a name; what was nothing all the time is told in a line."""
    kinds = sorted({name.rpartition(" ")[2] for name in result.values})
    for kind in kinds:
        names = [name for name in sorted(result.values) if name.rpartition(" ")[2] == kind]
        shown = [name for name in names if any(result.values[name])]
        empty = [name.rpartition(" ")[0] for name in names if name not in shown]
        yield f"<h2>{escape(kind)}</h2>"
        if empty:
            yield f'<p class="quiet">Nothing all the time: {escape(", ".join(empty))}.</p>'
        yield f'<div style="{GRID}">{"".join(_card(result, name) for name in shown)}</div>'


def _card(result: SoakResult, name: str) -> str:
    verdict = result.verdicts[name]
    state = '<span class="anomaly">grows</span>' if verdict.grows else '<span class="kept">flat</span>'
    drawn = curve(list(result.samples(name)), since=result.warm_up_s, title=name)
    return f'<div class="card"><b>{escape(name)}</b> {state}<br><span class="quiet">{told(verdict)}</span>{drawn}</div>'


def _errors(result: SoakResult) -> str:
    items = "".join(f"<li>{escape(each)}</li>" for each in result.errors)
    return f"<details><summary>Errors that clients met</summary><ul>{items}</ul></details>" if items else ""
