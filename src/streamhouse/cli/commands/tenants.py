"""Commands `streamhouse tenants …`: create and list tenants."""

from collections import Counter
from typing import Annotated

import typer

from streamhouse.cli.commands.users import new_password
from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, http_addresses
from streamhouse.cli.output import Column, print_json, print_line, print_result, print_table
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.client.security_types import Rule
from streamhouse.model.access import ANY, CLUSTER_NAME, USER, ResourceType
from streamhouse.model.tenant import ALLOWED, is_tenant, prefix_of, qualified, tenant_of

app = command_group("Create and list tenants: users with separate topics, groups and other resources.")

TenantName = Annotated[str, typer.Argument(metavar="NAME", help=f"Name of the tenant: {ALLOWED}.", show_default=False)]


@app.command(
    "create",
    cls=Command,
    help=help_text(
        "Create a tenant: its first user, who may do everything in it, and nothing outside. Asks for the user's "
        "password twice, or reads it from stdin.",
        "streamhouse tenants create acme",
        "streamhouse tenants create acme --admin root --password-stdin < password.txt",
    ),
)
def create(
    context: typer.Context,
    name: TenantName,
    admin: Annotated[str, typer.Option("--admin", metavar="USER", help="Name of the user in the tenant.")] = "admin",
    password_stdin: Annotated[bool, typer.Option("--password-stdin", help="Read the password from stdin.")] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    if not is_tenant(name):
        raise typer.BadParameter(f"{name!r} is not a valid tenant name; allowed: {ALLOWED}", param_hint="NAME")
    user = qualified(name, admin)
    password = new_password(user, from_stdin=password_stdin)
    run(_create(dependencies_of(context), http_addresses(agents), name, user, password))
    print_result(
        {"name": name, "admin": user}, f"created the tenant {name}, whose user {user} may do everything in it", as_json
    )


async def _create(deps: Dependencies, address: str, tenant: str, user: str, password: str) -> None:
    async with deps.http(address) as http:
        security = deps.security(http)
        await security.create_user(user, password)
        await security.create_acls(administrators_rules(tenant, f"{USER}:{user}"))


def administrators_rules(tenant: str, principal: str) -> list[Rule]:
    """Rules that allow a principal everything in a tenant."""
    prefix = prefix_of(tenant)
    named = [
        (kind, f"{USER}:{prefix}" if kind is ResourceType.USER else prefix, "prefixed")
        for kind in ResourceType
        if kind not in (ResourceType.CLUSTER, ResourceType.DELEGATION_TOKEN)
    ]
    return [
        Rule(
            principal=principal,
            operation="all",
            resource_type=kind.value,
            name=name,
            pattern=pattern,
            permission="allow",
            host=ANY,
        )
        for kind, name, pattern in [(ResourceType.CLUSTER, qualified(tenant, CLUSTER_NAME), "literal"), *named]
    ]


@app.command(
    "list",
    cls=Command,
    help=help_text("List the tenants that have users.", "streamhouse tenants list", "streamhouse tenants list --json"),
)
def list_(context: typer.Context, agents: Agents = None, as_json: AsJson = False) -> None:
    counts = run(_count(dependencies_of(context), http_addresses(agents)))
    if as_json:
        print_json({"tenants": [{"name": name, "users": users} for name, users in sorted(counts.items())]})
    elif counts:
        columns = [Column("tenant", style="cyan", fold=True), Column("users", justify="right")]
        print_table(columns, [[name, str(users)] for name, users in sorted(counts.items())])
    else:
        print_line("no tenants yet; create one with: streamhouse tenants create NAME")


async def _count(deps: Dependencies, address: str) -> Counter[str]:
    async with deps.http(address) as http:
        users = await deps.security(http).users()
    return Counter(tenant for user in users if (tenant := tenant_of(user.name)))
