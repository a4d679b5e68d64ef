"""Needs: the rights that an operation of an interface requires, declared where the operation is registered.

The declarations are what docs/access-control.md is made of. The handler of an operation asks for what it declares.
"""

from typing import Final, NamedTuple

from streamhouse.model.access import Operation, ResourceType


class Right(NamedTuple):
    """An operation on a resource: the one that the request names."""

    operation: Operation
    type: ResourceType

    def __str__(self) -> str:
        return f"{self.operation} {self.type}"


class Need(NamedTuple):
    """Any of `rights` is enough, and so is being one of `processes`. `when` is empty for what every request needs."""

    rights: tuple[Right, ...] = ()
    processes: tuple[str, ...] = ()
    when: str = ""

    def __str__(self) -> str:
        alternatives = " or ".join(
            (*map(str, self.rights), *(f"{kind.lower()} of the cluster" for kind in self.processes))
        )
        return f"{alternatives} ({self.when})" if self.when else alternatives


Needs = tuple[Need, ...]

OPEN: Final[Needs] = ()
"""Nothing is needed, and nothing is told that not everybody may know."""


def need(*rights: tuple[Operation, ResourceType], processes: tuple[str, ...] = (), when: str = "") -> Need:
    return Need(tuple(Right(*right) for right in rights), processes, when)
