"""Users, permissions and limits as `Access` keeps them."""

from __future__ import annotations

import re

import pytest

from broker.access import Access, BadSetting, User
from broker.access.passwords import ARGON2ID, BCRYPT, MD5, SHA256, rabbit_hash
from broker.access.patterns import BadPattern, Pattern
from broker.schema.errors import AccessRefused
from broker.settings.files import SettingsError, SettingsFiles
from tests.control.disks import MemoryDisk

HASH = rabbit_hash("secret")


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def access(disk: MemoryDisk) -> Access:
    return new_access(disk)


def new_access(disk: MemoryDisk) -> Access:
    access = Access(SettingsFiles("/data", disk))
    access.load()
    return access


def saved(access: Access, disk: MemoryDisk) -> Access:
    access._files.flush()
    return new_access(disk)


def add(access: Access, name: str, *tags: str) -> User:
    return access.put_user(name, list(tags), HASH, SHA256)


def test_it_knows_nobody_on_the_first_boot(disk: MemoryDisk) -> None:
    access = Access(SettingsFiles("/data", disk))
    assert access.load() is False
    access.create_first_user("guest", "guest")
    again = saved(access, disk)
    assert again.users["guest"].loopback_only
    assert again.users["guest"].tags == ["administrator"]
    assert again.users["guest"].hashing_algorithm == ARGON2ID
    again.check("guest", "/", "configure", "queue", "anything")


def test_it_creates_the_named_administrator_instead_of_guest(access: Access) -> None:
    access.create_first_user("anna", "long enough")
    assert list(access.users) == ["anna"]
    assert not access.users["anna"].loopback_only


@pytest.mark.parametrize(("name", "password"), [("anna", "guest"), ("anna", ""), ("guest", "")])
def test_it_refuses_a_first_user_whom_everybody_or_nobody_could_be(
    access: Access, name: str, password: str
) -> None:
    with pytest.raises(SettingsError, match="default_password"):
        access.create_first_user(name, password)


def test_it_keeps_a_later_guest_on_this_machine(access: Access) -> None:
    assert add(access, "guest").loopback_only
    assert not add(access, "ghost").loopback_only


def test_it_refuses_with_the_words_of_rabbitmq(access: Access) -> None:
    add(access, "bob")
    access.put_permission("bob", "shop", "^mine-", "", "^mine-|^amq.default$")
    access.check("bob", "shop", "configure", "queue", "mine-1")
    with pytest.raises(AccessRefused) as caught:
        access.check("bob", "shop", "configure", "queue", "yours")
    assert caught.value.text == (
        "configure access to queue 'yours' in vhost 'shop' refused for user 'bob'"
    )
    with pytest.raises(AccessRefused) as caught:
        access.check("bob", "shop", "write", "exchange", "")
    assert caught.value.text == (
        "write access to exchange 'amq.default' in vhost 'shop' refused for user 'bob'"
    )
    access.check("bob", "shop", "read", "exchange", "")


def test_it_allows_nothing_without_a_permission_row(access: Access) -> None:
    add(access, "bob", "administrator")
    assert not access.vhost_access("bob", "/")
    with pytest.raises(AccessRefused):
        access.check("bob", "/", "read", "queue", "q")


def test_it_finds_patterns_anywhere_in_a_name(access: Access) -> None:
    access.put_permission("bob", "/", "b", "", "^$")
    assert access.allowed("bob", "/", "configure", "abc")
    assert not access.allowed("bob", "/", "configure", "ac")
    assert not access.allowed("bob", "/", "write", "b")
    assert not access.allowed("bob", "/", "read", "b")


def test_it_asks_the_new_pattern_after_a_change(access: Access) -> None:
    access.put_permission("bob", "/", ".*", ".*", ".*")
    before = access.version
    assert access.allowed("bob", "/", "read", "q")
    access.put_permission("bob", "/", ".*", ".*", "")
    assert not access.allowed("bob", "/", "read", "q")
    access.delete_permission("bob", "/")
    assert not access.allowed("bob", "/", "configure", "q")
    assert access.version >= before + 2


@pytest.mark.parametrize("pattern", ["(", "[z-a]", r"(?=x)", "a{1000}{1000}{1000}"])
def test_it_names_a_pattern_that_is_none(access: Access, pattern: str) -> None:
    with pytest.raises(BadSetting, match="invalid regular expression"):
        access.put_permission("bob", "/", pattern, "", "")
    assert not access.permissions


def test_it_answers_a_pattern_made_to_backtrack_at_once(access: Access) -> None:
    access.put_permission("bob", "/", "^(a+)+$", "", "")
    assert not access.allowed("bob", "/", "configure", "a" * 250 + "b")


@pytest.mark.parametrize("name", ["ö🐇\n", "\udcff", "", "\x00", "a" * 255])
def test_it_matches_any_name_at_all(access: Access, name: str) -> None:
    access.put_permission("bob", "/", "(?s).*", "", "")
    access.check("bob", "/", "configure", "queue", name)
    with pytest.raises(AccessRefused):
        access.check("bob", "/", "write", "queue", name + "x")


def test_it_checks_routing_keys_only_where_there_is_a_row(access: Access) -> None:
    access.check_topic("bob.x", "/", "write", "amq.topic", "any")
    access.put_topic_permission("bob.x", "/", "amq.topic", r"^{username}\.", "")
    access.check_topic("bob.x", "/", "write", "amq.topic", "bob.x.1")
    access.check_topic("bob.x", "/", "write", "other", "any")
    with pytest.raises(AccessRefused) as caught:
        access.check_topic("bob.x", "/", "write", "amq.topic", "bobyx.1")
    assert caught.value.text == (
        "write access to topic 'bobyx.1' in exchange 'amq.topic' in vhost '/' "
        "refused for user 'bob.x'"
    )
    with pytest.raises(AccessRefused):
        access.check_topic("bob.x", "/", "read", "amq.topic", "bob.x.1")


