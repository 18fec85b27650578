"""What every template knows besides its page's own facts."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from management.request_user import ANONYMOUS


def page(request: HttpRequest) -> dict[str, Any]:
    """`user`: who is signed in. `build`: the name of this build of the static files."""
    return {"user": getattr(request, "user", ANONYMOUS), "build": settings.STATIC_BUILD}
