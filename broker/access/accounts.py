"""Users, their tags, permissions and limits, and the questions asked about them.

Rules and refusal texts are RabbitMQ's (its guides "Access Control" and "Authentication"). Only
`verify` is slow, and belongs in a thread; the server flushes the settings files to the disk.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from broker.access import history_rule, passwords
from broker.access.login import EndedSessions, Job, Refused, Tickets, VerifiedPairs
from broker.access.parameters import Parameters
from broker.access.patterns import Pattern, filled_in
from broker.access.reading import check_limit, check_patterns, read_users
from broker.access.records import (
    ENDED_SESSIONS_FILE,
    USER_LIMITS,
    USERS_FILE,
    BadSetting,
    Kind,
    Permission,
    TopicPermission,
    User,
    UsersFile,
    limit_of,
    set_limit,
)
from broker.access.rights import Rights
from broker.access.throttle import Limits, Throttle, Wait
from broker.schema.errors import AccessRefused
from broker.settings.files import SettingsError, SettingsFiles


class Access:
    """All that is known about who may do what. `version` rises with every change.

    `begin`, `verify` and `finish` check a password; `check` and `check_topic` a permission.
    `login_limits` bounds wrong passwords; `rehash_at_login` replaces imported hashes at logins.
    """

    def __init__(
        self,
        files: SettingsFiles,
        *,
        login_limits: Limits | None = None,
        rehash_at_login: bool = False,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.version = 0
        self.rehash_at_login = rehash_at_login
        self.users: dict[str, User] = {}
        self.permissions: dict[tuple[str, str], Permission] = {}
        """By user and vhost."""
        self.topic_permissions: dict[tuple[str, str, str], TopicPermission] = {}
        """By user, vhost and exchange."""
        self.parameters = Parameters(files, self._parameters_changed)
        self.attempts: Counter[tuple[str, str, str, bool]] = Counter()
        """Logins by protocol, user, peer and result."""
        self.counts_sources = True
        self._files = files
        self._clock_ms = clock_ms
        self._next_epoch = 1
        self.throttle = Throttle(monotonic, login_limits or Limits())
        self._verified = VerifiedPairs(monotonic, random(32))
        self._tickets = Tickets(monotonic, lambda session: session in self._ended)
        self._ended = EndedSessions(clock_ms, {})
        self._jobs: dict[tuple[bytes, str], Job] = {}
        self._grants: dict[tuple[str, str], dict[str, Pattern]] = {}
        self._topic_grants: dict[tuple[str, str, str], dict[str, Pattern]] = {}

    # Boot.

    def load(self) -> bool:
        """Reads the settings files; False if there are no users yet, on the first boot.

        Raises SettingsError, one line, if a file cannot be used.
        """
        self.parameters.load()
        ended = self._files.load(ENDED_SESSIONS_FILE, dict[str, int])
        self._ended = EndedSessions(self._clock_ms, ended or {})
        content = read_users(self._files)
        if content is None:
            return False
        self.users = {user.name: user for user in content.users}
        self.permissions = {(row.user, row.vhost): row for row in content.permissions}
        self.topic_permissions = {
            (row.user, row.vhost, row.exchange): row for row in content.topic_permissions
        }
        self._next_epoch = max([content.next_epoch, *(one.epoch + 1 for one in content.users)])
        for user in content.users:
            if not user.epoch:
                user.epoch = self._new_epoch()
        self.version += 1
        return True

    def create_first_user(self, name: str, password: str) -> User:
        """The first administrator, with full permissions in vhost `/`.

        Raises SettingsError for another name than guest with guest's password, or for none.
        """
        if not password:
            raise SettingsError(f"default_password is empty: user '{name}' could never log in")
        if name != "guest" and password == "guest":  # noqa: S105 - a known one
            raise SettingsError(
                f"default_user is '{name}' but default_password is still 'guest': set it too"
            )
        user = self.put_user(
            name, ["administrator"], passwords.hash_password(password), passwords.ARGON2ID
        )
        self.put_permission(name, "/", ".*", ".*", ".*")
        return user

    # Logging in.

    def begin(
        self,
        user: str,
        password: str,
        peer_is_loopback: bool,
        *,
        peer: str,
        protocol: str,
        again: bool = False,
    ) -> User | Refused | Job:
        """Starts a login. A `Job` means: run `verify` in a thread, then `finish`.

        `peer` is the address the person's socket comes from; `protocol` is http, websocket or amqp.
        `again`: its connection was let in with both before, so that it waits for no others.
        """
        known = self.users.get(user)
        wait = self.throttle.wait(user, peer)
        if known is not None and protocol != "http" and self._tickets.redeem(known, password):
            return self._let_in(known, protocol, peer)
        if wait is not None:
            return self._refuse_throttled(user, peer, protocol, wait)
        if known is not None and known.loopback_only and not peer_is_loopback:
            self._count(protocol, user, peer, False)
            return Refused("User can only log in via localhost")
        mac = self._verified.mac(user, password)
        if (
            known is not None
            and self._verified.holds(known, mac)
            and (again or not self.throttle.is_flooded(user, peer))
        ):
            self.throttle.trust(user, peer)
            return self._let_in(known, protocol, peer)
        shared = self._jobs.get((mac, peer))
        if shared is not None:
            return shared
        if not self.throttle.begin(user, peer, again=again):
            return self._refuse_throttled(user, peer, protocol, Wait(1.0))
        job = Job(
            user=user,
            password=password,
            peer=peer,
            password_hash=known.password_hash if known is not None else None,
            hashing_algorithm=known.hashing_algorithm if known is not None else "",
            epoch=known.epoch if known is not None else -1,
            mac=mac,
            rehash=self.rehash_at_login,
            is_trusted=self.throttle.is_trusted(user, peer),
        )
        self._jobs[mac, peer] = job
        return job

    def admits(self, user: str, peer_is_loopback: bool) -> bool:
        """Whether a client certificate that names this user would log in; counts no login."""
        known = self.users.get(user)
        return known is not None and (peer_is_loopback or not known.loopback_only)

    def begin_certified(
        self, user: str, peer_is_loopback: bool, *, peer: str, protocol: str
    ) -> User | Refused:
        """A login without a password: the client's certificate was verified and names the user."""
        known = self.users.get(user)
        if known is not None and self.admits(user, peer_is_loopback):
            return self._let_in(known, protocol, peer)
        self._count(protocol, user, peer, False)
        if known is not None:
            return Refused("User can only log in via localhost")
        return Refused("the client's certificate names no user of this broker")

    @staticmethod
    def verify(job: Job) -> bool:
        """Whether the password fits. Slow; changes nothing but the job."""
        ok = passwords.verify(job.password, job.password_hash, job.hashing_algorithm)
        if (
            ok
            and job.rehash
            and passwords.is_outdated(job.password_hash or "", job.hashing_algorithm)
        ):
            job.upgraded_hash = passwords.hash_password(job.password)
        return ok

    def settle(self, job: Job, ok: bool) -> None:
        """Notes the outcome of a job once, also if its clients have left: throttle, remembered
        pair, upgraded hash."""
        if self._jobs.pop((job.mac, job.peer), None) is None:
            return
        user = self._fitting(job, ok)
        self.throttle.end(job.user, job.peer, user is not None)
        if user is None:
            return
        self._verified.remember(user, job.mac)
        if job.upgraded_hash is not None:
            self.users[user.name] = msgspec.structs.replace(
                user,
                password_hash=job.upgraded_hash,
                hashing_algorithm=passwords.ARGON2ID,
            )
            self._users_changed()

    def finish(self, job: Job, ok: bool, *, protocol: str) -> User | Refused:
        """Ends a login that `begin` made a job of. Each login that shares the job calls it."""
        self.settle(job, ok)
        user = self._fitting(job, ok)
        if user is not None:
            return self._let_in(user, protocol, job.peer)
        self._count(protocol, job.user, job.peer, False)
        return Refused()

    def abandon(self, job: Job) -> None:
        """Drops a job whose password was not looked at; it does not count as a wrong one."""
        if self._jobs.pop((job.mac, job.peer), None) is not None:
            self.throttle.give_back(job.user, job.peer)

    def issue_ticket(self, user: str, session_id: str = "") -> str:
        """A password for one AMQP login of the user within 30 seconds, and within the session."""
        return self._tickets.issue(self._user(user), session_id)

    def session_stands(self, user: str, epoch: int, session_id: str) -> User | None:
        """The user of a session, or None if the session is over."""
        known = self.users.get(user)
        if known is None or known.epoch != epoch or session_id in self._ended:
            return None
        return known

    def end_session(self, session_id: str, expires_at: int) -> None:
        """Ends a session; its id is kept until `expires_at`, in ms since 1970."""
        self._ended.end(session_id, expires_at)
        self._files.put(ENDED_SESSIONS_FILE, self._ended.snapshot())

    # Questions.

    def rights(self, user: str | None, vhost: str) -> Rights:
        """What a user may do in a vhost; without a user it is the appliance itself."""
        return Rights(self, user, vhost)

    def vhost_access(self, user: str, vhost: str) -> bool:
        """Whether the user has a permission row for the vhost."""
        return (user, vhost) in self.permissions

    def allowed(self, user: str, vhost: str, kind: Kind, name: str) -> bool:
        """Whether the user may do this to a queue or an exchange of that name."""
        grants = self._grants.get((user, vhost))
        if grants is None:
            row = self.permissions.get((user, vhost))
            if row is None:
                return False
            grants = self._grants[user, vhost] = {
                "configure": Pattern(row.configure),
                "write": Pattern(row.write),
                "read": Pattern(row.read),
            }
        return grants[kind].matches(name)

    def check(self, user: str, vhost: str, kind: Kind, resource_kind: str, name: str) -> None:
        """Raises AccessRefused unless the user may `configure`, `write` or `read` the resource.

        `resource_kind` is queue or exchange; the nameless exchange is asked for as amq.default.
        """
        if resource_kind == "exchange" and not name:
            name = "amq.default"
        why = history_rule.refusal(self, user, vhost, kind, resource_kind, name)
        if why or not self.allowed(user, vhost, kind, name):
            raise AccessRefused(
                f"{kind} access to {resource_kind} '{name}' in vhost '{vhost}' "
                f"refused for user '{user}'{why}"
            )

    def check_topic(
        self, user: str, vhost: str, kind: Kind, exchange: str, routing_key: str
    ) -> None:
        """Raises AccessRefused if the user's patterns for this topic exchange leave the key out.

        Without such patterns every key is allowed. `{username}` and `{vhost}` in a pattern stand
        for the user's and the vhost's names.
        """
        if not self.topic_permissions:
            return
        key = (user, vhost, exchange or "amq.default")
        grants = self._topic_grants.get(key)
        if grants is None:
            row = self.topic_permissions.get(key)
            if row is None:
                return
            grants = self._topic_grants[key] = {
                "write": Pattern(filled_in(row.write, user, vhost)),
                "read": Pattern(filled_in(row.read, user, vhost)),
            }
        if not grants[kind].matches(routing_key):
            raise AccessRefused(
                f"{kind} access to topic '{routing_key}' in exchange '{key[2]}' in vhost "
                f"'{vhost}' refused for user '{user}'"
            )

    @property
    def vhost_limits(self) -> dict[str, dict[str, int]]:
        """Limits by vhost."""
        return self.parameters.vhost_limits

    @property
    def global_parameters(self) -> dict[str, Any]:
        """Settings of the whole node by name."""
        return self.parameters.node

    def user_limit(self, user: str, name: str) -> int | None:
        """max-connections or max-channels of a user; None if unlimited."""
        known = self.users.get(user)
        return limit_of(known.limits, name) if known is not None else None

    def vhost_limit(self, vhost: str, name: str) -> int | None:
        """max-connections or max-queues of a vhost; None if unlimited."""
        return self.parameters.vhost_limit(vhost, name)

    # Changes.

    def put_user(
        self,
        name: str,
        tags: list[str],
        password_hash: str,
        hashing_algorithm: str,
        limits: dict[str, int] | None = None,
    ) -> User:
        """Creates a user or gives an existing one this password and these tags.

        A new user called guest logs in from this machine only, as in RabbitMQ: its password is the
        one that everybody knows.
        Raises BadSetting for an empty name, a tag that is no word, or a hash of an unknown form.
        """
        if not name:
            raise BadSetting("user name is empty")
        try:
            passwords.check_hash(password_hash, hashing_algorithm)
        except ValueError as error:
            raise BadSetting(f"user '{name}': {error}") from None
        for tag in tags:
            if not tag or "," in tag:
                raise BadSetting(f"user '{name}': '{tag}' cannot be a tag")
        for limit in limits or {}:
            check_limit(limit, USER_LIMITS)
        old = self.users.get(name)
        user = User(
            name=name,
            password_hash=password_hash,
            hashing_algorithm=hashing_algorithm,
            tags=list(dict.fromkeys(tags)),
            limits=dict(limits) if limits is not None else (old.limits if old else {}),
            loopback_only=old.loopback_only if old is not None else name == "guest",
        )
        if (
            old is not None
            and old.password_hash == password_hash
            and sorted(old.tags) == sorted(user.tags)
        ):
            user.epoch = old.epoch
        else:
            user.epoch = self._new_epoch()
        self.users[name] = user
        self._verified.forget(name)
        self._users_changed()
        return user

    def delete_user(self, name: str) -> None:
        """Deletes a user and its permissions. Raises KeyError if there is none."""
        del self.users[name]
        self._verified.forget(name)
        self.throttle.forget(name)
        for row in [row for row in self.permissions if row[0] == name]:
            del self.permissions[row]
        for topic in [row for row in self.topic_permissions if row[0] == name]:
            del self.topic_permissions[topic]
        self._users_changed()

    def put_permission(self, user: str, vhost: str, configure: str, write: str, read: str) -> bool:
        """Sets a permission row; True if it is new. Raises BadSetting for a bad pattern."""
        check_patterns(configure, write, read)
        created = (user, vhost) not in self.permissions
        self.permissions[user, vhost] = Permission(user, vhost, configure, write, read)
        self._users_changed()
        return created

    def delete_permission(self, user: str, vhost: str) -> None:
        """Removes a permission row. Raises KeyError if there is none."""
        del self.permissions[user, vhost]
        self._users_changed()

    def put_topic_permission(
        self, user: str, vhost: str, exchange: str, write: str, read: str
    ) -> bool:
        """Sets a topic permission row; True if it is new. Raises BadSetting for a bad pattern."""
        check_patterns(write, read)
        key = (user, vhost, exchange or "amq.default")
        created = key not in self.topic_permissions
        self.topic_permissions[key] = TopicPermission(user, vhost, key[2], write, read)
        self._users_changed()
        return created

    def delete_topic_permission(self, user: str, vhost: str, exchange: str | None) -> None:
        """Removes a topic permission row, or all of the user in the vhost.

        Raises KeyError if there is none.
        """
        rows = [
            key
            for key in self.topic_permissions
            if key[:2] == (user, vhost) and exchange in (None, key[2])
        ]
        if not rows:
            raise KeyError((user, vhost, exchange))
        for key in rows:
            del self.topic_permissions[key]
        self._users_changed()

    def put_user_limit(self, user: str, name: str, value: int | None) -> None:
        """Sets max-connections or max-channels of a user; None or a negative value is no limit."""
        check_limit(name, USER_LIMITS)
        known = self._user(user)
        limits = dict(known.limits)
        set_limit(limits, name, value)
        self.users[user] = msgspec.structs.replace(known, limits=limits)
        self._users_changed()

    def forget_vhost(self, vhost: str) -> None:
        """Removes every permission and parameter of a vhost that is deleted."""
        for row in [row for row in self.permissions if row[1] == vhost]:
            del self.permissions[row]
        for topic in [row for row in self.topic_permissions if row[1] == vhost]:
            del self.topic_permissions[topic]
        self._users_changed()
        self.parameters.forget_vhost(vhost)

    # How it works.

    def _user(self, name: str) -> User:
        try:
            return self.users[name]
        except KeyError:
            raise BadSetting(f"user '{name}' does not exist") from None

    def _fitting(self, job: Job, ok: bool) -> User | None:
        """The user of a job, if the password fits and the user is still the same."""
        user = self.users.get(job.user)
        return user if ok and user is not None and user.epoch == job.epoch else None

    def _new_epoch(self) -> int:
        epoch = self._next_epoch
        self._next_epoch += 1
        return epoch

    def _let_in(self, user: User, protocol: str, peer: str) -> User:
        self._count(protocol, user.name, peer, True)
        return user

    def _refuse_throttled(self, user: str, peer: str, protocol: str, wait: Wait) -> Refused:
        self._count(protocol, user, peer, False)
        return Refused.too_often(wait)

    def _count(self, protocol: str, user: str, peer: str, ok: bool) -> None:
        is_full = len(self.attempts) >= 10_000 and (protocol, user, peer, ok) not in self.attempts
        if is_full or not self.counts_sources:
            user, peer = "", ""
        self.attempts[protocol, user, peer, ok] += 1

    def _users_changed(self) -> None:
        self.version += 1
        self._grants.clear()
        self._topic_grants.clear()
        content = UsersFile(
            # A user's record is replaced, never altered: the list is all there is to copy.
            users=list(self.users.values()),
            permissions=list(self.permissions.values()),
            topic_permissions=list(self.topic_permissions.values()),
            next_epoch=self._next_epoch,
        )
        self._files.put(USERS_FILE, content)

    def _parameters_changed(self) -> None:
        self.version += 1
