"""Commands `streamhouse acls …` and `streamhouse roles …`: access rules, and roles, which group principals."""

from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer

from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, Yes, http_addresses
from streamhouse.cli.output import Column, counted, print_json, print_line, print_note, print_result, print_table
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.client.security_types import Role, Rule
from streamhouse.model.access import CLUSTER_NAME, OPERATIONS, Operation, ResourceType

app = command_group("Create, list and delete access rules (ACLs).")
roles = command_group("List roles and change their members.")

ANY: Final = "*"
_OPERATION_NAMES: Final = ", ".join(operation.value for operation in Operation)


def _names(flag: str, what: str) -> Any:
    return typer.Option(flag, metavar="NAME", help=f"{what}; * for all. May be repeated.", show_default=False)


Topics = Annotated[list[str] | None, _names("--topic", "Topic")]
Groups = Annotated[list[str] | None, _names("--group", "Consumer group")]
TransactionalIds = Annotated[list[str] | None, _names("--transactional-id", "Transactional id")]
Subjects = Annotated[list[str] | None, _names("--subject", "Schema subject")]
Pipelines = Annotated[list[str] | None, _names("--pipeline", "Pipeline")]
Views = Annotated[list[str] | None, _names("--view", "View")]
Tables = Annotated[list[str] | None, _names("--table", "Table")]
Tokens = Annotated[list[str] | None, _names("--delegation-token", "Delegation token")]
Owners = Annotated[list[str] | None, _names("--owner", "User whose delegation tokens the rule covers")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="Match all names with these prefixes.")]
Allowed = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="User:NAME", help="Principal to allow: User:, Group: or Role:. May be repeated."),
]
Denied = Annotated[
    list[str] | None, typer.Option("--deny", metavar="User:NAME", help="Principal to deny. May be repeated.")
]
Operations = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="OP", help=f"Operation: {_OPERATION_NAMES}. May be repeated."),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="ADDRESS", help="Client address, or NETWORK/BITS. Default: any."),
]


class ResourceName(NamedTuple):
    resource_type: ResourceType
    name: str


_PARAMETERS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "subject": ResourceType.SUBJECT,
    "pipeline": ResourceType.PIPELINE,
    "view": ResourceType.VIEW,
    "table": ResourceType.TABLE,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "owner": ResourceType.USER,
}
"""The parameters of commands that name resources."""


def _resources(context: typer.Context) -> list[ResourceName]:
    """The resources that the options of a command name."""
    chosen = [
        ResourceName(kind, name) for parameter, kind in _PARAMETERS.items() for name in context.params[parameter] or ()
    ]
    return chosen + ([ResourceName(ResourceType.CLUSTER, CLUSTER_NAME)] if context.params["cluster"] else [])


