"""What tests of TLS share here."""

from __future__ import annotations

import pytest

from tests.listeners.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority with a certificate for the server."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    authority.issue("server", san="DNS:localhost,IP:127.0.0.1")
    return authority
