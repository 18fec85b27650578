"""Users and their permissions in a definitions document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from broker.access import passwords
from broker.access.patterns import BadPattern, Pattern
from broker.access.reading import check_patterns
from broker.access.records import USER_LIMITS
from broker.definitions.document import LeftOut, Row, words

if TYPE_CHECKING:
    from broker.definitions.plan import Plan, Undo

FOREIGN_PATTERN = "its pattern needs what RE2 does not have"


class Password:
    """A password in the clear, to be hashed before the plan is carried out."""

    def __init__(self, user: str, text: str) -> None:
        self.user = user
        self.text = text
        self.password_hash = ""
        self.hashing_algorithm = ""


class Users:
    """Readers of users, permissions and topic permissions. `names` are those there will be."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._broker = plan.broker
        self.names = set(plan.broker.access.users)

    # -- users -------------------------------------------------------------------------------------

    def user(self, row: Row) -> None:
        plan, access = self._plan, self._broker.access
        name = row.name()
        if not plan.is_new(row, (name,), row.fields):
            return
        if row.fields.get("tags") is None:
            raise ValueError("tags_not_present: 'tags' is missing")
        tags = list(dict.fromkeys(words(row.fields["tags"], "tags")))
        if any("," in tag for tag in tags):
            raise ValueError("a tag cannot hold a comma")
        old = access.users.get(name)
        limits = self._user_limits(row)
        after: dict[str, Any] = {"tags": tags}
        if limits is not None:
            after["limits"] = limits
        password = self._password(row, name, after)
        if "password_hash" in after:
            passwords.check_hash(after["password_hash"], after["hashing_algorithm"])
        before = None
        if old is not None:
            before = {
                "tags": old.tags,
                "limits": old.limits,
                "password_hash": old.password_hash,
                "hashing_algorithm": old.hashing_algorithm,
            }
            if sorted(old.tags) == sorted(tags):
                after["tags"] = old.tags
        self.names.add(name)

        def do() -> Undo:
            known = access.users.get(name)
            if password is not None:
                made = password.password_hash, password.hashing_algorithm
            elif "password_hash" in after:
                made = after["password_hash"], after["hashing_algorithm"]
            elif known is not None:
                made = known.password_hash, known.hashing_algorithm
            else:
                made = "", passwords.SHA256
            access.put_user(name, tags, *made, limits)
            self._tell_user(name, known)
            return lambda: self._take_back_user(name, known)

        plan.change(row, before, after, do)

    def _password(self, row: Row, name: str, after: dict[str, Any]) -> Password | None:
        """Puts the hash into `after`, or gives the password that is to be hashed. With neither the
        user keeps what it has."""
        given, kept = row.fields.get("password"), row.fields.get("password_hash")
        if given is not None:
            if kept is not None:
                raise ValueError("both password and password_hash are given")
            if row.text("password"):
                passwords.check_length(given, self._broker.config.password_length_min)
                password = Password(name, given)
                self._plan.passwords.append(password)
                after["password_hash"], after["hashing_algorithm"] = "", passwords.ARGON2ID
                old = self._broker.access.users.get(name)
                if old is not None:
                    # Whether it is another one is not known before it is hashed.
                    after["password_hash"] = old.password_hash
                    after["hashing_algorithm"] = old.hashing_algorithm
                    after["password"] = "set"  # noqa: S105 - a marker
                return password
        elif "password_hash" not in row.fields:
            return None
        algorithm = row.fields.get("hashing_algorithm")
        if algorithm is not None:
            row.text("hashing_algorithm")
        text = row.text("password_hash") if kept is not None else ""
        password_hash, algorithm = passwords.imported(text, algorithm)
        if password_hash and not passwords.is_supported(password_hash, algorithm):
            self._plan.leave_out(
                row,
                f"no login can be checked against a hash of {algorithm[:100]}; the user "
                "keeps the password it has here, or has none",
                part="password_hash",
            )
            return None
        if not password_hash:
            algorithm = passwords.SHA256
        after["password_hash"], after["hashing_algorithm"] = password_hash, algorithm
        return None

    def _user_limits(self, row: Row) -> dict[str, int] | None:
        if row.fields.get("limits") is None:
            return None
        limits: dict[str, int] = {}
        for name, value in row.table("limits").items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"limit {name} is not a number")
            if name in USER_LIMITS:
                limits[name] = value
            else:
                self._plan.leave_out(row, "there is no such limit here", part=f"limits.{name}")
        return limits

    def _tell_user(self, name: str, before: Any) -> None:
        user = self._broker.access.users.get(name)
        if before is None:
            self._broker.emit("user.created", {"name": name})
        elif user is not None and before.epoch != user.epoch:
            self._broker.emit("user.changed", {"name": name, "epoch": user.epoch})

    def _take_back_user(self, name: str, before: Any) -> None:
        access = self._broker.access
        if before is None:
            if name in access.users:
                access.delete_user(name)
                self._broker.emit("user.deleted", {"name": name})
            return
        now = access.users.get(name)
        access.put_user(
            name, before.tags, before.password_hash, before.hashing_algorithm, before.limits
        )
        self._tell_user(name, now)

    # -- permissions -------------------------------------------------------------------------------

    def permission(self, row: Row) -> None:
        access = self._broker.access
        vhost, user = self._plan.tenants.vhost_of(row), self._user_of(row)
        after = {name: row.text(name) for name in ("configure", "write", "read")}
        if not self._plan.is_new(row, (user, vhost), after):
            return
        _check_patterns(*after.values())
        old = access.permissions.get((user, vhost))

        def do() -> Undo:
            self._plan.tenants.there(vhost)
            was = access.permissions.get((user, vhost))
            access.put_permission(user, vhost, *after.values())
            self._tell_permission(user, vhost)

            def undo() -> None:
                if was is None:
                    access.delete_permission(user, vhost)
                else:
                    access.put_permission(user, vhost, was.configure, was.write, was.read)
                self._tell_permission(user, vhost)

            return undo

        self._plan.change(row, msgspec.to_builtins(old) if old else None, after, do)

    def topic_permission(self, row: Row) -> None:
        access = self._broker.access
        vhost, user = self._plan.tenants.vhost_of(row), self._user_of(row)
        exchange = row.text("exchange") or "amq.default"
        after = {name: row.text(name) for name in ("write", "read")}
        if not self._plan.is_new(row, (user, vhost, exchange), after):
            return
        _check_patterns(*after.values())
        old = access.topic_permissions.get((user, vhost, exchange))

        def do() -> Undo:
            self._plan.tenants.there(vhost)
            was = access.topic_permissions.get((user, vhost, exchange))
            access.put_topic_permission(user, vhost, exchange, *after.values())
            self._tell_permission(user, vhost)

            def undo() -> None:
                if was is None:
                    access.delete_topic_permission(user, vhost, exchange)
                else:
                    access.put_topic_permission(user, vhost, exchange, was.write, was.read)
                self._tell_permission(user, vhost)

            return undo

        self._plan.change(row, msgspec.to_builtins(old) if old else None, after, do)

    def _user_of(self, row: Row) -> str:
        name = row.text("user")
        if name not in self.names:
            raise ValueError(f"user '{name}' does not exist")
        return name

    def _tell_permission(self, user: str, vhost: str) -> None:
        self._broker.emit("permission.changed", {"vhost": vhost, "user": user})


def _check_patterns(*patterns: str) -> None:
    """Raises LeftOut for an expression that another engine would take, else BadSetting."""
    for pattern in patterns:
        try:
            Pattern(pattern)
        except BadPattern as error:
            if error.is_foreign:
                raise LeftOut(f"{FOREIGN_PATTERN}: {error}") from None
    check_patterns(*patterns)
