"""Django's settings. Nothing here depends on a running broker or on a data directory.

There is no database: the broker owns every fact, and this process asks it over the control
socket. What only a running appliance knows is set by `management.web` before the first request:
`SECRET_KEY`, `APPLIANCE` (the `broker.settings.config.Config` in force), `STATIC_ROOT` (what
`management.static_build` made of `STATIC_SOURCES`) and the cookies' Secure flag.
"""

from pathlib import Path
from typing import Any

from management.static_build import build_name

ROOT = Path(__file__).resolve().parent.parent

DEBUG = False
SECRET_KEY = ""
APPLIANCE: Any = None

INSTALLED_APPS = ["channels", "management", "api", "frontend"]
DATABASES: dict[str, Any] = {}
ROOT_URLCONF = "management.urls"
ASGI_APPLICATION = "management.asgi.application"

MIDDLEWARE = [
    "management.cookies.Cookies",
    "management.compression.Compression",
    "management.security.SecurityHeaders",
    "api.middleware.ApiMiddleware",
    "management.sessions.SessionMiddleware",
    "management.bodies.BodyMiddleware",
    "management.csrf.CsrfMiddleware",
    "management.refusals.RefusalMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "frontend" / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "builtins": ["django.templatetags.static", "management.link_tag"],
            "context_processors": ["management.context.page"],
        },
    }
]

CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

STATIC_SOURCES = ROOT / "frontend" / "static"
STATIC_BUILD = build_name(STATIC_SOURCES)
STATIC_ROOT = STATIC_SOURCES
STATIC_URL = f"/static/{STATIC_BUILD}/"

# Any name may lead here; `management.hosts` refuses those that only a rebinding attack uses.
ALLOWED_HOSTS = ["*"]
USE_X_FORWARDED_HOST = False
APPEND_SLASH = False
DATA_UPLOAD_MAX_MEMORY_SIZE = 10 * 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1000

SESSION_COOKIE_NAME = "leveret_session"
SESSION_COOKIE_AGE = 12 * 60 * 60
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = False
CSRF_COOKIE_NAME = "leveret_csrf"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = False
CSRF_FAILURE_VIEW = "management.login.csrf_failure"

LOGIN_URL = "/login"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_CHARSET = "utf-8"
LOGGING_CONFIG = None