@app.command(
    "create",
    cls=Command,
    help=help_text(
        "Allow or deny principals operations on resources. Deny rules override allow rules. Rules take "
        "effect within a second, on every interface.",
        "streamhouse acls create --allow User:alice --operation read --topic orders --group billing",
        "streamhouse acls create --allow Role:etl --operation read --operation write --topic etl- --prefixed",
        "streamhouse acls create --deny User:bob --operation all --topic '*' --host 10.9.0.0/16",
        "streamhouse acls create --allow User:ops --operation alter --cluster",
    ),
)
def create(
    context: typer.Context,
    allow: Allowed = None,
    deny: Denied = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    subject: Subjects = None,
    pipeline: Pipelines = None,
    view: Views = None,
    table: Tables = None,
    delegation_token: Tokens = None,
    owner: Owners = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    host: Hosts = None,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    resources = _resources(context)
    principals = [("allow", rule) for rule in allow or ()] + [("deny", rule) for rule in deny or ()]
    if not principals:
        raise typer.BadParameter("name a principal with --allow or --deny", param_hint="--allow")
    if not resources:
        raise typer.BadParameter("name a resource with --topic, --group, --cluster or another option")
    rules = [
        Rule(
            principal=principal,
            operation=operation_name,
            resource_type=resource.resource_type,
            name=resource.name,
            pattern="prefixed" if prefixed and resource.resource_type is not ResourceType.CLUSTER else "literal",
            permission=permission,
            host=host_name,
        )
        for permission, principal in principals
        for resource in resources
        for operation_name in _operations(operation, resources)
        if _applies(operation_name, resource)
        for host_name in host or (ANY,)
    ]
    run(_create(dependencies_of(context), http_addresses(agents), rules))
    if as_json:
        print_json({"acls": [msgspec.to_builtins(rule) for rule in rules]})
    else:
        _show(rules)
        print_note(f"created {counted(len(rules), 'rule')}")


def _operations(texts: list[str] | None, resources: list[ResourceName]) -> list[str]:
    """Return the operations in lower case; each must apply to one of these resources."""
    if not texts:
        raise typer.BadParameter(f"name operations, one or more of {_OPERATION_NAMES}", param_hint="--operation")
    names = [name.lower().replace("_", "-") for name in texts]
    for name in names:
        if not any(_applies(name, resource) for resource in resources):
            kinds = {resource.resource_type: OPERATIONS[resource.resource_type] for resource in resources}
            allowed = "; ".join(f"{kind}: all {names}" for kind, names in kinds.items())
            raise typer.BadParameter(
                f"{name!r} is not an operation of these resources; allowed: {allowed}", param_hint="--operation"
            )
    return names


def _applies(operation: str, resource: ResourceName) -> bool:
    return operation in ("all", *OPERATIONS[resource.resource_type].split())


async def _create(deps: Dependencies, address: str, rules: list[Rule]) -> None:
    async with deps.http(address) as http:
        await deps.security(http).create_acls(rules)


def _show(rules: list[Rule]) -> None:
    columns = [
        Column("permission", paint={"allow": "green", "deny": "red"}),
        Column("principal", style="cyan", fold=True),
        Column("operation"),
        Column("resource"),
        Column("name", fold=True),
        Column("pattern", drop=2),
        Column("host", drop=1),
    ]
    rows = [[e.permission, e.principal, e.operation, e.resource_type, e.name, e.pattern, e.host] for e in rules]
    print_table(columns, rows)


Principal = Annotated[
    str | None,
    typer.Option("--principal", metavar="User:NAME", help="Only rules for this principal.", show_default=False),
]
OneOperation = Annotated[
    str | None, typer.Option("--operation", metavar="OP", help="Only rules for this operation.", show_default=False)
]
OneHost = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Only rules with this host.", show_default=False)
]
Matching = Annotated[
    bool, typer.Option("--matching", help="Rules that apply to the resource, also by prefix or *, not only its own.")
]


def _filter(
    resources: list[ResourceName],
    *,
    principal: str | None,
    operation: str | None,
    host: str | None,
    prefixed: bool,
    matching: bool,
) -> dict[str, str]:
    if len(resources) > 1:
        raise typer.BadParameter("one resource at a time")
    selected = {"principal": principal, "operation": operation, "host": host}
    if resources:
        selected |= {"resource_type": resources[0].resource_type.value, "name": resources[0].name}
    if matching:
        selected["matching"] = "true"
    elif resources:
        selected["pattern"] = "prefixed" if prefixed else "literal"
    return {name: value for name, value in selected.items() if value is not None}


