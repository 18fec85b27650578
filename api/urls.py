"""The API's paths, below `/api/`."""

from typing import Any

urlpatterns: list[Any] = []
