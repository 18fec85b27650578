"""Every path of the web process. Static files and WebSockets are answered before (see asgi)."""

from django.urls import include, path

import management.paths  # noqa: F401  (registers the `seg` converter)
from api import metrics
from management import health, login

urlpatterns = [
    path("login", login.login, name="login"),
    path("logout", login.logout, name="logout"),
    path("metrics", metrics.metrics, name="metrics"),
    path("metrics/<seg:page>", metrics.metrics, name="metrics-page"),
    path("health", health.health, name="health"),
    path("api/", include("api.urls")),
    path("", include("frontend.urls")),
]
