"""Needs: the rights that an operation of an interface requires, declared where the operation is registered.

The declarations are what docs/access-control.md is made of. HTTP and gRPC check what they can before they read a
request's body (`Needs.early`); everything else, and all of Kafka's, is checked by the handler that declares it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamhouse.model.access import AGENT, Operation, ResourceType


class Right(NamedTuple):
    """An operation on a resource. `named_by`: the path parameter or the field of the request with its name; empty: the
    cluster, or resources that the handler finds out."""

    operation: Operation
    type: ResourceType
    named_by: str = ""

    def __str__(self) -> str:
        return f"{self.operation} {self.type}"


class Need(NamedTuple):
    """Any of `rights` is enough, and so is being one of `processes`. `when` is empty for what every request needs."""

    rights: tuple[Right, ...] = ()
    processes: tuple[str, ...] = ()
    when: str = ""

    @property
    def is_early(self) -> bool:
        """Whether it can be checked before the body of a request is read."""
        if self.when or len(self.rights) > 1:
            return False
        return all(
            (right.named_by or right.type is ResourceType.CLUSTER) and not self.processes for right in self.rights
        )

    def __str__(self) -> str:
        if not self.rights:
            return f"only for {' and '.join(f'{kind.lower()}s' for kind in self.processes)} of the cluster"
        alternatives = " or ".join(
            (*map(str, self.rights), *(f"{kind.lower()} of the cluster" for kind in self.processes))
        )
        return f"{alternatives} ({self.when})" if self.when else alternatives


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What an operation needs: all of `all_of`. What the caller lacks the rights of `lists` for is left out of the
    response. `is_open`: for everybody, without login. `about` states exceptions."""

    all_of: tuple[Need, ...] = ()
    lists: tuple[Right, ...] = ()
    is_open: bool = False
    about: str = ""

    @property
    def early(self) -> Iterator[Need]:
        return (need for need in self.all_of if need.is_early)

    def __str__(self) -> str:
        if self.is_open:
            return "for everybody, without login"
        listed = [f"lists what the caller may {right.operation} ({right.type})" for right in self.lists]
        return "; ".join(filter(None, (*map(str, self.all_of), *listed, self.about))) or "a login"


OPEN: Final = Needs(is_open=True)
"""For everybody, without login."""
LOGGED_IN: Final = Needs()
"""For everybody whom the listener lets in."""


def need(
    *rights: tuple[Operation, ResourceType] | tuple[Operation, ResourceType, str],
    processes: tuple[str, ...] = (),
    when: str = "",
) -> Need:
    return Need(tuple(Right(*right) for right in rights), processes, when)


def all_of(*each: Need, lists: tuple[Right, ...] = (), about: str = "") -> Needs:
    return Needs(all_of=each, lists=lists, about=about)


def needs(operation: Operation, kind: ResourceType, named_by: str = "", *, about: str = "") -> Needs:
    """One right: on the resource that a path parameter names, on the cluster, or as the handler finds it."""
    return all_of(need((operation, kind, named_by)), about=about)


def lists(operation: Operation, kind: ResourceType, *, about: str = "") -> Needs:
    """A listing of what the caller has this right for."""
    return Needs(lists=(Right(operation, kind),), about=about)


def processes_only(*kinds: str) -> Needs:
    """For processes of the cluster of these kinds; agents are always among them."""
    return all_of(need(processes=(AGENT, *kinds)))
