"""Commands on users, permissions and virtual hosts."""

from __future__ import annotations

from typing import Any

from broker.process.lifetime import program
from management.ctl.table import (
    DATA,
    NO_USER,
    PASSWORD,
    SOFTWARE,
    Call,
    Command,
    CommandError,
    Parameter,
    Rows,
    enter,
    json_object,
    runs,
    user,
    words,
)

USER_LIMITS = ("max-connections", "max-channels")
VHOST_LIMITS = ("max-connections", "max-queues")
_HASHED = Parameter(
    name="--pre-hashed-password",
    flag=True,
    help="The password is given as a salted hash in RabbitMQ's form (see hash_password).",
)
_PATTERNS = tuple(
    Parameter(name=one, help=f"Regular expression (RE2) of names: {what}.")
    for one, what in (
        ("configure", "may be declared and deleted"),
        ("write", "may be published and bound to"),
        ("read", "may be consumed and bound from"),
    )
)
_EXCHANGE = Parameter(name="exchange", help="Name of a topic exchange.", names="exchanges")
_LIMITS = Parameter(
    name="definition", help="Limits as a JSON object; a negative value is none.", read=json_object
)


async def user_row(call: Call, username: str) -> dict[str, Any]:
    """The row of a user. Raises CommandError 67 if there is none."""
    for row in await call.rows("users"):
        if row["name"] == username:
            found: dict[str, Any] = row
            return found
    raise CommandError(f'User "{username}" does not exist', NO_USER)


async def _put_user(call: Call, row: dict[str, Any], **changes: Any) -> None:
    """Writes a user with changes; what is not changed stays."""
    values: dict[str, Any] = {"name": row["name"], "tags": list(row["tags"])}
    if "password" not in changes:
        values["password_hash"] = row["password_hash"]
        values["hashing_algorithm"] = row["hashing_algorithm"]
    await call.ask("user.put", **{**values, **changes})


def _password(call: Call) -> str:
    given = call.options["password"]
    return given if given is not None else call.read_secret("Password: ")


@runs(
    Command(
        name="add_user",
        group="users",
        help="Creates a user, who has no permissions in any virtual host at first.",
        examples=("add_user ada", f"echo s3cret | {program()} ctl add_user ada"),
        verb="user.put",
        parameters=(user(), PASSWORD, _HASHED),
        says='Adding user "{username}" ...',
    )
)
async def add_user(call: Call) -> str:
    username = call.options["username"]
    for row in await call.rows("users"):
        if row["name"] == username:
            raise CommandError(f'User "{username}" already exists', SOFTWARE)
    password = _password(call)
    if call.options["pre_hashed_password"]:
        await call.ask("user.put", name=username, tags=[], password_hash=password)
    else:
        await call.ask("user.put", name=username, tags=[], password=password)
    return "Done. Grant the user permissions in a virtual host: see help set_permissions."


enter(
    Command(
        name="delete_user",
        group="users",
        help="Deletes a user with its permissions and closes its connections.",
        examples=("delete_user ada",),
        verb="user.delete",
        parameters=(user(to="name"),),
        says='Deleting user "{username}" ...',
    )
)


@runs(
    Command(
        name="change_password",
        group="users",
        help="Sets a new password.",
        examples=("change_password ada", f"{program()} ctl change_password ada < password.txt"),
        verb="user.put",
        parameters=(user(), PASSWORD),
        says='Changing password for user "{username}" ...',
    )
)
async def change_password(call: Call) -> None:
    row = await user_row(call, call.options["username"])
    await _put_user(call, row, password=_password(call))


@runs(
    Command(
        name="clear_password",
        group="users",
        help="Removes the password, so that the user cannot log in with one.",
        examples=("clear_password ada",),
        verb="user.put",
        parameters=(user(),),
        says='Clearing password for user "{username}" ...',
    )
)
async def clear_password(call: Call) -> None:
    row = await user_row(call, call.options["username"])
    await _put_user(call, row, password_hash="", hashing_algorithm=None)


@runs(
    Command(
        name="authenticate_user",
        group="users",
        help="Checks a password. Wrong ones count for the limit on attempts.",
        examples=("authenticate_user ada",),
        verb="authenticate",
        parameters=(user(), PASSWORD),
        says='Authenticating user "{username}" ...',
    )
)
async def authenticate_user(call: Call) -> str:
    await call.ask(
        "authenticate", user=call.options["username"], password=_password(call), peer="127.0.0.1"
    )
    return "Success"


