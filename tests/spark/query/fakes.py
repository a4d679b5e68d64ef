"""A backend for catalogs, with tables that a test says there are."""

from collections.abc import Sequence

from streamhouse.model.table import Column, Connector, Table


class FakeBackend:
    def __init__(self, *tables: Table, samples: dict[str, list[bytes | None]] | None = None) -> None:
        self.known = list(tables)
        self.samples, self.registered = samples or {}, dict[str, tuple[Column, ...]]()
        self.requests: list[str] = []

    def tables(self) -> Sequence[Table]:
        self.requests.append("tables")
        return list(self.known)

    def fields(self, topic: str) -> tuple[Column, ...] | None:
        self.requests.append(f"fields of {topic}")
        return self.registered.get(topic)

    def sample(self, topic: str) -> list[bytes | None]:
        self.requests.append(f"sample of {topic}")
        return self.samples.get(topic, [])


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name=name, type=kind) for name, kind in types.items())


def topic(name: str, /, fmt: str | None = None, **types: str) -> Table:
    options = {} if fmt is None else {"format": fmt}
    return Table(name=name, connector=Connector.TOPIC, columns=columns(**types) if types else None, options=options)
