"""`thermocline acl`: what users may do."""

from __future__ import annotations

from typing import Any

import click

from thermocline.cli.access.holders import at_holders, check_copied
from thermocline.cli.common.application import Application, uses_cluster

__all__ = ["acl"]

EXIT_DENIED = 1


@click.group(short_help="Show, set, delete and check what users may do.")
def acl() -> None:
    """Give rights to users, take them away, and see what decides. For brokers with access control.

    \b
    Example:
      thermocline acl check alice Pub Topic:orders
    """


def _subject(name: str) -> str:
    return name if ":" in name else f"User:{name}"


@acl.command("set", short_help="Give a user a right, or deny it.")
@click.argument("user")
@click.argument("actions")
@click.argument("resources", nargs=-1, required=True)
@click.option("--deny", is_flag=True, help="Deny it.")
@click.option(
    "--from", "sources", multiple=True, metavar="IP", help="Only from this address or CIDR range; repeatable."
)
@click.option("--default", "is_default", is_flag=True, help="As a default, which counts when no other entry does.")
@at_holders
@uses_cluster
def set_(
    app: Application,
    user: str,
    actions: str,
    resources: tuple[str, ...],
    deny: bool,
    sources: tuple[str, ...],
    is_default: bool,
    at: dict[str, Any],
) -> None:
    """Let USER do ACTIONS (Pub, Sub, Create, Update, Delete, Get, List, All, separated by commas) with RESOURCES
    (`Topic:orders`, `Group:billing*`, `Cluster:*`, `*`). It takes the place of the entry for the same resource.

    \b
    Example:
      thermocline acl set alice Pub,Get Topic:orders
    """
    with app.open_admin() as admin:
        places = admin.set_acl(
            _subject(user),
            list(resources),
            [action.strip() for action in actions.split(",")],
            decision="Deny" if deny else "Allow",
            source_ips=list(sources),
            policy_type="Default" if is_default else "Custom",
            **at,
        )
    app.output.text(
        f"set {actions} on {', '.join(resources)} for {user} at {', '.join(places)}",
        value={"subject": _subject(user), "resources": list(resources), "places": places},
    )


@acl.command("delete", short_help="Take rights away.")
@click.argument("user")
@click.argument("resource", required=False)
@click.option("--default", "is_default", is_flag=True, help="The entry of RESOURCE among the defaults.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@at_holders
@uses_cluster
def delete(app: Application, user: str, resource: str | None, is_default: bool, yes: bool, at: dict[str, Any]) -> None:
    """Delete the entry of RESOURCE from the policies of USER; without RESOURCE all policies, the defaults among them.

    \b
    Example:
      thermocline acl delete alice Topic:orders --yes
    """
    if is_default and resource is None:
        raise click.UsageError("--default says where the entry of RESOURCE is: without RESOURCE all policies would go.")
    if not yes:
        click.confirm(f"Delete {resource or 'all policies'} of {user}?", abort=True, err=True)
    policy_type = "Default" if is_default else "Custom"
    with app.open_admin() as admin:
        places = admin.delete_acl(_subject(user), resource=resource, policy_type=policy_type, **at)
    app.output.text(
        f"deleted {resource or 'all policies'} of {user} at {', '.join(places)}",
        value={"subject": _subject(user), "resource": resource, "places": places},
    )


@acl.command("list", short_help="List what users may do.")
@click.option("--user", help="Only of this user.")
@click.option("--resource", help="Only entries whose resource has this in it.")
@at_holders
@uses_cluster
def list_(app: Application, user: str | None, resource: str | None, at: dict[str, Any]) -> None:
    """List the entries of all policies.

    \b
    Example:
      thermocline acl list --user alice
    """
    with app.open_admin() as admin:
        found = admin.acls(subject_part=None if user is None else _subject(user), resource_part=resource, **at)
    app.output.rows(
        {
            "place": place,
            "subject": one.subject,
            "policy": policy.policy_type,
            "resource": entry.resource,
            "actions": ",".join(entry.actions or ()),
            "from": ",".join(entry.source_ips or ()),
            "decision": entry.decision,
        }
        for place, acls in found.items()
        for one in acls
        if user is None or one.subject == _subject(user)
        for policy in one.policies or ()
        for entry in policy.entries or ()
    )


@acl.command("copy", short_help="Copy policies from one broker to another.")
@click.argument("users", nargs=-1)
@click.option("--from", "source", required=True, help="The broker that has them, by name or address.")
@click.option("--to", "target", required=True, help="The broker that gets them; it must have the users.")
@uses_cluster
def copy(app: Application, users: tuple[str, ...], source: str, target: str) -> None:
    """Copy the policies of USERS, or of all. Entries of other resources stay there. Where the first broker has no
    policy of one of USERS, nothing is copied.

    \b
    Example:
      thermocline acl copy --from broker-a --to broker-a
    """
    wanted = set(map(_subject, users))
    copied = []
    with app.open_admin() as admin:
        found = next(iter(admin.acls(broker=source).values()))
        check_copied(wanted, {str(one.subject) for one in found}, broker=source, what="policy of")
        for one in found:
            subject = str(one.subject)
            if wanted and subject not in wanted:
                continue
            if one.policies:
                admin.copy_acl(one, broker=target)
            copied.append(subject)
    app.output.text(
        f"copied {', '.join(copied) or 'no policy'} to {target}", value={"subjects": copied, "place": target}
    )


@acl.command("check", short_help="Show a decision, and what makes it.")
@click.argument("user")
@click.argument("action")
@click.argument("resource")
@click.option("--from", "source", default="127.0.0.1", show_default=True, metavar="IP", help="Address of the client.")
@at_holders
@uses_cluster
def check(app: Application, user: str, action: str, resource: str, source: str, at: dict[str, Any]) -> int:
    """Show whether USER may do ACTION (or one of several, separated by commas) with RESOURCE, and the entry that
    decides. Exit status 1: it is denied somewhere.

    \b
    Example:
      thermocline acl check alice Pub Topic:orders --from 10.0.0.7
    """
    with app.open_admin() as admin:
        found = admin.check_acl(user, [action], resource, source_ip=source, **at)
    app.output.rows(
        {
            "place": place,
            "decision": "allow" if one.is_allowed else "deny",
            "by": f"{one.policy}: {one.entry}" if one.entry is not None else one.reason,
        }
        for place, one in found.items()
    )
    return 0 if all(one.is_allowed for one in found.values()) else EXIT_DENIED
