"""Headers that every answer carries."""

from django.http import HttpRequest, HttpResponseBase

from management.middleware import Middleware

CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types htmx",
    ]
)

# No Strict-Transport-Security: it would hold for every port of the host, the one without TLS too.
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class SecurityHeaders(Middleware):
    """Adds `HEADERS` to every answer, and forbids caches to keep pages and API answers."""

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = await self.get_response(request)
        for name, value in HEADERS.items():
            response.setdefault(name, value)
        response.setdefault("Cache-Control", "no-store")
        if not response.streaming:
            response.setdefault("Content-Length", str(len(response.content)))
        return response
