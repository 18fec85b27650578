"""Signing in to the pages, the session's cookie, CSRF, and the end of a session."""

import re
import stat
from urllib.parse import quote

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.api.conftest import PASSWORD, VHOST, path
from tests.appliance import Appliance

COOKIE = "leveret_session"


def sign_in(client: httpx.Client, user: str, password: str, target: str = "/") -> httpx.Response:
    form = client.get("/login", params={"next": target})
    assert form.status_code == 200
    fields = {"username": user, "password": password, "next": target}
    return client.post("/login", data={**fields, "csrfmiddlewaretoken": token_in(form)})


def token_in(page: httpx.Response) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
    assert found is not None, page.text
    return found[1]


def token_for(client: httpx.Client) -> str:
    """The token a signed-in page carries for its scripts."""
    page = client.get("/queues")
    assert page.status_code == 200
    found = re.search(r'X-CSRFToken&quot;:\s*&quot;(\w+)|csrf[^>]*"(\w{64})"', page.text)
    assert found is not None, page.text[:2000]
    return found[1] or found[2]


@pytest.fixture
def signed_in(anonymous: httpx.Client, clients: dict[str, httpx.Client]) -> httpx.Client:
    assert sign_in(anonymous, "api-administrator", PASSWORD).status_code == 302
    return anonymous


def test_a_page_sends_to_the_form_and_the_form_back(
    anonymous: httpx.Client, clients: dict[str, httpx.Client]
) -> None:
    wanted = "/queues?vhost=a%2Fb&q=%25"
    sent = anonymous.get(wanted)
    assert sent.status_code == 302
    assert sent.headers["Location"] == "/login?next=" + quote(wanted, safe="")
    answer = sign_in(anonymous, "api-management", PASSWORD, wanted)
    assert (answer.status_code, answer.headers["Location"]) == (302, wanted)
    assert anonymous.get("/api/whoami").json()["name"] == "api-management"


def test_a_page_with_a_name_in_its_path_comes_back_unaltered(anonymous: httpx.Client) -> None:
    wanted = "/queues/%2F/a%2Fb%25"
    assert anonymous.get(wanted).headers["Location"] == "/login?next=" + quote(wanted, safe="")


@pytest.mark.parametrize(
    "target",
    ["https://elsewhere.example/", "//elsewhere.example", "/\\elsewhere.example", "javascript:x"],
)
def test_signing_in_leads_nowhere_else(
    anonymous: httpx.Client, clients: dict[str, httpx.Client], target: str
) -> None:
    answer = sign_in(anonymous, "api-management", PASSWORD, target)
    assert answer.headers["Location"] == "/"


def test_a_wrong_password_shows_the_form_again(
    anonymous: httpx.Client, clients: dict[str, httpx.Client]
) -> None:
    answer = sign_in(anonymous, "api-wrong", "<script>")
    assert answer.status_code == 401
    assert "api-wrong" in answer.text
    assert "<script>" not in answer.text
    assert COOKIE not in anonymous.cookies


def test_a_user_without_a_tag_may_not_sign_in(
    anonymous: httpx.Client, clients: dict[str, httpx.Client]
) -> None:
    answer = sign_in(anonymous, "api-none", PASSWORD)
    assert answer.status_code == 401
    assert "tag" in answer.text
    assert COOKIE not in anonymous.cookies


def test_the_form_needs_its_token(anonymous: httpx.Client) -> None:
    fields = {"username": "guest", "password": "guest"}
    assert anonymous.post("/login", data=fields).status_code == 403
    anonymous.get("/login")
    assert anonymous.post("/login", data=fields).status_code == 403


def test_the_cookie_is_kept_from_scripts_and_other_sites(
    anonymous: httpx.Client, clients: dict[str, httpx.Client]
) -> None:
    answer = sign_in(anonymous, "api-management", PASSWORD)
    cookie = next(
        value for value in answer.headers.get_list("set-cookie") if value.startswith(COOKIE)
    )
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Path=/" in cookie
    assert PASSWORD not in cookie


