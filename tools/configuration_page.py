"""Write docs/configuration.md from the settings table in `broker.settings.config`.

.venv/bin/python tools/configuration_page.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from written_page import written  # noqa: E402

from broker.settings import config  # noqa: E402
from broker.settings.bounds import FIXED  # noqa: E402

PAGE = ROOT / "docs" / "configuration.md"
HEAD = """\
# Configuration

<!-- Written by tools/configuration_page.py from broker/settings/config.py. Do not edit. -->

Every setting has one name. It is a key of the INI file, an option of `manage.py serve`, `broker`,
`web` and `reports`, and an environment variable: `amqp_port`, `--amqp-port`, `LEVERET_AMQP_PORT`.
The option wins over the variable, the variable over the file, the file over the default.

The file is named by `--config FILE` or `LEVERET_CONFIG`; without either it is
`{default_file}`, if that exists. An unknown key or variable is a warning. An unknown section, an
unknown option or a value that cannot be read ends the program with one line and status
{exit_config}.

SIGHUP to `manage.py serve` reads them all again and puts into force those that have `yes` in the
column SIGHUP, for what is asked anew: new connections, new channels, the next look at a limit. What
changed is a line in the log each; a change to any other setting waits for the next start, and the
log says so. A file that cannot be used changes nothing. The node's page in the web app shows the
values in force.

Sizes take units: `65536`, `64 KiB`, `8 MiB`, `1 GiB`; `kB`, `MB` and `GB` are powers of 1000. So do
times: `200 ms`, `10 s`, `5 min`, `8 h`, `30 d`; a bare number is seconds. Lists are words between
commas. Relative paths in the file are taken from the file's directory.

```ini
[amqp]
amqp_port = 5672
max_message_size = 128 MiB

[login]
default_user = ada
default_password_file = /run/secrets/leveret
```
"""


def page() -> str:
    lines = [HEAD.format(default_file=config.DEFAULT_FILE, exit_config=config.EXIT_CONFIG)]
    for section, title in config.SECTIONS.items():
        lines += [
            f"## [{section}] {title}",
            "",
            "| Name | Default | Kind | SIGHUP | What it does |",
        ]
        lines += ["| --- | --- | --- | --- | --- |"]
        for item in config.settings():
            if item.section == section:
                default = f"`{item.shown_default()}`" if item.shown_default() else "none"
                when = "yes" if item.reload else ""
                text = item.text[0].upper() + item.text[1:]
                lines.append(f"| `{item.name}` | {default} | {item.kind} | {when} | {text} |")
        lines.append("")
    lines += ["## Limits that cannot be set", "", "| At most | Of | Why it is fixed |"]
    lines += ["| --- | --- | --- |"]
    lines += [f"| {row.value:,} | {row.what} | {row.why} |" for row in FIXED]
    lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(written(PAGE, page()))
