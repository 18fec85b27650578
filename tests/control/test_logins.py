"""Passwords at the protocol: hashes, memory of verified pairs, throttle, tickets, sessions."""

from __future__ import annotations

import argon2
import bcrypt
import pytest
from argon2.exceptions import VerifyMismatchError

from broker.access import Access, Job, Refused, User, passwords
from broker.access.login import REMEMBERED_S, TICKET_S
from broker.access.passwords import ARGON2ID, BCRYPT, MD5, SHA256, SHA512, rabbit_hash
from broker.access.throttle import WINDOW_S, Limits
from broker.serving.addresses import address_of, is_loopback
from broker.settings.files import SettingsFiles
from tests.control.disks import MemoryDisk

BAD_LOGINS = 10


class Clock:
    """Monotonic seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def access(clock: Clock, disk: MemoryDisk) -> Access:
    access = Access(
        SettingsFiles("/data", disk), monotonic=clock, clock_ms=lambda: int(clock.now * 1000)
    )
    access.put_user("anna", ["administrator"], rabbit_hash("secret"), SHA256)
    return access


def login(
    access: Access,
    password: str,
    *,
    user: str = "anna",
    peer: str = "192.0.2.1",
    protocol: str = "http",
) -> User | Refused:
    begun = access.begin(user, password, is_loopback(peer), peer=peer, protocol=protocol)
    if isinstance(begun, Job):
        return access.finish(begun, Access.verify(begun), protocol=protocol)
    return begun


def needs_hashing(access: Access, password: str, user: str = "anna") -> bool:
    begun = access.begin(user, password, False, peer="192.0.2.1", protocol="http")
    if isinstance(begun, Job):
        access.abandon(begun)
    return isinstance(begun, Job)


# The example of RabbitMQ's guide "Passwords": salt 908D C60A, password test12.
SHA_EXAMPLE = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


def test_it_accepts_hashes_of_rabbitmq() -> None:
    assert passwords.verify("test12", SHA_EXAMPLE, SHA256)
    assert not passwords.verify("test13", SHA_EXAMPLE, SHA256)
    assert passwords.verify("wide", rabbit_hash("wide", SHA512), SHA512)


@pytest.mark.parametrize(
    ("password_hash", "algorithm"),
    [("", SHA256), (None, ""), (rabbit_hash(""), SHA256), (passwords.hash_password(""), ARGON2ID)],
    ids=["empty", "none", "sha256", "argon2id"],
)
def test_it_never_lets_an_empty_password_in(password_hash: str | None, algorithm: str) -> None:
    assert not passwords.verify("", password_hash, algorithm)


@pytest.mark.parametrize(
    ("password_hash", "algorithm"),
    [
        (None, ""),
        ("", SHA256),
        (rabbit_hash("x"), SHA256),
        (passwords.hash_password("x"), ARGON2ID),
    ],
    ids=["none", "empty", "sha256", "argon2id"],
)
def test_it_works_equally_hard_for_every_wrong_password(
    monkeypatch: pytest.MonkeyPatch, password_hash: str | None, algorithm: str
) -> None:
    worked = []
    fits = passwords._argon2_fits
    monkeypatch.setattr(passwords, "_argon2_fits", lambda *pair: worked.append(pair) or fits(*pair))
    assert not passwords.verify("wrong", password_hash, algorithm)
    assert len(worked) == 1


# Crypt::Bcrypt of "secret" at cost 4, the form LavinMQ keeps.
BCRYPT_OF_SECRET = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


@pytest.mark.parametrize(
    ("password_hash", "algorithm"),
    [
        (rabbit_hash("secret", MD5), MD5),
        (BCRYPT_OF_SECRET, BCRYPT),
        (BCRYPT_OF_SECRET.replace("$2b$", "$2a$"), BCRYPT),
    ],
    ids=["md5", "bcrypt", "bcrypt 2a"],
)
def test_it_verifies_every_hash_that_the_other_brokers_write(
    access: Access, password_hash: str, algorithm: str
) -> None:
    access.put_user("anna", [], password_hash, algorithm)
    assert isinstance(login(access, "wrong"), Refused)
    assert isinstance(login(access, "secret"), User)


def test_a_password_longer_than_bcrypt_reads_fits_as_on_lavinmq() -> None:
    password = "x" * 100
    password_hash = bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4)).decode()
    assert passwords.verify(password, password_hash, BCRYPT)
    assert not passwords.verify("y" + password, password_hash, BCRYPT)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ((SHA_EXAMPLE, None), (SHA_EXAMPLE, SHA256)),
        (("$5$" + SHA_EXAMPLE, "SHA256"), (SHA_EXAMPLE, SHA256)),
        ((rabbit_hash("x", MD5), None), (None, MD5)),
        ((rabbit_hash("x", SHA512), None), (None, SHA512)),
        ((BCRYPT_OF_SECRET, "Bcrypt"), (BCRYPT_OF_SECRET, BCRYPT)),
        ((BCRYPT_OF_SECRET, None), (BCRYPT_OF_SECRET, BCRYPT)),
        (("", None), ("", SHA256)),
        (("x", "scrypt"), ("x", "scrypt")),
    ],
)
def test_it_reads_the_names_and_prefixes_of_lavinmq(
    given: tuple[str, str | None], kept: tuple[str | None, str]
) -> None:
    password_hash, algorithm = passwords.imported(*given)
    assert (password_hash, algorithm) == (kept[0] if kept[0] is not None else given[0], kept[1])


def test_an_imported_hash_outlives_a_login(access: Access) -> None:
    kept = access.users["anna"].password_hash
    assert isinstance(login(access, "secret"), User)
    assert access.users["anna"].password_hash == kept
    assert access.users["anna"].hashing_algorithm == SHA256


def test_it_replaces_the_hash_at_login_where_that_is_set(access: Access, disk: MemoryDisk) -> None:
    access.rehash_at_login = True
    epoch = access.users["anna"].epoch
    assert isinstance(login(access, "secret"), User)
    assert access.users["anna"].hashing_algorithm == ARGON2ID
    assert access.users["anna"].epoch == epoch, "sessions go on"
    access._files.flush()
    assert b"$argon2id$v=19$m=19456,t=2,p=1$" in disk.files["/data/users.json"]
    access._verified.forget("anna")
    assert isinstance(login(access, "secret"), User)


def test_it_remembers_a_verified_pair_for_ten_minutes(access: Access, clock: Clock) -> None:
    assert isinstance(login(access, "secret"), User)
    assert not needs_hashing(access, "secret")
    assert needs_hashing(access, "secret2")
    clock.now += REMEMBERED_S
    assert needs_hashing(access, "secret")


def test_it_forgets_a_verified_pair_when_the_user_changes(access: Access) -> None:
    assert isinstance(login(access, "secret"), User)
    access.put_user("anna", [], rabbit_hash("secret"), SHA256)
    assert needs_hashing(access, "secret")


def test_it_refuses_a_login_when_the_user_changes_under_it(access: Access) -> None:
    job = access.begin("anna", "secret", False, peer="192.0.2.1", protocol="http")
    assert isinstance(job, Job)
    access.put_user("anna", [], rabbit_hash("other"), SHA256)
    assert isinstance(access.finish(job, Access.verify(job), protocol="http"), Refused)


def test_it_keeps_guest_on_this_machine(access: Access) -> None:
    access.put_user("guest", [], rabbit_hash("guest"), SHA256)
    assert isinstance(login(access, "guest", user="guest", peer="127.0.0.1"), User)
    refused = login(access, "guest", user="guest", peer="192.0.2.1")
    assert isinstance(refused, Refused)
    assert refused.reason == "User can only log in via localhost"


def test_it_stops_guessing_after_ten_wrong_passwords_a_minute(access: Access, clock: Clock) -> None:
    for number in range(BAD_LOGINS):
        refused = login(access, f"guess {number}")
        assert isinstance(refused, Refused)
        assert refused.status == 401
    refused = login(access, "secret")
    assert isinstance(refused, Refused)
    assert refused.status == 429
    assert isinstance(login(access, "secret", peer="192.0.2.2"), User), "from elsewhere it is fine"
    clock.now += WINDOW_S - 1
    refused = login(access, "secret")
    assert isinstance(refused, Refused), "also a remembered pair waits: it would tell a good guess"
    assert refused.reason.endswith("try again in 1 seconds")
    clock.now += 1
    assert isinstance(login(access, "secret"), User)


def test_it_lets_a_patient_guesser_try_ten_times_a_minute(access: Access, clock: Clock) -> None:
    let_through = []
    for second in range(600):
        clock.now = 1000.0 + second
        begun = access.begin("nobody", "guess", False, peer="192.0.2.1", protocol="http")
        if isinstance(begun, Job):
            access.finish(begun, False, protocol="http")
            let_through.append(second)
    assert let_through[:BAD_LOGINS] == list(range(BAD_LOGINS))
    for second in let_through:
        assert sum(second - 60 < other <= second for other in let_through) <= BAD_LOGINS
    assert len(let_through) <= 100


def test_it_shares_the_throttle_between_the_doors(access: Access) -> None:
    for number in range(BAD_LOGINS):
        login(access, f"guess {number}", protocol="amqp" if number % 2 else "http")
    for protocol in ("http", "amqp", "websocket"):
        refused = login(access, "secret", protocol=protocol)
        assert isinstance(refused, Refused)
        assert refused.status == 429


def test_it_lets_no_burst_of_guesses_through(access: Access) -> None:
    begun = [
        access.begin("anna", f"guess {number}", False, peer="192.0.2.1", protocol="http")
        for number in range(3 * BAD_LOGINS)
    ]
    assert sum(isinstance(one, Job) for one in begun) == BAD_LOGINS


def status(outcome: User | Refused) -> int:
    """200, or how the HTTP API refuses."""
    return 200 if isinstance(outcome, User) else outcome.status


def test_wrong_passwords_keep_nobody_out_where_he_was_let_in_lately(
    access: Access, clock: Clock
) -> None:
    assert status(login(access, "secret")) == 200
    assert [status(login(access, f"guess {number}")) for number in range(50)] == [401] * 50
    assert status(login(access, "secret")) == 200
    clock.now += REMEMBERED_S
    for number in range(50):
        login(access, f"guess {number}")
    assert status(login(access, "secret")) == 200, "also when it has to be hashed again"
    # Elsewhere the same user is guessed at as slowly as ever, by a right guess, too.
    for number in range(BAD_LOGINS):
        login(access, f"guess {number}", peer="192.0.2.2")
    assert status(login(access, "secret", peer="192.0.2.2")) == 429
    assert status(login(access, "secret")) == 200


def test_a_new_password_is_taken_while_old_clients_still_send_the_old_one(access: Access) -> None:
    assert status(login(access, "secret")) == 200
    access.put_user("anna", ["administrator"], rabbit_hash("new"), SHA256)
    for _ in range(5 * BAD_LOGINS):
        assert status(login(access, "secret")) == 401
    assert status(login(access, "new")) == 200


def test_trust_ends(access: Access, clock: Clock) -> None:
    assert status(login(access, "secret")) == 200
    clock.now += Limits().trusted_s
    for number in range(BAD_LOGINS):
        login(access, f"guess {number}")
    assert status(login(access, "secret")) == 429


def test_another_user_of_a_deleted_ones_name_is_trusted_nowhere(access: Access) -> None:
    assert status(login(access, "secret")) == 200
    access.delete_user("anna")
    access.put_user("anna", [], rabbit_hash("other"), SHA256)
    for number in range(BAD_LOGINS):
        login(access, f"guess {number}")
    assert status(login(access, "other")) == 429


def test_users_of_a_shared_address_are_throttled_each_alone(access: Access) -> None:
    access.put_user("bob", [], rabbit_hash("b"), SHA256)
    for number in range(5 * BAD_LOGINS):
        login(access, f"guess {number}", user="nobody")
    assert status(login(access, "b", user="bob")) == 200
    assert status(login(access, "secret")) == 200


def test_an_address_that_guesses_at_many_users_has_to_wait(access: Access, clock: Clock) -> None:
    access.put_user("bob", [], rabbit_hash("b"), SHA256)
    assert status(login(access, "secret")) == 200
    most = Limits().address_failures_max
    answers = []
    for number in range(most + 1):
        begun = access.begin(f"user {number}", "guess", False, peer="192.0.2.1", protocol="amqp")
        ended = access.finish(begun, False, protocol="amqp") if isinstance(begun, Job) else begun
        answers.append(status(ended))
    assert answers == [401] * most + [429]
    refused = login(access, "b", user="bob")
    assert isinstance(refused, Refused)
    assert refused.reason == "Too many wrong passwords from this address; try again in 60 seconds"
    assert status(login(access, "secret")) == 200, "the trusted one does not wait"
    assert status(login(access, "b", user="bob", peer="192.0.2.2")) == 200
    clock.now += WINDOW_S
    assert status(login(access, "b", user="bob")) == 200


def test_guessing_beside_a_trusted_client_stays_slow(access: Access) -> None:
    assert status(login(access, "secret")) == 200
    begun = [
        access.begin("anna", f"guess {number}", False, peer="192.0.2.1", protocol="http")
        for number in range(3 * BAD_LOGINS)
    ]
    jobs = [job for job in begun if isinstance(job, Job)]
    assert len(jobs) == BAD_LOGINS, "so many are verified at a time"
    for job in jobs:
        access.finish(job, False, protocol="http")
    for number in range(Limits().address_failures_max):
        job = access.begin("anna", f"more {number}", False, peer="192.0.2.1", protocol="http")
        assert isinstance(job, Job)
        access.finish(job, False, protocol="http")
    assert needs_hashing(access, "secret"), "beyond the rate nothing is answered from memory"
    assert status(login(access, "secret")) == 200


def test_what_could_not_be_verified_makes_nobody_trusted(access: Access) -> None:
    job = access.begin("anna", "guess", False, peer="192.0.2.1", protocol="http")
    assert isinstance(job, Job)
    access.abandon(job)
    for number in range(BAD_LOGINS):
        assert status(login(access, f"guess {number}")) == 401
    assert status(login(access, "secret")) == 429


def test_it_lets_a_ticket_in_once_within_half_a_minute(access: Access, clock: Clock) -> None:
    ticket = access.issue_ticket("anna")
    assert isinstance(login(access, ticket, protocol="websocket"), User)
    assert isinstance(login(access, ticket, protocol="websocket"), Refused)
    late = access.issue_ticket("anna")
    clock.now += TICKET_S
    assert isinstance(login(access, late, protocol="amqp"), Refused)


def test_it_takes_a_ticket_only_from_its_user_and_only_for_amqp(access: Access) -> None:
    access.put_user("bob", [], rabbit_hash("x"), SHA256)
    assert isinstance(
        login(access, access.issue_ticket("anna"), user="bob", protocol="amqp"), Refused
    )
    assert isinstance(login(access, access.issue_ticket("anna"), protocol="http"), Refused)
    ticket = access.issue_ticket("anna")
    access.put_user("anna", [], rabbit_hash("new"), SHA256)
    assert isinstance(login(access, ticket, protocol="amqp"), Refused)


def test_it_ends_sessions_and_keeps_them_ended(
    access: Access, clock: Clock, disk: MemoryDisk
) -> None:
    epoch = access.users["anna"].epoch
    assert access.session_stands("anna", epoch, "s1")
    access.end_session("s1", int(clock.now * 1000) + 5000)
    assert access.session_stands("anna", epoch, "s1") is None
    assert access.session_stands("anna", epoch, "s2")
    access._files.flush()
    again = Access(SettingsFiles("/data", disk), clock_ms=lambda: int(clock.now * 1000))
    again.load()
    assert again.session_stands("anna", epoch, "s1") is None
    clock.now += 6
    access.end_session("s3", int(clock.now * 1000) + 5000)
    assert list(access._ended.snapshot()) == ["s3"]
    access.put_user("anna", [], rabbit_hash("new"), SHA256)
    assert access.session_stands("anna", epoch, "s2") is None


def test_it_counts_logins_by_door(access: Access) -> None:
    login(access, "secret", protocol="amqp")
    login(access, "wrong", protocol="amqp")
    assert access.attempts["amqp", "anna", "192.0.2.1", True] == 1
    assert access.attempts["amqp", "anna", "192.0.2.1", False] == 1


def test_it_says_nothing_of_a_password_when_printed(access: Access) -> None:
    job = access.begin("anna", "hunter2", False, peer="192.0.2.1", protocol="http")
    assert "hunter2" not in repr(job)
    assert "hunter2" not in repr(access.begin("anna", "", False, peer="192.0.2.1", protocol="http"))


@pytest.mark.parametrize(
    ("peer", "loopback", "address"),
    [
        ("127.0.0.1", True, "127.0.0.1"),
        ("::1", True, "::/64"),
        ("::ffff:127.9.9.9", True, "127.9.9.9"),
        ("::ffff:192.0.2.1", False, "192.0.2.1"),
        ("2001:db8::5%eth0", False, "2001:db8::/64"),
        ("unix", True, "unix"),
        ("", False, ""),
        ("nonsense", False, "nonsense"),
    ],
)
def test_it_knows_its_own_machine(peer: str, loopback: bool, address: str) -> None:
    assert is_loopback(peer) is loopback
    assert address_of(peer) == address


def test_a_connection_that_was_let_in_waits_for_no_guesses_at_its_user(access: Access) -> None:
    assert status(login(access, "secret")) == 200
    for number in range(Limits().address_failures_max):
        job = access.begin("anna", f"guess {number}", False, peer="192.0.2.1", protocol="http")
        assert isinstance(job, Job)
        access.finish(job, False, protocol="http")
    assert needs_hashing(access, "secret")
    again = access.begin("anna", "secret", False, peer="192.0.2.1", protocol="http", again=True)
    assert isinstance(again, User)
    # All tries of the pair are taken: one is left for it, should its password be forgotten.
    access._verified.forget("anna")
    for number in range(BAD_LOGINS):
        access.begin("anna", f"more {number}", False, peer="192.0.2.1", protocol="http")
    assert not isinstance(
        access.begin("anna", "one more", False, peer="192.0.2.1", protocol="http"), Job
    )
    job = access.begin("anna", "secret", False, peer="192.0.2.1", protocol="http", again=True)
    assert isinstance(job, Job)
    assert status(access.finish(job, Access.verify(job), protocol="http")) == 200


def test_a_user_that_does_not_exist_costs_as_much_as_one_with_a_wrong_password() -> None:
    real = passwords.hash_password("secret")
    assert argon2.extract_parameters(passwords._no_user) == argon2.extract_parameters(real)
    with pytest.raises(VerifyMismatchError):  # compared to the end, not refused as no hash
        argon2.PasswordHasher().verify(passwords._no_user, "secret")
    assert not passwords.verify("secret", None, passwords.ARGON2ID)