@runs(
    Command(
        name="set_user_tags",
        group="users",
        help="Sets the tags of a user: administrator, monitoring, policymaker, management or none.",
        examples=("set_user_tags ada administrator", "set_user_tags ada"),
        verb="user.put",
        parameters=(user(), Parameter(name="tag", help="Tags.", many=True, optional=True)),
        says='Setting tags for user "{username}" to {tag} ...',
    )
)
async def set_user_tags(call: Call) -> None:
    row = await user_row(call, call.options["username"])
    await _put_user(call, row, tags=[word for tag in call.options["tag"] for word in words(tag)])


@runs(
    Command(
        name="hash_password",
        group="users",
        help="Prints RabbitMQ's salted SHA-256 form of a password, for definitions files.",
        examples=("hash_password", f"echo s3cret | {program()} ctl -q hash_password"),
        verb="password.hash",
        parameters=(PASSWORD,),
    )
)
async def hash_password(call: Call) -> Any:
    return (await call.ask("password.hash", password=_password(call)))["result"]


# Limits of users and virtual hosts.


async def _set_limits(call: Call, verb: str, known: tuple[str, ...], **of: str) -> None:
    limits = call.options["definition"]
    for limit in limits:
        if limit not in known:
            raise CommandError(f"'{limit}' is no limit; limits: {', '.join(known)}", DATA)
        if not isinstance(limits[limit], int) or isinstance(limits[limit], bool):
            raise CommandError(f"{limit} is a whole number, not {limits[limit]!r}", DATA)
    for limit, value in limits.items():
        await call.ask(verb, **of, name=limit, value=value)


@runs(
    Command(
        name="set_user_limits",
        group="users",
        help="Sets limits of a user: max-connections, max-channels.",
        examples=("set_user_limits ada '{\"max-connections\": 10}'",),
        verb="user-limit.put",
        parameters=(user(), _LIMITS),
        says='Setting user limits to "{definition}" for user "{username}" ...',
    )
)
async def set_user_limits(call: Call) -> None:
    await _set_limits(call, "user-limit.put", USER_LIMITS, user=call.options["username"])


@runs(
    Command(
        name="clear_user_limits",
        group="users",
        help="Removes one limit of a user, or all.",
        examples=("clear_user_limits ada max-connections", "clear_user_limits ada all"),
        verb="user-limit.delete",
        parameters=(
            user(),
            Parameter(name="limit", help="Which.", choices=(*USER_LIMITS, "all")),
        ),
        says='Clearing "{limit}" limit for user "{username}" ...',
    )
)
async def clear_user_limits(call: Call) -> None:
    limit, username = call.options["limit"], call.options["username"]
    for one in USER_LIMITS if limit == "all" else (limit,):
        await call.ask("user-limit.delete", user=username, name=one)


@runs(
    Command(
        name="list_user_limits",
        group="users",
        help="Lists the limits of users.",
        examples=("list_user_limits", "list_user_limits --user ada"),
        verb="list",
        parameters=(Parameter(name="--user", help="Only of this user.", names="users"),),
        says="Listing limits for users ...",
    )
)
async def list_user_limits(call: Call) -> Rows:
    found = await call.rows("user-limits", user=call.options["user"])
    return Rows(("user", "limits"), [[row["user"], row["value"]] for row in found])


@runs(
    Command(
        name="set_vhost_limits",
        group="vhosts",
        help="Sets limits of a virtual host: max-connections, max-queues.",
        examples=("set_vhost_limits -p orders '{\"max-queues\": 500}'",),
        verb="vhost-limit.put",
        parameters=(_LIMITS,),
        says='Setting vhost limits to "{definition}" for vhost "{vhost}" ...',
        vhost=True,
    )
)
async def set_vhost_limits(call: Call) -> None:
    await _set_limits(call, "vhost-limit.put", VHOST_LIMITS, vhost=call.vhost)


@runs(
    Command(
        name="clear_vhost_limits",
        group="vhosts",
        help="Removes all limits of a virtual host.",
        examples=("clear_vhost_limits -p orders",),
        verb="vhost-limit.delete",
        says='Clearing vhost "{vhost}" limits ...',
        vhost=True,
    )
)
async def clear_vhost_limits(call: Call) -> None:
    for limit in VHOST_LIMITS:
        await call.ask("vhost-limit.delete", vhost=call.vhost, name=limit)


@runs(
    Command(
        name="list_vhost_limits",
        group="vhosts",
        help="Lists the limits of every virtual host.",
        examples=("list_vhost_limits",),
        verb="list",
        says="Listing limits for all vhosts ...",
    )
)
async def list_vhost_limits(call: Call) -> Rows:
    found = await call.rows("vhost-limits")
    return Rows(("vhost", "limits"), [[row["vhost"], row["value"]] for row in found])


# Permissions.

