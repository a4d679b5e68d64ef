"""Transaction report: the part of the page about transactions: how they ended, and whom faults met in the middle.

Data path   transaction_figures -> **transaction_report** -> report
Owns        its two tables
Leaves      the rest of the page to `report`
"""

from html import escape

from .history import History
from .transaction_figures import met, outcomes


def transactions_section(history: History) -> str:
    if not history.transactional.deals:
        return ""
    rows = "".join(
        f"<tr><td>{escape(each.family)}</td>"
        + "".join(f'<td class="number">{figure:,}</td>' for figure in each[1:-1])
        + f'<td class="number">{each.slowest_s:.2f} s</td></tr>'
        for each in outcomes(history)
    )
    struck = "".join(
        f'<tr><td>{escape(role)}</td><td>{escape(kind)}</td><td class="number">{times}</td></tr>'
        for (role, kind), times in sorted(met(history).items())
    )
    heads = "".join(
        f'<th class="number">{name}</th>'
        for name in (
            "instances",
            "committed",
            "aborted",
            "commit never asked for",
            "fate unknown",
            "of those there",
            "fenced",
            "records",
            "slowest commit",
        )
    )
    return f"""<h2>Transactions</h2><div class="columns"><div class="card"><table>
<tr><th>transactional id</th>{heads}</tr>{rows}</table></div>
<div class="card"><table><tr><th>in a transaction under way, the</th><th>was met by</th><th class="number">times</th>
</tr>{struck}</table></div></div>
<p class="quiet">{_waits(history)}. Copiers read what the others have committed, and commit copies and offsets in one
transaction; <i>single</i> is a producer without transactions, whose records stand between those of the others.</p>"""


def _waits(history: History) -> str:
    waits = list(history.transactional.open_for_s.values())
    if any(each is None for each in waits):
        return "At the end some transaction stayed open"
    slowest = max((each for each in waits if each is not None), default=0.0)
    return f"{slowest:.1f} s after the last client had ended no transaction was open"
