"""Random views: a source, perhaps an aggregate, and what may stand around it, in CTEs or subqueries.

A query is made of steps that each wrap the one before. Many can't be kept up to date; then the statement must be
refused. What a step knows of its rows (`unique`) only helps to choose keys, good ones and bad ones.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.spark.view_queries.records import LATENESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A SELECT so far. `columns` by name: number, text, time, window, list. `unique`: columns that tell its rows apart.

    `is_raw`: its rows only become more. `late_by`: what a record is too late by, if its query has a watermark.
    """

    text: str
    columns: dict[str, str]
    unique: tuple[str, ...] | None
    is_raw: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A statement without its name; `query` is what it selects."""

    query: str
    key: tuple[str, ...]
    options: dict[str, str]
    is_raw: bool
    is_unique: bool

    @property
    def statement(self) -> str:
        key = f" KEY ({', '.join(self.key)})" if self.key else ""
        options = ", ".join(f"{name} = '{value}'" for name, value in self.options.items())
        return f"CREATE MATERIALIZED VIEW v{key}{f' WITH ({options})' if options else ''} AS\n{self.query}"


Step = Callable[[random.Random, Relation], Relation]
PLAIN = {"id": "number", "at": "time", "user": "text", "n": "number", "d": "number"}
ALL = ", ".join(PLAIN)


def make_view(rng: random.Random) -> View:
    relation = _source(rng)
    for _ in range(rng.choice((0, 0, 1))):
        relation = rng.choice(BELOW)(rng, relation)
    if rng.random() < 0.8:
        relation = rng.choice(GROUPED)(rng, relation)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        relation = rng.choice(ABOVE)(rng, relation)
    options = {"watermark": f"at {LATENESS}"} if rng.random() < 0.25 else {}
    if rng.random() < 0.1:
        options["output"] = rng.choice(("update", "complete"))
    if " people" in relation.text:
        options["lookup"] = "on arrival"
    key = _key(rng, relation)
    is_unique = relation.unique is not None and set(relation.unique) <= set(key)
    return View(query=relation.text, key=key, options=options, is_raw=relation.is_raw, is_unique=is_unique)


def _key(rng: random.Random, relation: Relation) -> tuple[str, ...]:
    chance = rng.random()
    if not relation.is_raw and chance < 0.5:
        return ()
    if relation.unique and chance < 0.9:
        return relation.unique
    return tuple(rng.sample(list(relation.columns), rng.randint(1, min(2, len(relation.columns)))))


# --- sources


def _source(rng: random.Random) -> Relation:
    return rng.choice((_plain, _plain, _plain, _both, _with_people, _joined, _joined_in_time, _with_itself))(rng)


def _plain(rng: random.Random) -> Relation:
    return Relation(text=f"SELECT {ALL} FROM STREAM(plays)", columns=dict(PLAIN), unique=("id",))


def _both(rng: random.Random) -> Relation:
    how = rng.choice(("UNION ALL", "UNION ALL", "UNION"))
    text = f"SELECT {ALL} FROM STREAM(plays) {how} SELECT {ALL} FROM STREAM(pays)"
    return Relation(text=text, columns=dict(PLAIN), unique=("id",))


def _with_people(rng: random.Random) -> Relation:
    how = rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN"))
    text = f"SELECT {ALL}, city FROM STREAM(plays) {how} people USING (user)"
    return Relation(text=text, columns={**PLAIN, "city": "text"}, unique=("id", "city"))


def _joined(rng: random.Random) -> Relation:
    how = rng.choice(("JOIN", "JOIN", "LEFT JOIN", "CROSS JOIN"))
    on = "" if how == "CROSS JOIN" else f" ON {rng.choice(('p.user = q.user', 'p.n = q.n', 'p.n < q.n'))}"
    text = f"SELECT p.*, q.id AS other, q.n AS m FROM STREAM(plays) p {how} STREAM(pays) q{on}"
    return Relation(text=text, columns={**PLAIN, "other": "number", "m": "number"}, unique=("id", "other"))


def _joined_in_time(rng: random.Random) -> Relation:
    how = rng.choice(("JOIN", "JOIN", "LEFT JOIN", "LEFT SEMI JOIN"))
    others = "" if "SEMI" in how else ", q.id AS other, q.n AS m"
    text = (
        f"SELECT p.*{others} FROM STREAM(plays) p {how} STREAM(pays) q"
        " ON p.user = q.user AND q.at BETWEEN p.at AND p.at + INTERVAL 5 MINUTES"
    )
    columns = PLAIN if "SEMI" in how else {**PLAIN, "other": "number", "m": "number"}
    return Relation(text=text, columns=dict(columns), unique=("id",) if "SEMI" in how else ("id", "other"))


def _with_itself(rng: random.Random) -> Relation:
    text = "SELECT p.*, q.id AS other, q.n AS m FROM STREAM(plays) p JOIN STREAM(plays) q ON p.user = q.user"
    return Relation(text=text, columns={**PLAIN, "other": "number", "m": "number"}, unique=("id", "other"))


# --- below an aggregate, or without one


def _inner(rng: random.Random, relation: Relation) -> tuple[str, str]:
    """What stands before a SELECT, and what it selects from."""
    if rng.random() < 0.5:
        return f"WITH t AS ({relation.text}) ", "t"
    return "", f"({relation.text})"


def _filtered(rng: random.Random, relation: Relation) -> Relation:
    conditions = ["true"]
    conditions += [f"{name} > 1" for name, kind in relation.columns.items() if kind == "number"]
    conditions += [f"{name} <= 2" for name, kind in relation.columns.items() if kind == "number"]
    conditions += [f"{name} = 'ann'" for name, kind in relation.columns.items() if kind == "text"]
    if "user" in relation.columns:
        conditions += [
            "user IN (SELECT user FROM people)",
            "user NOT IN (SELECT user FROM people WHERE user = 'bob')",
            "EXISTS (SELECT 1 FROM people WHERE people.user = s.user)",
            "(SELECT count(*) FROM people WHERE people.user = s.user) > 1",
            "user IN (SELECT user FROM STREAM(pays))",
        ]
    if "n" in relation.columns:
        conditions.append("n >= (SELECT avg(n) FROM STREAM(plays))")
    before, inner = _inner(rng, relation)
    return replace(relation, text=f"{before}SELECT * FROM {inner} s WHERE {rng.choice(conditions)}")


def _exploded(rng: random.Random, relation: Relation) -> Relation:
    # d has NaN, which no INT can be: the batch query fails as well
    number = next((name for name, kind in relation.columns.items() if kind == "number" and name != "d"), None)
    if number is None or "x" in relation.columns:
        return relation
    before, inner = _inner(rng, relation)
    array = f"sequence(0, CAST({number} AS INT) % 3)"
    forms = (
        f"{before}SELECT s.*, x FROM {inner} s LATERAL VIEW explode({array}) e AS x",
        f"{before}SELECT s.*, x FROM {inner} s, LATERAL explode({array}) AS e(x)",
        f"{before}SELECT *, explode({array}) AS x FROM {inner}",
    )
    unique = (*relation.unique, "x") if relation.unique is not None else None
    return replace(relation, text=rng.choice(forms), columns={**relation.columns, "x": "number"}, unique=unique)


def _distinct(rng: random.Random, relation: Relation) -> Relation:
    names = _some(rng, [name for name in relation.columns if name != "d"])
    before, inner = _inner(rng, relation)
    columns = {name: relation.columns[name] for name in names}
    text = f"{before}SELECT DISTINCT {', '.join(names)} FROM {inner}"
    return Relation(text=text, columns=columns, unique=tuple(names), is_raw=False)


def _narrowed(rng: random.Random, relation: Relation) -> Relation:
    names = _some(rng, list(relation.columns))
    unique = relation.unique if relation.unique is not None and set(relation.unique) <= set(names) else None
    before, inner = _inner(rng, relation)
    columns = {name: relation.columns[name] for name in names}
    return replace(relation, text=f"{before}SELECT {', '.join(names)} FROM {inner}", columns=columns, unique=unique)


def _some(rng: random.Random, names: list[str]) -> list[str]:
    return rng.sample(names, rng.randint(1, len(names)))


# --- aggregates


def _aggregates(rng: random.Random, relation: Relation) -> dict[str, str]:
    numbers = [name for name, kind in relation.columns.items() if kind == "number" and name != "d"]
    result = {"c": "count(*)"}
    for name in numbers:
        result |= {f"sum_{name}": f"sum({name})", f"max_{name}": f"max({name})", f"avg_{name}": f"avg({name})"}
        result |= {f"some_{name}": f"count(*) FILTER (WHERE {name} > 1)"}
    result |= {f"approx_{name}": f"approx_count_distinct({name})" for name in relation.columns if name == "user"}
    chosen = {name: result[name] for name in rng.sample(list(result), min(len(result), rng.randint(1, 2)))}
    if rng.random() < 0.05:
        chosen["different"] = f"count(DISTINCT {rng.choice(list(relation.columns))})"
    return chosen


def _groups(rng: random.Random, relation: Relation) -> dict[str, str]:
    """Expressions to group by, by the names that they get."""
    result = {name: name for name, kind in relation.columns.items() if kind in ("text", "number")}
    result |= {f"upper_{name}": f"upper({name})" for name, kind in relation.columns.items() if kind == "text"}
    if "at" in relation.columns:
        result["w"] = rng.choice(("window(at, '5 minutes')", "window(at, '10 minutes', '5 minutes')"))
        result["w"] = rng.choice((result["w"], "session_window(at, '3 minutes')"))
    chosen = rng.sample(list(result), min(len(result), rng.choice((1, 1, 2))))
    if "w" in result and rng.random() < 0.4:
        chosen = list(dict.fromkeys([*chosen[:1], "w"]))
    return {name: result[name] for name in chosen}


def _aggregated(rng: random.Random, relation: Relation) -> Relation:
    groups, aggregates = _groups(rng, relation), _aggregates(rng, relation)
    selected = dict(groups)
    if rng.random() < 0.1:
        selected.pop(next(iter(selected)))
    if "w" in selected and rng.random() < 0.4:
        selected["w"] = f"{selected['w']}.start"
    return _select(rng, relation, selected, aggregates, f"GROUP BY {', '.join(groups.values())}", groups)


def _leveled(rng: random.Random, relation: Relation) -> Relation:
    """ROLLUP, CUBE, GROUPING SETS, with the level or without it."""
    groups = {name: text for name, text in _groups(rng, relation).items() if name != "w"}
    if not groups:
        return relation
    names = ", ".join(groups.values())
    sets = rng.choice((f"ROLLUP ({names})", f"CUBE ({names})", f"GROUPING SETS (({names}), ())"))
    selected = {**groups, "level": "grouping_id()"} if rng.random() < 0.7 else groups
    return _select(rng, relation, selected, _aggregates(rng, relation), f"GROUP BY {sets}", {**groups, "level": ""})


def _global(rng: random.Random, relation: Relation) -> Relation:
    return _select(rng, relation, {}, _aggregates(rng, relation), "", {})


def _select(
    rng: random.Random,
    relation: Relation,
    selected: dict[str, str],
    aggregates: dict[str, str],
    group_by: str,
    groups: dict[str, str],
) -> Relation:
    before, inner = _inner(rng, relation)
    made = ", ".join(f"{text} AS {name}" for name, text in {**selected, **aggregates}.items())
    having = ""
    if group_by and rng.random() < 0.2:
        having = f" HAVING {rng.choice(('count(*) < 3', 'count(*) > 1', next(iter(aggregates.values())) + ' < 4'))}"
    columns = {name: "window" if name == "w" else relation.columns.get(name, "text") for name in selected}
    columns |= dict.fromkeys(aggregates, "number")
    if selected.get("w", "").endswith(".start"):
        columns["w"] = "time"
    if "level" in selected:
        columns["level"] = "number"
    unique = tuple(groups) if set(groups) <= set(selected) else None
    text = f"{before}SELECT {made} FROM {inner} {group_by}{having}"
    return Relation(text=text, columns=columns, unique=unique, is_raw=False)


# --- above


def _top(rng: random.Random, relation: Relation) -> Relation:
    """All columns are in the order, so that there is one answer."""
    names = _some(rng, list(relation.columns))
    names += [name for name in relation.columns if name not in names]
    order = ", ".join(f"{name} {rng.choice(('ASC', 'DESC'))}" for name in names)
    before, inner = _inner(rng, relation)
    text = f"{before}SELECT * FROM {inner} ORDER BY {order}"
    return replace(relation, text=text + rng.choice(("", " LIMIT 2", " LIMIT 2", " LIMIT 3 OFFSET 1")))


def _looked_up(rng: random.Random, relation: Relation) -> Relation:
    text = next((name for name, kind in relation.columns.items() if kind == "text" and name != "city"), None)
    if text is None or "city" in relation.columns or "town" in relation.columns:
        return relation
    before, inner = _inner(rng, relation)
    how = rng.choice(("JOIN", "LEFT JOIN"))
    made = f"{before}SELECT s.*, e.city AS town FROM {inner} s {how} people e ON s.{text} = e.user"
    unique = (*relation.unique, "town") if relation.unique is not None else None
    return replace(relation, text=made, columns={**relation.columns, "town": "text"}, unique=unique)


def _ranked(rng: random.Random, relation: Relation) -> Relation:
    before, inner = _inner(rng, relation)
    names = ", ".join(relation.columns)
    ranked = f"SELECT *, row_number() OVER (ORDER BY {names}) AS place FROM {inner}"
    return replace(
        relation,
        text=f"{before}SELECT * FROM ({ranked}) WHERE place < 4",
        columns={**relation.columns, "place": "number"},
    )


def _combined(rng: random.Random, relation: Relation) -> Relation:
    how = rng.choice(("UNION ALL", "UNION", "EXCEPT", "INTERSECT"))
    names = ", ".join(relation.columns)
    if rng.random() < 0.5:
        text = f"WITH u AS ({relation.text}) SELECT {names} FROM u {how} SELECT {names} FROM u"
    else:
        some = f"SELECT {names} FROM ({relation.text}) WHERE {next(iter(relation.columns))} IS NOT NULL"
        text = f"SELECT {names} FROM ({relation.text}) {how} {some}"
    return replace(relation, text=text, unique=None)


def _computed(rng: random.Random, relation: Relation) -> Relation:
    name, kind = rng.choice(list(relation.columns.items()))
    made = {"number": f"{name} % 2", "text": f"lower({name})"}.get(kind, name)
    others = [each for each in relation.columns if each != name]
    before, inner = _inner(rng, relation)
    text = f"{before}SELECT {', '.join([f'{made} AS {name}', *others])} FROM {inner}"
    unique = relation.unique if relation.unique is not None and name not in relation.unique else None
    return replace(relation, text=text, unique=unique)


BELOW: tuple[Step, ...] = (_filtered, _filtered, _filtered, _exploded, _distinct)
GROUPED: tuple[Step, ...] = (_aggregated, _aggregated, _aggregated, _aggregated, _leveled, _global, _distinct)
ABOVE: tuple[Step, ...] = (
    *(_filtered, _filtered, _top, _top, _looked_up, _ranked, _combined, _computed, _narrowed, _exploded, _distinct),
    *(_aggregated, _global),
)