enter(
    Command(
        name="set_permissions",
        group="access",
        help="Grants a user permissions in a virtual host.",
        examples=("set_permissions -p orders ada '^ada-' '.*' '.*'",),
        verb="permission.put",
        parameters=(user(to="user"), *_PATTERNS),
        says='Setting permissions for user "{username}" in vhost "{vhost}" ...',
        vhost=True,
    ),
    Command(
        name="clear_permissions",
        group="access",
        help="Takes a virtual host away from a user.",
        examples=("clear_permissions -p orders ada",),
        verb="permission.delete",
        parameters=(user(to="user"),),
        says='Clearing permissions for user "{username}" in vhost "{vhost}" ...',
        vhost=True,
    ),
    Command(
        name="set_topic_permissions",
        group="access",
        help="Bounds the routing keys that a user may publish and bind on a topic exchange.",
        examples=("set_topic_permissions -p orders ada amq.topic '^eu\\.' '^eu\\.'",),
        verb="topic-permission.put",
        parameters=(user(to="user"), _EXCHANGE, *_PATTERNS[1:]),
        says='Setting topic permissions on "{exchange}" for user "{username}" in vhost '
        '"{vhost}" ...',
        vhost=True,
    ),
    Command(
        name="clear_topic_permissions",
        group="access",
        help="Removes those bounds, on one exchange or on all.",
        examples=("clear_topic_permissions -p orders ada amq.topic",),
        verb="topic-permission.delete",
        parameters=(
            user(to="user"),
            Parameter(name="exchange", help="Only of this one.", optional=True, names="exchanges"),
        ),
        says='Clearing topic permissions for user "{username}" in vhost "{vhost}" ...',
        vhost=True,
    ),
)


@runs(
    Command(
        name="set_permissions_globally",
        group="access",
        help="Grants a user permissions in every virtual host there is now.",
        examples=("set_permissions_globally ada '.*' '.*' '.*'",),
        verb="permission.put",
        parameters=(user(), *_PATTERNS),
        says='Setting permissions for user "{username}" in all virtual hosts ...',
    )
)
async def set_permissions_globally(call: Call) -> None:
    patterns = {one: call.options[one] for one in ("configure", "write", "read")}
    for row in await call.rows("vhosts", columns=["name"]):
        await call.ask(
            "permission.put", vhost=row["name"], user=call.options["username"], **patterns
        )


# Virtual hosts.

_VHOST = Parameter(name="vhost_name", help="Name of the virtual host.", to="name", names="vhosts")
_VHOST_OPTIONS = (
    Parameter(name="--description", help="A text for people."),
    Parameter(name="--tags", help="Words between commas.", read=words),
    Parameter(
        name="--default-queue-type",
        help="Type of new durable queues that name none.",
        choices=("classic", "quorum", "stream"),
    ),
)
enter(
    Command(
        name="add_vhost",
        group="vhosts",
        help="Creates a virtual host. Grant permissions in it with set_permissions.",
        examples=("add_vhost orders", "add_vhost orders --default-queue-type quorum"),
        verb="vhost.put",
        parameters=(_VHOST, *_VHOST_OPTIONS),
        says='Adding vhost "{vhost_name}" ...',
    ),
    Command(
        name="update_vhost_metadata",
        group="vhosts",
        help="Changes the description, tags or default queue type of a virtual host.",
        examples=("update_vhost_metadata orders --tags production,eu",),
        verb="vhost.put",
        parameters=(_VHOST, *_VHOST_OPTIONS),
        says='Updating metadata of vhost "{vhost_name}" ...',
    ),
    Command(
        name="set_vhost_tags",
        group="vhosts",
        help="Sets the tags of a virtual host.",
        examples=("set_vhost_tags orders production eu",),
        verb="vhost.put",
        parameters=(_VHOST, Parameter(name="tags", help="Tags.", many=True, optional=True)),
        says='Setting tags for vhost "{vhost_name}" to {tags} ...',
    ),
    Command(
        name="delete_vhost",
        group="vhosts",
        help="Deletes a virtual host and all that is in it.",
        examples=("delete_vhost orders",),
        verb="vhost.delete",
        parameters=(_VHOST,),
        says='Deleting vhost "{vhost_name}" ...',
    ),
)
enter(
    Command(
        name="enable_vhost_protection_from_deletion",
        group="vhosts",
        help="Protects a virtual host from deletion.",
        examples=("enable_vhost_protection_from_deletion orders",),
        verb="vhost.protect",
        parameters=(_VHOST,),
        fixed={"protected": True},
        says='Protecting vhost "{vhost_name}" from deletion ...',
    ),
    Command(
        name="disable_vhost_protection_from_deletion",
        group="vhosts",
        help="Ends the protection of a virtual host.",
        examples=("disable_vhost_protection_from_deletion orders",),
        verb="vhost.protect",
        parameters=(_VHOST,),
        fixed={"protected": False},
        says='Ending the protection of vhost "{vhost_name}" ...',
    ),
)
