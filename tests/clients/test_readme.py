"""The README's example."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.appliance import ROOT, Appliance


def test_the_client_of_the_readme_publishes_and_consumes(shared_broker: Appliance) -> None:
    text = (ROOT / "README.md").read_text()
    lines = text[text.index("    import pika\n") :].split("\n\nLeveret is", 1)[0]
    code = textwrap.dedent(lines).replace("127.0.0.1:5672", f"127.0.0.1:{shared_broker.amqp_port}")
    assert str(shared_broker.amqp_port) in code
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "one hare\n"), ran.stderr
