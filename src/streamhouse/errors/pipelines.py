"""Errors of tables, pipelines, views and SQL."""

from collections.abc import Iterable

from streamhouse.errors.base import Rejected, Retriable


class UnknownTable(Rejected):
    """SQL knows no table of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown table; name={name}")


class UnknownPipeline(Rejected):
    """No such pipeline."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown pipeline; name={name}")


class UnknownView(Rejected):
    """No such view, or no such row in it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown view; name={name}")


class UnknownViewRow(Rejected):
    """The view has no row of this key."""

    def __init__(self, name: str, *, key: str) -> None:
        super().__init__(f"no such row; view={name} key={key}")


class NameTaken(Rejected):
    """Something else has this name already."""

    def __init__(self, name: str, *, by: str) -> None:
        super().__init__(f"name is taken; name={name} by={by}")


class AnotherTable(Rejected):
    """There is a lake table of this name, and its files are as they are."""

    def __init__(self, name: str, differences: Iterable[object]) -> None:
        super().__init__(
            f"there is such a table, and it is another: {', '.join(map(str, differences))}; table={name}"
            f" do=choose another name, or drop it (streamhouse tables drop {name}; its files stay)"
            " and choose another location"
        )


class InvalidDefinition(Rejected):
    """A definition of a table or a pipeline contradicts itself, or is too large."""


class PipelineLimit(Rejected):
    """There are, or would be, more of them than a setting allows."""

    def __init__(self, what: str, *, limit: int, setting: str) -> None:
        super().__init__(f"too many; what={what} limit={limit} setting={setting}")


class PlaceLost(Rejected):
    """A changed definition can't go on where the old one stands."""

    def __init__(self, name: str, *, why: str) -> None:
        super().__init__(
            f"a changed pipeline would lose its place; name={name} why={why} do=apply with a new beginning: --from"
            " earliest, or from another place; or drop it first; or give it another name"
        )


class PipelineMoved(Rejected):
    """Another supervisor runs the pipeline now, or nobody does: what this one has done is not published."""

    def __init__(self, name: str, *, epoch: int, why: str) -> None:
        super().__init__(f"pipeline moved; pipeline={name} epoch={epoch} why={why}")


class ViewRefused(Rejected):
    """A part of a view's batch doesn't follow what is there."""


class UnknownQuery(Rejected):
    """No such question in SQL is being answered."""

    def __init__(self, query_id: str) -> None:
        super().__init__(f"no such query runs; query={query_id}")


class NoWorker(Retriable):
    """Nobody with a Spark answers SQL now."""