@pytest.mark.parametrize("change", [str.swapcase, lambda _: "x", lambda _: ""])
def test_an_altered_cookie_is_no_session(
    api_url: str, signed_in: httpx.Client, change: object
) -> None:
    value = change(signed_in.cookies[COOKIE])  # type: ignore[operator]
    with httpx.Client(base_url=api_url, cookies={COOKIE: value}, timeout=60) as altered:
        assert altered.get("/api/whoami").status_code == 401
        assert altered.get("/").status_code == 302


def test_the_key_that_signs_is_private(
    shared_leveret: Appliance, clients: dict[str, httpx.Client]
) -> None:
    key = shared_leveret.data_dir / "secret_key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_text().strip()) >= 50


def test_a_session_may_call_the_api_with_its_token(signed_in: httpx.Client) -> None:
    where = path("queues", VHOST, "by session")
    token = token_for(signed_in)
    assert signed_in.get("/api/queues").status_code == 200
    refused = signed_in.put(where, json={})
    assert refused.status_code == 403
    assert refused.json()["error"] == "not_authorised"
    wrong = signed_in.put(where, json={}, headers={"X-CSRFToken": "x" * 64})
    assert "X-CSRFToken" in wrong.text
    assert wrong.status_code == 403
    made = signed_in.put(where, json={}, headers={"X-CSRFToken": token})
    assert made.status_code == 201
    gone = signed_in.delete(where, headers={"X-CSRFToken": token})
    assert gone.status_code == 204


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_page_of_another_site_may_not_use_remembered_credentials(
    api: httpx.Client, method: str
) -> None:
    where = path("queues", VHOST, "foreign")
    foreign = {"Origin": "https://elsewhere.example"}
    answer = api.request(method, where, headers=foreign)
    assert answer.status_code == 403
    assert "Access-Control-Allow-Origin" not in answer.headers
    own = {"Origin": str(api.base_url).rstrip("/")}
    assert api.get("/api/whoami", headers=own).status_code == 200


def test_a_name_of_another_machine_is_misdirected(anonymous: httpx.Client) -> None:
    for where in ("/login", "/api/whoami", "/static/x"):
        answer = anonymous.get(where, headers={"Host": "attacker.example"})
        assert answer.status_code == 421


def test_htmx_is_sent_to_the_form_by_its_own_header(anonymous: httpx.Client) -> None:
    answer = anonymous.get("/queues", headers={"HX-Request": "true"})
    assert answer.status_code == 401
    assert answer.headers["HX-Redirect"] == "/login"


def test_a_script_is_not_asked_for_a_password(anonymous: httpx.Client) -> None:
    answer = anonymous.get("/api/whoami", headers={"Sec-Fetch-Dest": "empty"})
    assert answer.status_code == 401
    assert "WWW-Authenticate" not in answer.headers


def test_signing_out_ends_the_session_everywhere(api_url: str, signed_in: httpx.Client) -> None:
    stolen = httpx.Client(base_url=api_url, cookies=dict(signed_in.cookies), timeout=60)
    assert stolen.get("/api/whoami").status_code == 200
    out = signed_in.post("/logout", headers={"X-CSRFToken": token_for(signed_in)})
    assert out.status_code == 302
    assert COOKIE not in signed_in.cookies
    assert stolen.get("/api/whoami").status_code == 401
    stolen.close()


def test_signing_out_needs_the_token(signed_in: httpx.Client) -> None:
    assert signed_in.get("/logout").status_code == 405
    assert signed_in.post("/logout").status_code == 403
    assert signed_in.get("/api/whoami").status_code == 200


def test_a_new_password_ends_the_sessions_of_the_old_one(
    api_url: str, api: httpx.Client, anonymous: httpx.Client
) -> None:
    where = path("users", "api-changing")
    assert api.put(where, json={"password": "one", "tags": "management"}).is_success
    assert sign_in(anonymous, "api-changing", "one").status_code == 302
    assert anonymous.get("/api/whoami").status_code == 200
    assert api.put(where, json={"password": "two", "tags": "management"}).is_success
    assert anonymous.get("/api/whoami").status_code == 401
    assert (
        httpx.get(api_url + "/api/whoami", auth=("api-changing", "one"), timeout=60).status_code
        == 401
    )


