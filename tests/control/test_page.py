"""docs/control-socket.md says what the table of verbs says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_it_documents_the_table_as_it_is() -> None:
    command = [sys.executable, str(ROOT / "tools" / "control_socket_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
