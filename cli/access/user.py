"""`thermocline user`: who may sign requests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from thermocline.cli.access.holders import at_holders, check_copied
from thermocline.cli.common.application import Application, uses_cluster

__all__ = ["user"]


@click.group(short_help="Make, show, change and delete users.")
def user() -> None:
    """Make users, change their keys, disable them, delete them. For brokers with access control.

    \b
    Example:
      thermocline user list
    """


def _password_options(command: Any) -> Any:
    command = click.option(
        "--password", help="The secret key. Other users of this machine see it in the list of processes."
    )(command)
    return click.option(
        "--password-file",
        type=click.Path(dir_okay=False, allow_dash=True),
        help="A file with the secret key; - is stdin.",
    )(command)


def _read_password(app: Application, password: str | None, password_file: str | None, *, ask: bool) -> str | None:
    if password is not None and password_file is not None:
        raise click.UsageError("--password goes without --password-file.")
    if password is not None:
        app.output.note("warning: --password shows the key in the list of processes; use --password-file")
        return password
    if password_file is not None:
        data = sys.stdin.buffer.read() if password_file == "-" else Path(password_file).read_bytes()
        try:
            return data.decode().strip("\r\n")
        except UnicodeDecodeError:
            raise click.UsageError("the file with the secret key is no text in UTF-8.") from None
    return str(click.prompt("Secret key", hide_input=True, confirmation_prompt=True, err=True)) if ask else None


@user.command("create", short_help="Make a user.")
@click.argument("name")
@_password_options
@click.option("--super", "is_super", is_flag=True, help="A super user, who needs no policy.")
@at_holders
@uses_cluster
def create(
    app: Application, name: str, password: str | None, password_file: str | None, is_super: bool, at: dict[str, Any]
) -> None:
    """Make the user NAME, which is its access key. Without an option for the secret key the command
    prompts for it.

    \b
    Example:
      thermocline user create alice --password-file alice.key
    """
    key = _read_password(app, password, password_file, ask=True)
    assert key is not None
    with app.open_admin() as admin:
        places = admin.create_user(name, key, user_type="Super" if is_super else "Normal", **at)
    app.output.text(f"created {name} at {', '.join(places)}", value={"user": name, "places": places})


@user.command("update", short_help="Change a user.")
@click.argument("name")
@_password_options
@click.option("--type", "user_type", type=click.Choice(["super", "normal"]), help="What it is from now on.")
@click.option("--status", "user_status", type=click.Choice(["enable", "disable"]), help="Whether it is served.")
@at_holders
@uses_cluster
def update(
    app: Application,
    name: str,
    password: str | None,
    password_file: str | None,
    user_type: str | None,
    user_status: str | None,
    at: dict[str, Any],
) -> None:
    """Change the user NAME; what is not given stays. It counts for the next request.

    \b
    Example:
      thermocline user update alice --status disable
    """
    key = _read_password(app, password, password_file, ask=False)
    if key is None and user_type is None and user_status is None:
        raise click.UsageError("there is nothing to change.")
    with app.open_admin() as admin:
        places = admin.update_user(name, password=key, user_type=user_type, user_status=user_status, **at)
    app.output.text(f"updated {name} at {', '.join(places)}", value={"user": name, "places": places})


@user.command("delete", short_help="Delete a user.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@at_holders
@uses_cluster
def delete(app: Application, name: str, yes: bool, at: dict[str, Any]) -> None:
    """Delete the user NAME with its policies.

    \b
    Example:
      thermocline user delete alice --yes
    """
    if not yes:
        click.confirm(f"Delete {name} with its policies?", abort=True, err=True)
    with app.open_admin() as admin:
        places = admin.delete_user(name, **at)
    app.output.text(f"deleted {name} from {', '.join(places)}", value={"user": name, "places": places})


@user.command("list", short_help="List users.")
@click.option("--part", help="Only those with this in the name.")
@at_holders
@uses_cluster
def list_(app: Application, part: str | None, at: dict[str, Any]) -> None:
    """List the users, without their keys.

    \b
    Example:
      thermocline user list --json
    """
    with app.open_admin() as admin:
        found = admin.users(part=part, **at)
    app.output.rows(
        {"place": place, "user": one.username, "type": one.user_type, "status": one.user_status}
        for place, users in found.items()
        for one in users
    )


@user.command("copy", short_help="Copy users from one broker to another.")
@click.argument("names", nargs=-1)
@click.option("--from", "source", required=True, help="The broker that has them, by name or address.")
@click.option("--to", "target", required=True, help="The broker that gets them.")
@uses_cluster
def copy(app: Application, names: tuple[str, ...], source: str, target: str) -> None:
    """Copy the users NAMES, or all, with their keys. A user that the other broker has is changed. Needs a super user.
    Where the first broker lacks one of NAMES, nothing is copied.

    \b
    Example:
      thermocline user copy --from broker-a --to broker-a
    """
    copied = []
    with app.open_admin() as admin:
        users = next(iter(admin.users(broker=source).values()))
        check_copied(names, {str(one.username) for one in users}, broker=source, what="user")
        there = next(iter(admin.users(broker=target).values()))
        names_there = {one.username for one in there}
        for one in users:
            name = str(one.username)
            if names and name not in names:
                continue
            if one.password is None:
                raise click.ClickException("The keys are shown to super users alone")
            key, kind, status = one.password, str(one.user_type), str(one.user_status)
            if name in names_there:
                admin.update_user(name, password=key, user_type=kind, user_status=status, broker=target)
            else:
                admin.create_user(name, key, user_type=kind, user_status=status, broker=target)
            copied.append(name)
    app.output.text(f"copied {', '.join(copied) or 'no user'} to {target}", value={"users": copied, "place": target})