def test_it_forgets_everything_about_a_deleted_user(access: Access, disk: MemoryDisk) -> None:
    epoch = add(access, "bob").epoch
    access.put_permission("bob", "/", ".*", ".*", ".*")
    access.put_topic_permission("bob", "/", "x", ".*", ".*")
    access.delete_user("bob")
    assert not access.permissions
    assert not access.topic_permissions
    access = saved(access, disk)
    assert add(access, "bob").epoch > epoch, "an epoch never comes again"


def test_it_forgets_the_rows_of_a_deleted_vhost(access: Access) -> None:
    access.put_permission("bob", "shop", ".*", ".*", ".*")
    access.put_permission("bob", "/", ".*", ".*", ".*")
    access.parameters.put_vhost_limit("shop", "max-queues", 3)
    access.forget_vhost("shop")
    assert list(access.permissions) == [("bob", "/")]
    assert access.vhost_limit("shop", "max-queues") is None


def test_it_keeps_limits_across_a_restart(access: Access, disk: MemoryDisk) -> None:
    add(access, "bob")
    access.put_user_limit("bob", "max-channels", 7)
    access.parameters.put_vhost_limit("/", "max-queues", 0)
    access.parameters.put_global("cluster_name", "here")
    access = saved(access, disk)
    assert access.user_limit("bob", "max-channels") == 7
    assert access.user_limit("bob", "max-connections") is None
    assert access.vhost_limit("/", "max-queues") == 0
    assert access.global_parameters == {"cluster_name": "here"}
    access.parameters.put_vhost_limit("/", "max-queues", -1)
    assert saved(access, disk).vhost_limit("/", "max-queues") is None
    with pytest.raises(BadSetting, match="max-fun"):
        access.put_user_limit("bob", "max-fun", 1)


def test_it_gives_a_new_epoch_only_when_password_or_tags_change(access: Access) -> None:
    first = add(access, "bob", "management").epoch
    assert add(access, "bob", "management").epoch == first
    second = add(access, "bob", "monitoring").epoch
    assert second > first
    assert access.put_user("bob", ["monitoring"], rabbit_hash("other"), SHA256).epoch > second


def test_it_refuses_broken_hashes_and_unknown_algorithms(access: Access) -> None:
    with pytest.raises(BadSetting, match="wrong length for rabbit_password_hashing_md5"):
        access.put_user("bob", [], HASH, MD5)
    with pytest.raises(BadSetting, match="'my_hashing' is not supported"):
        access.put_user("bob", [], HASH, "my_hashing")
    with pytest.raises(BadSetting, match="not a bcrypt hash"):
        access.put_user("bob", [], HASH, BCRYPT)
    with pytest.raises(BadSetting, match="bcrypt cost 31"):
        access.put_user("bob", [], "$2b$31$" + "." * 53, BCRYPT)
    with pytest.raises(BadSetting, match="base64"):
        access.put_user("bob", [], "not base64!", SHA256)
    with pytest.raises(BadSetting, match="length"):
        access.put_user("bob", [], "AAAA", SHA256)
    with pytest.raises(BadSetting, match="argon2"):
        access.put_user("bob", [], "x", ARGON2ID)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"users": [{"name": "a"}]}', "password_hash"),
        (b'{"users": [], "permissions": [{"user": "a", "vhost": "/", "configure": "(", '
         b'"write": "", "read": ""}]}', "invalid regular expression"),
        (b'{"users": [{"name": "a", "password_hash": ""}, {"name": "a", "password_hash": ""}]}',
         "'a' is there twice"),
        (b'{"users": [{"name": "a", "password_hash": "x"}]}', "'a': password_hash"),
    ],
)  # fmt: skip
def test_it_starts_with_no_users_file_that_is_wrong(
    disk: MemoryDisk, content: bytes, problem: str
) -> None:
    disk.files["/data/users.json"] = content
    with pytest.raises(SettingsError, match=problem) as caught:
        new_access(disk)
    assert str(caught.value).startswith("/data/users.json: ")


def test_it_reads_users_that_a_person_pasted_from_rabbitmq(disk: MemoryDisk) -> None:
    text = f'{{"users": [{{"name": "a", "password_hash": "{HASH}", "hashing_algorithm": "{SHA256}"'
    disk.files["/data/users.json"] = (text + ', "tags": ["monitoring"], "limits": {}}]}').encode()
    assert new_access(disk).users["a"].epoch > 0


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(?!amq\.).*",
        r"^(?!amq\.)",
        r"^(?!a|b)c?",
        r"^(?!(a|b)(c))[a-z)(]+$",
        r"^(?![)]x\))(a|\)|x)+",
        r"^(?!)a",
        r"^(?!amq)(?:x|y)$",
    ],
)
def test_it_leaves_out_what_a_pattern_says_at_its_start(pattern: str) -> None:
    names = ["", "amq.x", "amqp", "a", "ac", "b", "c", "x", "y", ")x)", ")", "xamq.", "bc"]
    found = [name for name in names if Pattern(pattern).matches(name)]
    assert found == [name for name in names if re.search(pattern, name)]


@pytest.mark.parametrize(
    "pattern",
    [r"^(?!a)b|c", r"^(?!a", r"^(?!a)b)", r"^(?!a)b)(c", r"(?!a)b", r"^(?!a)(?!b)", r"^(?!\Q)\E)x",
     r"^(?![]a])b"],
)  # fmt: skip
def test_it_takes_no_other_lookaround(pattern: str) -> None:
    with pytest.raises(BadPattern, match="invalid regular expression"):
        Pattern(pattern)