def test_a_deleted_users_session_is_over(api: httpx.Client, anonymous: httpx.Client) -> None:
    where = path("users", "api-leaving")
    assert api.put(where, json={"password": "one", "tags": "management"}).is_success
    assert sign_in(anonymous, "api-leaving", "one").status_code == 302
    assert api.delete(where).is_success
    assert anonymous.get("/api/whoami").status_code == 401


def test_a_lost_tag_counts_at_once(api: httpx.Client, anonymous: httpx.Client) -> None:
    where = path("users", "api-losing")
    assert api.put(where, json={"password": "one", "tags": "administrator"}).is_success
    assert sign_in(anonymous, "api-losing", "one").status_code == 302
    assert anonymous.get("/api/users").status_code == 200
    assert api.put(where, json={"password": "one", "tags": "management"}).is_success
    assert anonymous.get("/api/users").status_code == 401


def test_every_answer_carries_the_security_headers(
    anonymous: httpx.Client, signed_in: httpx.Client
) -> None:
    build = re.search(r"/static/(\w+)/", signed_in.get("/login").text or "") or re.search(
        r"/static/(\w+)/", signed_in.get("/queues").text
    )
    assert build is not None
    script = f"/static/{build[1]}/vendor/htmx.min.js"
    for where in ("/login", "/queues", "/nothing-here", "/api/whoami", "/health", script):
        headers = signed_in.get(where).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "same-origin"
        assert "Server" not in headers
        assert "Access-Control-Allow-Origin" not in headers
    assert signed_in.get("/queues").headers["Cache-Control"] == "no-store"
    kept = signed_in.get(script).headers
    assert "immutable" in kept["Cache-Control"]
    assert kept["Content-Type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "where", ["/static/../manage.py", "/static/%2e%2e/manage.py", "/static/x/../../settings.py"]
)
def test_static_files_are_only_the_static_files(anonymous: httpx.Client, where: str) -> None:
    request = anonymous.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=where.encode())
    assert anonymous.send(request).status_code in (302, 404)


def test_health_needs_no_credentials(anonymous: httpx.Client) -> None:
    answer = anonymous.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def live(signed_in: httpx.Client, **headers: str) -> ClientConnection:
    url = str(signed_in.base_url).replace("http", "ws").rstrip("/") + "/live/"
    cookies = "; ".join(f"{name}={value}" for name, value in signed_in.cookies.items())
    return connect(
        url,
        origin=Origin(str(signed_in.base_url).rstrip("/")),
        additional_headers={"Cookie": cookies, **headers},
        open_timeout=60,
    )


def close_code(socket: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            socket.recv(10)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


def test_live_updates_need_a_session(anonymous: httpx.Client) -> None:
    with live(anonymous) as socket:
        assert close_code(socket) == 4401


def test_live_updates_come_to_who_is_signed_in(signed_in: httpx.Client) -> None:
    with live(signed_in) as socket:
        socket.send('{"type": "subscribe", "id": 1, "topic": "overview"}')
        assert '"start"' in str(socket.recv(10))


def test_signing_out_drops_the_live_sockets(signed_in: httpx.Client) -> None:
    with live(signed_in) as socket:
        socket.send('{"type": "subscribe", "id": 1, "topic": "overview"}')
        socket.recv(10)
        signed_in.post("/logout", headers={"X-CSRFToken": token_for(signed_in)})
        assert close_code(socket) == 4401


def test_a_new_password_drops_the_live_sockets(api: httpx.Client, anonymous: httpx.Client) -> None:
    where = path("users", "api-live")
    assert api.put(where, json={"password": "one", "tags": "management"}).is_success
    assert sign_in(anonymous, "api-live", "one").status_code == 302
    with live(anonymous) as socket:
        socket.send('{"type": "subscribe", "id": 1, "topic": "overview"}')
        socket.recv(10)
        assert api.put(where, json={"password": "two", "tags": "management"}).is_success
        assert close_code(socket) == 4401
