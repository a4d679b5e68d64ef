"""Nightly page: what a nightly run did and found, on one page that needs neither a network nor a script.

Data path   logs of the steps, JSON of the soak run -> **nightly_page** -> HTML
Owns        which figures are taken out of which log; the page
Leaves      running steps to `nightly`, curves and bars to `tests.soak.plot`, the soak run's own page to its `page`

A step that was not run, or left no log, is told as such.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from tests.soak.page import GRID, STYLE, SoakResult, load_result, told
from tests.soak.plot import bars, curve

TAIL_LINES: Final = 40
SOAK_JSON: Final = "soak.json"
CHAOS: Final = "chaos"
"""How the names of the chaos steps begin; each runs one profile of faults."""
SHOWN: Final = ("pss", "handles", "tasks", "objects", "rows", "connections")


class StepResult(NamedTuple):
    name: str
    command: str
    seconds: float
    failure: str


class Figure(NamedTuple):
    """A number of a step, by the last place in its log where the pattern stands."""

    step: str
    pattern: re.Pattern[str]
    text: str


def _figure(step: str, pattern: str, text: str) -> Figure:
    return Figure(step, re.compile(pattern, re.MULTILINE), text)


FIGURES: Final = (
    *(
        _figure(lane, r"(\d+) passed", "tests passed in {}")
        for lane in ("test-unit", "test-spark", "test-services", "test-java", "crash")
    ),
    _figure("simulate", r"^(\d+) seeds, \d+ failed", "seeds of the simulation"),
    _figure("simulate", r"^\d+ seeds, (\d+) failed", "seeds that failed"),
    _figure("simulate", r"\backs=(\d+)", "acks in the simulation"),
    _figure("mutants", r"^(\d+) of \d+ mutations are noticed", "mutations noticed"),
    _figure("mutants", r"^\d+ of (\d+) mutations are noticed", "mutations in all"),
    _figure("fuzz", r"(\d[\d,]*) frames", "mutated frames"),
    _figure("soak", r"^(\d+) failures of \d+ series", "failures of the soak run"),
)


CHAOS_FIGURES: Final = (
    (re.compile(r"\backed=(\d+)"), "acks in chaos"),
    (re.compile(r"^(\d+) anomalies", re.MULTILINE), "anomalies in chaos"),
)


@dataclass(frozen=True, kw_only=True)
class NightlyRun:
    """What is on the page."""

    results: Sequence[StepResult]
    seed: int
    logs: Mapping[str, str] = field(default_factory=dict)
    """The text of each step's log."""
    soak: SoakResult | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    left: Sequence[str] = ()
    """Steps that were not run yet."""

    @property
    def failed(self) -> list[StepResult]:
        return [each for each in self.results if each.failure]


def collect(results: Sequence[StepResult], *, folder: Path, seed: int, left: Sequence[str] = ()) -> NightlyRun:
    """What the steps left in the folder of their logs."""
    logs = {
        each.name: path.read_text(errors="replace")
        for each in results
        if (path := folder / f"{each.name}.log").exists()
    }
    ran = {each.name for each in results}
    soak = folder / SOAK_JSON
    return NightlyRun(
        results=results,
        seed=seed,
        logs=logs,
        soak=load_result(soak) if "soak" in ran and soak.exists() else None,
        links={name: page for name in ran if (folder / (page := f"{name}.html")).exists()},
        left=left,
    )


def figures(run: NightlyRun) -> Iterator[tuple[str, str]]:
    """The number and what it counts, of every step whose log has it; of chaos, the sum of its profiles."""
    for each in FIGURES:
        result = each.pattern.findall(run.logs.get(each.step, ""))
        if result:
            yield result[-1], each.text.format(each.step)
    for pattern, text in CHAOS_FIGURES:
        numbers = [int(found[-1]) for log in chaos_logs(run) if (found := pattern.findall(log))]
        if numbers:
            yield str(sum(numbers)), text


def chaos_logs(run: NightlyRun) -> list[str]:
    return [log for name, log in run.logs.items() if name.startswith(CHAOS)]


def faults(log: str) -> list[tuple[str, float]]:
    """Faults of each kind, by the simulation's totals."""
    kinds = re.findall(r"\b(fault|death):([\w -]+?)=(\d+)", log)
    return sorted(((f"{name} ({what})", float(count)) for what, name, count in kinds), key=lambda each: -each[1])


def felt(logs: Iterable[str]) -> list[tuple[str, float]]:
    """How often processes felt each kind of fault, in all chaos runs together."""
    counts: Counter[str] = Counter()
    for log in logs:
        for name, count in re.findall(r"^(.+): \d+ \(\d+ alone\), felt (\d+) times", log, re.MULTILINE):
            counts[name] += int(count)
    return [(name, float(count)) for name, count in counts.most_common()]


def write_page(path: Path, run: NightlyRun) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(run), encoding="utf-8")


