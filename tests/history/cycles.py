"""Cycles: transactions depend on each other in no circle.

Data path   history -> **cycles** -> anomalies
Owns        the graph of dependencies, its strongly connected parts, the names of cycles
Leaves      what a single transaction must keep to `transaction_checks`

An edge from one transaction to another means that the first one was committed first:

    id      the same transactional id committed them one after the other
    ww      one transactional id: a record of the first stands below one of the second. Of different ids records may
            stand in any order, here as in Kafka, so those have no such edge. A committed offset of a group is written
            like a register: the lower one first
    wr      the second read a record of the first, as a reader of committed records, or began where the first had
            committed
    rw      the first began at an offset which the second has moved on from

A circle of id and ww is G0, with wr G1c, with rw G-single.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import pairwise
from typing import Final, NamedTuple

from .anomaly import Anomaly, Kind
from .events import Outcome, Range, Transaction
from .index import Index

WRITES: Final = frozenset({"id", "ww"})
READS: Final = WRITES | {"wr"}
ALL: Final = READS | {"rw"}


class Edge(NamedTuple):
    to: str
    kind: str
    why: str


Graph = Mapping[str, Sequence[Edge]]


def transactions_go_round_in_no_circle(index: Index) -> Iterator[Anomaly]:
    """Committed transactions can be put in an order that explains what each of them wrote and read."""
    graph = dependencies(index)
    blamed: set[str] = set()
    for kind, allowed in ((Kind.G0, WRITES), (Kind.G1C, READS), (Kind.G_SINGLE, ALL)):
        for part in strong_parts(graph, allowed):
            if blamed.isdisjoint(part):
                circle = shortest_circle(graph, part, allowed)
                blamed |= part
                yield Anomaly(kind=kind, text=_told(circle))


def _told(circle: Sequence[Edge]) -> str:
    names = [circle[-1].to, *(edge.to for edge in circle)]
    steps = zip(names, circle, strict=False)
    return "; ".join(f"{one} before {edge.to} ({edge.kind}: {edge.why})" for one, edge in steps)


# --- the graph ----------------------------------------------------------------------------------------------------


def dependencies(index: Index) -> Graph:
    """Of committed transactions, and of those in doubt of which something is committed."""
    nodes = {each.label: each for each in index.history.transactions if _is_committed(index, each)}
    graph: dict[str, list[Edge]] = {label: [] for label in nodes}
    for one, edge in (*_by_id(nodes), *_by_records(index, nodes), *_by_reads(index, nodes), *_by_offsets(nodes)):
        if one != edge.to:
            graph[one].append(edge)
    return graph


def _is_committed(index: Index, transaction: Transaction) -> bool:
    if transaction.is_given_up:
        return False
    if transaction.outcome is Outcome.COMMITTED:
        return True
    return transaction.may_be_committed and transaction.label in index.seen_committed


def _by_id(nodes: Mapping[str, Transaction]) -> Iterator[tuple[str, Edge]]:
    by_id: dict[str, list[Transaction]] = defaultdict(list)
    for each in nodes.values():
        by_id[each.transactional_id].append(each)
    for name, transactions in by_id.items():
        for one, other in pairwise(sorted(transactions, key=lambda each: each.order)):
            yield one.label, Edge(other.label, "id", name)


def _by_records(index: Index, nodes: Mapping[str, Transaction]) -> Iterator[tuple[str, Edge]]:
    for partition, log in index.logs.items():
        last: dict[str, str] = {}
        for item in log.items:
            transaction = index.transaction_of(item.value)
            if transaction is None or transaction.label not in nodes:
                continue
            before = last.get(transaction.transactional_id)
            if before is not None and before != transaction.label:
                yield before, Edge(transaction.label, "ww", f"{partition} at {item.offset}")
            last[transaction.transactional_id] = transaction.label


def _by_reads(index: Index, nodes: Mapping[str, Transaction]) -> Iterator[tuple[str, Edge]]:
    for poll in index.history.polls:
        if poll.transaction in nodes and poll.is_committed:
            for item in poll.items:
                writer = index.transaction_of(item.value)
                if writer is not None and writer.label in nodes:
                    yield writer.label, Edge(poll.transaction or "", "wr", f"{poll.partition} at {item.offset}")


def _by_offsets(nodes: Mapping[str, Transaction]) -> Iterator[tuple[str, Edge]]:
    registers: dict[tuple[str, str], list[tuple[Range, str]]] = defaultdict(list)
    for label, each in nodes.items():
        for consumed in each.consumed:
            registers[consumed.group, consumed.partition].append((consumed, label))
    for (group, partition), ranges in registers.items():
        ranges.sort(key=lambda each: (each[0].end, each[0].start))
        why = f"offset of {group} in {partition}"
        for (one, label), (other, following) in pairwise(ranges):
            yield label, Edge(following, "ww", why)
            if other.start >= one.end:
                yield label, Edge(following, "wr", why)
            else:
                yield following, Edge(label, "rw", f"{why}: {other.start} to {other.end}, {one.start} to {one.end}")


# --- circles ------------------------------------------------------------------------------------------------------


def strong_parts(graph: Graph, allowed: Set[str]) -> Iterator[set[str]]:
    """Strongly connected parts of several nodes (Tarjan), without recursion."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in graph:
        if root in number:
            continue
        work = [(root, iter(_targets(graph, root, allowed)))]
        while work:
            node, targets = work[-1]
            if node not in number:
                number[node] = low[node] = len(number)
                stack.append(node)
                on_stack.add(node)
            for target in targets:
                if target not in number:
                    work.append((target, iter(_targets(graph, target, allowed))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], low[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    part = _pop_until(node, stack, on_stack)
                    if len(part) > 1:
                        yield part


def _targets(graph: Graph, node: str, allowed: Set[str]) -> Iterable[str]:
    return (edge.to for edge in graph[node] if edge.kind in allowed)


def _pop_until(node: str, stack: list[str], on_stack: set[str]) -> set[str]:
    part: set[str] = set()
    while True:
        each = stack.pop()
        on_stack.discard(each)
        part.add(each)
        if each == node:
            return part


def shortest_circle(graph: Graph, part: Set[str], allowed: Set[str]) -> list[Edge]:
    """A circle within a strong part: a shortest one through its first node with the fewest rw."""
    start = min(part)
    for kinds in (READS & allowed, allowed):
        for first in graph[start]:
            if first.to in part and first.kind in allowed:
                rest = _path(graph, first.to, start, part, kinds)
                if rest is not None:
                    return [first, *rest]
    raise AssertionError(f"no circle; part={part}")


def _path(graph: Graph, start: str, end: str, part: Set[str], allowed: Set[str]) -> list[Edge] | None:
    came_by: dict[str, tuple[str, Edge]] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for edge in graph[node]:
            if edge.to in part and edge.kind in allowed and edge.to not in came_by and edge.to != start:
                came_by[edge.to] = (node, edge)
                queue.append(edge.to)
        if end in came_by:
            path: list[Edge] = []
            at = end
            while at != start:
                at, edge = came_by[at]
                path.append(edge)
            return path[::-1]
    return None
