"""Planning: the driver asks agents, decides, and has splits for the executors.

Data path   options -> **planning** -> agents -> splits
Owns        the order of the questions, and what of the answers is kept for the next step
Leaves      questions to `agents`, decisions to `offsets` and `plan`
"""

import asyncio
import re
from collections.abc import Iterable, Sequence

from streamhouse.errors import Misconfigured, UnknownTopic
from streamhouse.model.names import TopicPartition
from streamhouse.spark.agents import Agents, ReadPlan, Span
from streamhouse.spark.offsets import AtTimes, Extents, Offsets, ends_at, losing, spans_between, starts_at
from streamhouse.spark.options import Assigned, Edge, Names, Pattern, ReadOptions, Subscription, Times
from streamhouse.spark.plan import Split, pieces_of, splits_of
from streamhouse.spark.pushing import Pushed


def chosen(subscription: Subscription, topics: dict[str, int]) -> list[TopicPartition]:
    """The partitions that somebody asked for, of those that there are."""
    if isinstance(subscription, Assigned):
        for place in subscription.places:
            if not 0 <= place.partition < topics.get(place.topic, 0):
                raise _unknown(str(place), topics)
        return list(subscription.places)
    if isinstance(subscription, Names):
        for topic in subscription.topics:
            if topic not in topics:
                raise _unknown(topic, topics)
        names: Iterable[str] = subscription.topics
    else:
        names = _matching(subscription, topics)
    return [TopicPartition(topic, number) for topic in names for number in range(topics[topic])]


def _matching(subscription: Pattern, topics: dict[str, int]) -> list[str]:
    try:
        pattern = re.compile(subscription.pattern)
    except re.error as error:
        why = f"option=subscribePattern value={subscription.pattern[:80]!r} why={error}"
        raise Misconfigured(
            f"not a regular expression; {why} do=write one for whole names, such as orders_.*"
        ) from None
    return [topic for topic in sorted(topics) if pattern.fullmatch(topic)]


def _unknown(name: str, topics: dict[str, int]) -> UnknownTopic:
    known = ", ".join(sorted(topics)[:10]) or "none"
    return UnknownTopic(f"{name} known={known} do=create it, or look at the options topic, subscribe, assign")


async def find_extents(agents: Agents, subscription: Subscription) -> Extents:
    places = chosen(subscription, await agents.topics())
    return await agents.extents(places) if places else {}


async def find_times(agents: Agents, edge: Edge, places: Iterable[TopicPartition]) -> AtTimes:
    """The offsets of the times of an edge; empty where it has none."""
    if not isinstance(edge, Times):
        return {}
    wanted: dict[tuple[str, int], list[TopicPartition]] = {}
    for place in places:
        time_ms = edge.of(place)
        if time_ms is not None:
            wanted.setdefault((place.topic, time_ms), []).append(place)
    answers = await asyncio.gather(*(agents.at_time(topic, time_ms) for topic, time_ms in wanted))
    return {
        place: answer.get(place.partition)
        for places, answer in zip(wanted.values(), answers, strict=True)
        for place in places
    }


async def find_starts(agents: Agents, options: ReadOptions, extents: Extents) -> Offsets:
    times = await find_times(agents, options.start, extents)
    lose = losing(fails=options.fail_on_data_loss)
    return starts_at(options.start, extents, times, late_is_latest=options.late_start_is_latest, lose=lose)


async def plan_batch(options: ReadOptions, pushed: Pushed) -> list[Split]:
    """The splits of a batch read."""
    async with Agents(options.agents) as agents:
        extents = await find_extents(agents, options.subscription)
        starts = await find_starts(agents, options, extents)
        lose = losing(fails=options.fail_on_data_loss)
        ends = ends_at(options.end, extents, await find_times(agents, options.end, extents), lose=lose)
        spans = pushed.narrowed(spans_between(starts, ends))
        if not spans:
            return []
        return make_splits(await agents.plan(spans), spans, options, pushed)


def make_splits(plan: ReadPlan, spans: Sequence[Span], options: ReadOptions, pushed: Pushed) -> list[Split]:
    plans = {each.place: each for each in plan.partitions}
    pieces = [
        piece
        for span in spans
        if span.place in plans
        for piece in pieces_of(plans[span.place], span, from_ms=pushed.from_ms)
    ]
    return splits_of(
        pieces,
        store=plan.store,
        split_bytes=options.split_bytes,
        min_partitions=options.min_partitions,
        max_records=options.max_split_records,
    )
