"""Timeline: one picture of a run: what was done to each agent, who led, who paused, and what producers felt.

Data path   history, figures -> **timeline** -> report
Owns        lanes, scales and marks; it is SVG, as text
Leaves      colours to `report.css`, numbers to `figures`
"""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from math import log10
from typing import Final

from tests.history.anomaly import Anomaly

from .faults import CLOCK, CONNECTIONS, HICCUP, JOIN, PAUSE, RESTART
from .figures import Pause, Second, pauses, seconds
from .history import Fault, History, Leader, Life

LEFT: Final = 118
RIGHT: Final = 14
MIN_WIDTH: Final = 1400
PER_SECOND: Final = 7.0  # pixels, so that the longest run can still be read by scrolling
AGENT: Final = 62
LANE: Final = 17
GAP: Final = 14
CHART: Final = 92
SLOWEST_S: Final = 60.0
FASTEST_S: Final = 0.005
FEW_PIXELS: Final = 26
LANES: Final = {
    "store": (26, "var(--store)"),
    "database": (33, "var(--database)"),
    "clients": (40, "var(--clients)"),
    "other agents": (47, "var(--peers)"),
}
HOLES: Final = tuple(kind for kind in CONNECTIONS if kind.endswith("hole"))


def timeline(history: History, anomalies: Sequence[Anomaly]) -> str:
    return _Timeline(history, anomalies).draw()


