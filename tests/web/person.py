"""A signed-in person without a browser: gets pages and sends their forms."""

import re
from html import escape, unescape
from typing import Any

import httpx

TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="(\w+)"')


class Person:
    """`guest` by default. Redirects are not followed: a form that was accepted answers 302."""

    def __init__(self, http_url: str, user: str = "guest", password: str = "guest") -> None:
        self.client = httpx.Client(base_url=http_url, timeout=60)
        fields = {"username": user, "password": password}
        assert self.post("/login", fields, at="/login").status_code == 302

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path)

    def page(self, path: str) -> "Form":
        answer = self.get(path)
        assert answer.status_code == 200, (answer.status_code, answer.text[-2000:])
        return Form(answer.text)

    def post(
        self,
        path: str,
        fields: dict[str, Any],
        *,
        at: str = "/connect",
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """Sends a form with the token of the page `at`, or of any other."""
        page = self.client.get(at)
        found = TOKEN.search(page.text)
        assert found is not None, page.text
        data = {**fields, "csrfmiddlewaretoken": found[1]}
        return self.client.post(path, data=data, headers=headers)

    def refused(self, path: str, fields: dict[str, Any]) -> "Form":
        """What the page shows after a form was refused with 400."""
        answer = self.post(path, fields)
        assert answer.status_code == 400, (answer.status_code, answer.text[-2000:])
        return Form(answer.text)


class Form:
    """The fields of a page as their elements say."""

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def alert(self) -> str:
        found = re.search(r'<p[^>]*role="alert".*?</p>', self.text, re.DOTALL)
        assert found is not None, self.text
        return unescape(re.sub(r"<[^>]+>", " ", found[0]))

    def value(self, id: str) -> str:
        """What stands in an input or a text area, or is chosen in a select."""
        if area := re.search(rf'<textarea[^>]* id="{id}"[^>]*>(.*?)</textarea>', self.text, re.S):
            return unescape(area[1])
        if select := re.search(rf'<select[^>]* id="{id}"[^>]*>(.*?)</select>', self.text, re.S):
            options = re.findall(r'<option value="([^"]*)"([^>]*)>', select[1])
            chosen = [value for value, rest in options if " selected" in rest]
            return unescape((chosen or [options[0][0]])[0])
        found = re.search(rf'<input[^>]* id="{id}"[^>]*>', self.text)
        assert found is not None, f"no field {id}"
        value = re.search(r' value="([^"]*)"', found[0])
        return unescape(value[1]) if value else ""

    def named(self, name: str, value: str) -> bool:
        """Whether an input of this name holds the value."""
        inputs = re.findall(rf'<input[^>]* name="{name}"[^>]*>', self.text)
        return any(f' value="{escape(value)}"' in each for each in inputs)

    def _boxes(self, name: str) -> list[tuple[str, bool]]:
        found = re.findall(rf'<input[^>]*type="checkbox" name="{name}"([^>]*)>', self.text)
        values = [re.search(r' value="([^"]*)"', rest) for rest in found]
        return [
            (unescape(value[1]) if value else "", " checked" in rest)
            for value, rest in zip(values, found, strict=True)
        ]

    def boxes(self, name: str) -> list[str]:
        """The values of the checkboxes of a name."""
        return [value for value, _ in self._boxes(name)]

    def checked(self, name: str) -> list[str]:
        """Those of them that are on."""
        return [value for value, is_on in self._boxes(name) if is_on]

    def is_checked(self, name: str) -> bool:
        """Whether the only checkbox of this name is on."""
        ((_, is_on),) = self._boxes(name)
        return is_on