def page(run: NightlyRun) -> str:
    return "\n".join(
        (
            f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Nightly run</title><style>{STYLE.read_text()}</style></head><body><main>
<h1>Nightly run</h1><p class="quiet">Random seeds again: <code>TEST_SEED={run.seed} make nightly</code></p>""",
            _verdict(run),
            _tiles(run),
            _steps(run),
            _card("Faults in the simulation", bars(faults(run.logs.get("simulate", "")), unit="", colour="--fault")),
            *_chaos(run),
            _card("What the guided fuzzers did", _fuzzers(run.logs.get("fuzz-decoders", ""))),
            *_soak(run.soak),
            *_failures(run),
            "</main></body></html>\n",
        )
    )


def _verdict(run: NightlyRun) -> str:
    missing = f" Not run yet: {escape(', '.join(run.left))}." if run.left else ""
    if run.failed:
        names = ", ".join(f"{each.name} ({each.failure})" for each in run.failed)
        return (
            f'<div class="verdict bad"><strong>{len(run.failed)} of {len(run.results)} steps failed.</strong> '
            f"{escape(names)}{missing}</div>"
        )
    look = "bad" if run.left else "good"
    return f'<div class="verdict {look}"><strong>All {len(run.results)} steps passed.</strong>{missing}</div>'


def _tiles(run: NightlyRun) -> str:
    tiles = "".join(
        f'<div class="tile"><b>{escape(number)}</b><span>{escape(text)}</span></div>' for number, text in figures(run)
    )
    return f'<div class="tiles">{tiles}</div>'


def _steps(run: NightlyRun) -> str:
    longest = max((each.seconds for each in run.results), default=1.0) or 1.0
    rows = "".join(_step_row(each, run, longest) for each in run.results)
    return f"""<h2>Steps</h2><div class="card"><table><tr><th>step</th><th>result</th><th class="number">minutes</th>
<th></th><th>command</th></tr>{rows}</table></div>"""


def _step_row(each: StepResult, run: NightlyRun, longest: float) -> str:
    result = (
        f'<span class="anomaly">{escape(each.failure)}</span>' if each.failure else '<span class="kept">passed</span>'
    )
    link = f' · <a href="{escape(run.links[each.name])}">its page</a>' if each.name in run.links else ""
    colour = "--bad" if each.failure else "--rate"
    return (
        f"<tr><td>{escape(each.name)}</td><td>{result}{link}</td>"
        f'<td class="number">{each.seconds / 60:.1f}</td><td class="wide"><div class="bar" '
        f'style="width:{each.seconds / longest * 100:.1f}%;background:var({colour})"></div></td>'
        f'<td class="quiet">{escape(each.command)}</td></tr>'
    )


def _card(title: str, body: str) -> str:
    shown = body if "<td" in body or "<svg" in body else '<p class="quiet">Not in this run.</p>'
    return f'<h2>{escape(title)}</h2><div class="card">{shown}</div>'


def _chaos(run: NightlyRun) -> Iterator[str]:
    logs = chaos_logs(run)
    anomalies = [
        line.removeprefix("ANOMALY ") for log in logs for line in log.splitlines() if line.startswith("ANOMALY ")
    ]
    yield _card("Faults that processes felt in chaos", bars(felt(logs), unit="", colour="--store"))
    if anomalies:
        yield "<ul>" + "".join(f'<li class="anomaly">{escape(each)}</li>' for each in anomalies) + "</ul>"


def _fuzzers(log: str) -> str:
    rows = [
        (name, float(count))
        for name, count in re.findall(r"^([\w -]+): (?:ok|FAILED).*?units: *(\d+)", log, re.MULTILINE)
    ]
    return bars(rows, unit="runs")


def _soak(soak: SoakResult | None) -> Iterator[str]:
    if soak is None:
        yield _card("Soak", "")
        return
    state = "; ".join(soak.failures) if soak.failures else f"none of {len(soak.verdicts)} series grows"
    yield f"<h2>Soak, {soak.minutes:g} minutes</h2><p>{escape(state)}</p>"
    names = [
        name
        for name in sorted(soak.values)
        if name.rpartition(" ")[2] in SHOWN and max(soak.values[name], default=0) > 1
    ]
    cards = "".join(
        f'<div class="card"><b>{escape(name)}</b><br><span class="quiet">{told(soak.verdicts[name])}</span>'
        f"{curve(list(soak.samples(name)), since=soak.warm_up_s, title=name)}</div>"
        for name in sorted(names, key=lambda each: each not in soak.growing)
    )
    yield f'<div style="{GRID}">{cards}</div>'


def _failures(run: NightlyRun) -> Iterator[str]:
    for each in run.failed:
        tail = "\n".join(run.logs.get(each.name, "no log").splitlines()[-TAIL_LINES:])
        yield f"<h2>The end of {escape(each.name)}</h2><div class='card'><pre>{escape(tail)}</pre></div>"


def as_json(results: Sequence[StepResult], seed: int) -> str:
    return json.dumps({"seed": seed, "steps": [each._asdict() for each in results]}, indent=1)