class _Timeline:
    def __init__(self, history: History, anomalies: Sequence[Anomaly]) -> None:
        self._history = history
        self._anomalies = anomalies
        self._end = history.ended_at or max((send.sent_at for send in history.sends), default=1.0)
        self._width = max(MIN_WIDTH, LEFT + RIGHT + self._end * PER_SECOND)
        self._top = 6.0
        self._parts: list[str] = []

    def draw(self) -> str:
        for draw in (self._agents, self._stores, self._partitions, self._rate, self._latency, self._axis):
            self._parts += draw()
        behind = list(self._beginnings())
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self._width:.0f}" height="{self._top:.0f}" '
            f'viewBox="0 0 {self._width:.0f} {self._top:.0f}" role="img" aria-label="timeline of the run">'
        )
        return "\n".join([head, *behind, *self._parts, "</svg>"])

    def _x(self, at: float) -> float:
        return LEFT + min(max(at, 0.0), self._end) / self._end * (self._width - LEFT - RIGHT)

    # --- lanes ----------------------------------------------------------------------------------------------------

    def _agents(self) -> Iterator[str]:
        for agent in self._history.agents:
            top = self._top
            yield _text(0, top + 17, agent, "name")
            yield _text(0, top + 31, "store, database,", "quiet inside")
            yield _text(0, top + 44, "clients, agents", "quiet inside")
            yield from self._lives(agent, top)
            cuts = [each for each in self._history.faults if each.kind in CONNECTIONS and agent in each.targets]
            for fault in cuts:
                yield self._cut(fault, top)
            deeds = [each for each in self._history.faults if each.kind not in CONNECTIONS and agent in each.targets]
            for fault in deeds:
                yield self._deed(fault, top)
            self._top += AGENT
        self._top += GAP

    def _lives(self, agent: str, top: float) -> Iterator[str]:
        lives = [each for each in self._history.lives if each.agent == agent]
        for life, following in pairwise([*lives, Life(self._end, agent, "end")]):
            title = f"{agent} {life.state}: {life.at:.1f} s to {following.at:.1f} s"
            yield self._bar(life.at, following.at, top, 24, f"var(--{life.state})", title)
            if life.state == "down" and life.at > (self._history.healed_at or self._end):
                yield _text(self._x(life.at) + 4, top + 16, "killed", "inside")

    def _deed(self, fault: Fault, top: float) -> str:
        x = self._x(fault.begun_at)
        mark = f'<path d="M{x:.1f} {top:.1f} v24" stroke="var(--fault)" stroke-width="2">{_title(_told(fault))}</path>'
        return mark + _text(x + 4, top + 16, _short(fault), "inside")

    def _cut(self, fault: Fault, top: float) -> str:
        at, colour = LANES[fault.kind.partition(":")[0]]
        hatch = "" if fault.kind in HOLES else ' stroke-dasharray="4 2"'
        begun, ended = self._x(fault.begun_at), self._x(fault.ended_at or fault.begun_at)
        y = top + at + 3
        return (
            f'<path d="M{begun:.1f} {y:.1f} H{max(ended, begun + 2):.1f}" stroke="{colour}" stroke-width="6"{hatch}>'
            f"{_title(_told(fault))}</path>"
        )

    def _stores(self) -> Iterator[str]:
        yield _text(0, self._top + 13, "PostgreSQL", "name")
        yield self._bar(0, self._end, self._top, LANE, "var(--ready)", "PostgreSQL runs")
        for fault in self._history.faults:
            if fault.kind == RESTART:
                ended_at = fault.ended_at or fault.begun_at
                yield self._bar(fault.begun_at, ended_at, self._top, LANE, "var(--down)", _told(fault))
                yield _text(self._x(fault.begun_at) + 4, self._top + 13, fault.note or "restarted", "inside")
        self._top += LANE + GAP

    def _partitions(self) -> Iterator[str]:
        result = pauses(self._history)
        for partition in range(self._history.partitions):
            yield _text(0, self._top + 13, f"partition {partition}", "name")
            yield from self._leaders(partition)
            for pause in (each for each in result if each.partition == partition):
                yield self._pause(pause)
            self._top += LANE + 4
        self._top += GAP

    def _leaders(self, partition: int) -> Iterator[str]:
        leaders = [each for each in self._history.leaders if each.partition == partition]
        for leader, following in pairwise([*leaders, Leader(self._end, partition, "", 0)]):
            number = leader.agent.removeprefix("agent ") or "none"
            title = f"{leader.agent or 'nobody'}, epoch {leader.epoch}: {leader.at:.1f} s to {following.at:.1f} s"
            yield self._bar(leader.at, following.at, self._top, LANE, f"var(--agent-{number})", title)
            if self._x(following.at) - self._x(leader.at) > FEW_PIXELS:
                yield _text(self._x(leader.at) + 3, self._top + 12, f"{number} · {leader.epoch}", "epoch")

    def _pause(self, pause: Pause) -> str:
        title = f"partition {pause.partition}: no ack for {pause.seconds:.2f} s from {pause.begun_at:.1f} s on"
        return self._bar(pause.begun_at, pause.ended_at, self._top + LANE - 4, 5, "var(--pause)", title)

    # --- charts ---------------------------------------------------------------------------------------------------

    def _rate(self) -> Iterator[str]:
        result = list(seconds(self._history, 0.5))
        most = max((each.acks * 2 for each in result), default=1)
        yield from self._frame("acks / s", [(0, "0"), (most, str(most))], top_value=most)
        base = self._top + CHART
        points = [(self._x(each.at + 0.25), base - each.acks * 2 / most * (CHART - 8)) for each in result]
        if points:
            shape = " ".join(f"L{x:.1f} {y:.1f}" for x, y in points)
            area = f"M{points[0][0]:.1f} {base:.1f} {shape} L{points[-1][0]:.1f} {base:.1f} Z"
            yield f'<path d="{area}" fill="var(--rate)" opacity="0.35"/>'
            yield f'<path d="M{shape[1:]}" fill="none" stroke="var(--rate)" stroke-width="1.3"/>'
        self._top += CHART + GAP

    def _latency(self) -> Iterator[str]:
        marks = [(value, label) for value, label in ((0.01, "10 ms"), (0.1, "100 ms"), (1, "1 s"), (10, "10 s"))]
        yield _text(0, self._top + 13, "ack latency", "name")
        yield _text(0, self._top + 28, "median, 99 %", "quiet inside")
        for value, label in marks:
            yield from self._rule(self._height(value), label)
        results = [each for each in seconds(self._history) if each.acks]
        for share, colour in (("median_s", "var(--rate)"), ("high_s", "var(--high)")):
            yield from self._curve(results, share, colour)
        for anomaly in self._anomalies:
            if anomaly.at is not None:
                place = f"M{self._x(anomaly.at):.1f} {self._top:.1f} v{CHART}"
                yield f'<path d="{place}" stroke="var(--bad)" stroke-width="2">{_title(str(anomaly))}</path>'
        self._top += CHART + 6

    def _curve(self, result: Sequence[Second], share: str, colour: str) -> Iterator[str]:
        for each in result:
            x, y = self._x(each.at + 0.5), self._height(getattr(each, share))
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.9" fill="{colour}"/>'

    def _height(self, value: float) -> float:
        low, high = log10(FASTEST_S), log10(SLOWEST_S)
        share = (log10(min(max(value, FASTEST_S), SLOWEST_S)) - low) / (high - low)
        return self._top + CHART - share * CHART

    def _frame(self, name: str, marks: Sequence[tuple[int, str]], *, top_value: int) -> Iterator[str]:
        yield _text(0, self._top + 13, name, "name")
        for value, label in marks:
            yield from self._rule(self._top + CHART - value / top_value * (CHART - 8), label)

    def _rule(self, y: float, label: str) -> Iterator[str]:
        yield f'<path class="grid" d="M{LEFT} {y:.1f} H{self._width - RIGHT:.1f}"/>'
        yield f'<text class="quiet" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'

    def _axis(self) -> Iterator[str]:
        step = next(step for step in (5, 10, 30, 60, 300, 600) if self._end / step < self._width / 45)
        yield f'<path class="line" d="M{LEFT} {self._top:.1f} H{self._width - RIGHT:.1f}"/>'
        for at in range(0, int(self._end) + 1, step):
            x = self._x(at)
            yield f'<path class="line" d="M{x:.1f} {self._top:.1f} v4"/>'
            yield f'<text class="quiet" x="{x:.1f}" y="{self._top + 16:.1f}" text-anchor="middle">{_clock(at)}</text>'
        self._top += 24

    def _beginnings(self) -> Iterator[str]:
        """Lines through everything, so that an effect is seen below its cause; drawn first, to lie behind."""
        for fault in self._history.faults:
            x = self._x(fault.begun_at)
            yield f'<path class="begin" d="M{x:.1f} 0 V{self._top - 24:.1f}"/>'
        if self._history.healed_at is not None:
            x = self._x(self._history.healed_at)
            yield f'<path d="M{x:.1f} 0 V{self._top - 24:.1f}" stroke="var(--good)" stroke-width="1.5" opacity="0.7">'
            yield f"{_title('the faults are over')}</path>"

    def _bar(self, begun_at: float, ended_at: float, top: float, height: float, fill: str, title: str) -> str:
        x, width = self._x(begun_at), max(self._x(ended_at) - self._x(begun_at), 0.8)
        return (
            f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height}" rx="2" fill="{fill}">'
            f"{_title(title)}</rect>"
        )


def _short(fault: Fault) -> str:
    names = {PAUSE: "STOP", HICCUP: "stop", JOIN: "joins", CLOCK: f"clock {fault.note.removeprefix('by ')}"}
    return names.get(fault.kind, fault.kind.removeprefix("SIG"))


def _told(fault: Fault) -> str:
    over = (
        f", over after {fault.ended_at - fault.begun_at:.1f} s, felt {fault.hits} times"
        if fault.ended_at is not None
        else ""
    )
    note = f" ({fault.note})" if fault.note else ""
    return f"{fault.begun_at:.1f} s: {fault.kind}, {', '.join(fault.targets)}{over}{note}"


def _clock(at: int) -> str:
    return f"{at // 60}:{at % 60:02}"


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"
