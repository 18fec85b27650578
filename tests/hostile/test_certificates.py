"""Client certificates that should let nobody in, or somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.serving.certificates import login_name
from tests.amqp.test_permissions import ask
from tests.appliance import Appliance
from tests.conftest import _maker
from tests.listeners.certificates import Authority
from tests.listeners.test_client_certificates import connect, is_shut_out, make_user, refuse


@pytest.fixture(scope="module")
def asking(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """A broker that demands certificates and takes the user from the whole subject."""
    for make in _maker("broker", tmp_path_factory.mktemp("asking")):
        yield make(
            tls_cert_file=authority.directory / "server.pem",
            tls_ca_file=authority.file,
            tls_verify="required",
            amqps_port=0,
        )


def test_no_certificate_is_shut_out(asking: Appliance, authority: Authority) -> None:
    is_shut_out(asking, authority, None)


def test_one_of_an_authority_with_the_same_name_is_shut_out(
    asking: Appliance, authority: Authority, tmp_path: Path
) -> None:
    make_user(asking, "CN=same")
    is_shut_out(asking, authority, Authority(tmp_path / "false").issue("same"))


def test_an_expired_one_is_shut_out(asking: Appliance, authority: Authority) -> None:
    make_user(asking, "CN=expired")
    is_shut_out(asking, authority, authority.issue("expired", days=-1))


def test_one_that_signed_itself_with_a_believed_one_s_name_is_shut_out(
    asking: Appliance, authority: Authority, tmp_path: Path
) -> None:
    """A user's certificate is no authority."""
    make_user(asking, "CN=root")
    middle = authority.issue("middle")
    false = Authority(tmp_path / "false")
    false.file, false.key = middle, middle
    chained = false.issue("root")
    chained.write_bytes(chained.read_bytes() + middle.read_bytes())
    is_shut_out(asking, authority, chained)


@pytest.mark.parametrize(
    ("subject", "is_user", "others"),
    [
        ("/O=Shop/CN=till", "CN=till,O=Shop", ["till", "Shop"]),
        ("/CN=till,O=Shop", "CN=till\\,O\\=Shop", ["CN=till,O=Shop"]),
        ("/CN=a+CN=b", None, ["CN=a"]),
        ("/CN= till ", "CN=\\ till\\ ", ["CN=till"]),
        ("/CN=#till", "CN=\\#till", ["CN=till"]),
        ("/CN=<script>alert(1)<\\/script>", "CN=\\<script\\>alert(1)\\</script\\>", []),
        ("/CN=TILL", "CN=TILL", ["CN=till"]),
        ("/CN=t\xefll", None, ["CN=till", "CN=t?ll"]),
        ("/CN=till\r\nadmin", "CN=till\r\nadmin", ["CN=till"]),
    ],
)
def test_a_name_is_its_user_s_and_nobody_else_s(
    asking: Appliance, authority: Authority, subject: str, is_user: str | None, others: list[str]
) -> None:
    certificate = authority.issue("odd", subject=subject, san="DNS:odd")
    for name in others:
        make_user(asking, name)
    lines = len(asking.log().splitlines())
    with connect(asking, authority, certificate) as client:
        refuse(client)
    for line in asking.log().splitlines()[lines:]:
        assert line[:4].isdigit(), f"a line that no log wrote: {line!r}"
    if is_user is not None and "\n" not in is_user:
        make_user(asking, is_user)
        with connect(asking, authority, certificate) as client:
            client.use(mechanism="EXTERNAL", response=b"")
            (row,) = ask(asking, "list", noun="connections")["items"]
            assert row["user"] == is_user
        ask(asking, "user.delete", name=is_user)


def test_a_name_with_a_zero_inside_is_not_cut_there() -> None:
    """CVE-2009-2408: `admin\\0.evil.example` was `admin` to those who read C strings."""
    certificate = {"subject": ((("commonName", "admin\0x"),),)}
    assert login_name(certificate, "common_name", "dns") == "admin\0x"
    assert login_name(certificate, "distinguished_name", "dns") == "CN=admin\\00x"


def test_guest_s_name_in_a_certificate_needs_this_machine_like_guest(
    asking: Appliance, authority: Authority
) -> None:
    """A certificate gives a name, not more rights than its user has."""
    certificate = authority.issue("nobody", subject="/CN=guest")
    with connect(asking, authority, certificate) as client:
        refuse(client)  # the user is `CN=guest`, not guest