@app.command(
    "list",
    cls=Command,
    help=help_text(
        "List access rules: all, or those that options select.",
        "streamhouse acls list",
        "streamhouse acls list --principal User:alice",
        "streamhouse acls list --topic orders --matching --json",
    ),
)
def list_(
    context: typer.Context,
    principal: Principal = None,
    operation: OneOperation = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    subject: Subjects = None,
    pipeline: Pipelines = None,
    view: Views = None,
    table: Tables = None,
    delegation_token: Tokens = None,
    owner: Owners = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    matching: Matching = False,
    host: OneHost = None,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    resources = _resources(context)
    selected = _filter(
        resources, principal=principal, operation=operation, host=host, prefixed=prefixed, matching=matching
    )
    rules = run(_list(dependencies_of(context), http_addresses(agents), selected))
    if as_json:
        print_json({"acls": [msgspec.to_builtins(rule) for rule in rules]})
    elif rules:
        _show(rules)
    else:
        print_line("no rule matches" if selected else "no rules yet; only super users may do anything")


async def _list(deps: Dependencies, address: str, selected: dict[str, str]) -> list[Rule]:
    async with deps.http(address) as http:
        return await deps.security(http).acls(selected)


@app.command(
    "delete",
    cls=Command,
    help=help_text(
        "Delete the access rules that options select. Shows them and asks for confirmation unless --yes is given.",
        "streamhouse acls delete --principal User:alice --topic orders",
        "streamhouse acls delete --principal User:alice --yes",
    ),
)
def delete(
    context: typer.Context,
    principal: Principal = None,
    operation: OneOperation = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    subject: Subjects = None,
    pipeline: Pipelines = None,
    view: Views = None,
    table: Tables = None,
    delegation_token: Tokens = None,
    owner: Owners = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    host: OneHost = None,
    yes: Yes = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    resources = _resources(context)
    selected = _filter(
        resources, principal=principal, operation=operation, host=host, prefixed=prefixed, matching=False
    )
    if not selected:
        raise typer.BadParameter("select rules with --principal, --topic or other options", param_hint="--principal")
    deps, address = dependencies_of(context), http_addresses(agents)
    if not yes:
        _show(run(_list(deps, address, selected)))
        typer.confirm("Delete these rules?", abort=True, err=True)
    deleted = run(_delete(deps, address, selected))
    print_result(
        {"acls": [msgspec.to_builtins(rule) for rule in deleted]}, f"deleted {counted(len(deleted), 'rule')}", as_json
    )


async def _delete(deps: Dependencies, address: str, selected: dict[str, str]) -> list[Rule]:
    async with deps.http(address) as http:
        return await deps.security(http).delete_acls(selected)


# --- roles


@roles.command(
    "list", cls=Command, help=help_text("List the roles and their members.", "streamhouse roles list --json")
)
def list_roles(context: typer.Context, agents: Agents = None, as_json: AsJson = False) -> None:
    found_roles = run(_list_roles(dependencies_of(context), http_addresses(agents)))
    if as_json:
        print_json({"roles": [msgspec.to_builtins(role) for role in found_roles]})
    elif found_roles:
        columns = [Column("role", style="cyan"), Column("members", fold=True)]
        print_table(columns, [[role.name, ", ".join(role.members)] for role in found_roles])
    else:
        print_line("no roles yet; give one with: streamhouse roles add NAME User:NAME")


async def _list_roles(deps: Dependencies, address: str) -> list[Role]:
    async with deps.http(address) as http:
        return await deps.security(http).roles()


RoleName = Annotated[str, typer.Argument(metavar="ROLE", help="Name of the role.", show_default=False)]
Members = Annotated[
    list[str], typer.Argument(metavar="User:NAME…", help="Principals: User: or Group:.", show_default=False)
]


@roles.command(
    "add",
    cls=Command,
    help=help_text(
        "Give principals a role: the rules for Role:NAME are rules for them.",
        "streamhouse roles add etl User:alice User:bob",
    ),
)
def add(
    context: typer.Context, name: RoleName, members: Members, agents: Agents = None, as_json: AsJson = False
) -> None:
    _change_role(context, agents, name, added=list(members), as_json=as_json)


@roles.command(
    "remove",
    cls=Command,
    help=help_text("Take a role from principals.", "streamhouse roles remove etl User:bob"),
)
def remove(
    context: typer.Context, name: RoleName, members: Members, agents: Agents = None, as_json: AsJson = False
) -> None:
    _change_role(context, agents, name, removed=list(members), as_json=as_json)


def _change_role(
    context: typer.Context,
    agents: str | None,
    name: str,
    *,
    added: list[str] | None = None,
    removed: list[str] | None = None,
    as_json: bool,
) -> None:
    role = run(_send_role(dependencies_of(context), http_addresses(agents), name, added or [], removed or []))
    if as_json:
        print_json(msgspec.to_builtins(role))
    else:
        print_line(f"{role.name}: {', '.join(role.members) or 'no members'}")


async def _send_role(deps: Dependencies, address: str, name: str, added: list[str], removed: list[str]) -> Role:
    async with deps.http(address) as http:
        return await deps.security(http).change_role(name, added=added, removed=removed)
