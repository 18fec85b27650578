"""Tells of a run that is over: a webhook gets a JSON object, mail the first rows as a CSV file.

Called in a thread. A delivery that fails is tried ATTEMPTS times; it never fails the run, whose
record says how it went.
"""

from __future__ import annotations

import http.client
import smtplib
import ssl
import time
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from urllib.parse import unquote, urlsplit

import msgspec

from .plans import Plan
from .runs import Delivery, Run

ATTEMPTS = 3
WAIT_SECONDS = (1.0, 5.0)
TIMEOUT = 15.0
# A file with more bytes is not attached; the mail says so.
ATTACHMENT_MAX = 5_000_000
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def deliver(
    plan: Plan, run: Run, csv: Callable[[int], bytes | None], smtp_url: str, smtp_from: str
) -> list[Delivery]:
    """Tell all that the plan names. `csv` gives the result as CSV, or None if it has more bytes
    than asked for.
    """
    done = []
    if plan.webhook:
        done.append(_try("webhook", lambda: _post(plan, run)))
    if plan.mail:
        done.append(_try("mail", lambda: _mail(plan, run, csv, smtp_url, smtp_from)))
    return done


def _try(kind: str, action: Callable[[], None]) -> Delivery:
    error = ""
    for attempt in range(ATTEMPTS):
        try:
            action()
            return Delivery(kind=kind, at=time.time_ns() // 1_000_000, attempts=attempt + 1)
        except (OSError, ValueError, http.client.HTTPException, smtplib.SMTPException) as problem:
            # Never the address: it may hold a secret.
            error = f"{type(problem).__name__}: {problem}"[:300]
        if attempt < len(WAIT_SECONDS):
            time.sleep(WAIT_SECONDS[attempt])
    return Delivery(kind=kind, at=time.time_ns() // 1_000_000, attempts=ATTEMPTS, error=error)


def _post(plan: Plan, run: Run) -> None:
    """POST the run as JSON. Redirects are not followed. Raises OSError, HTTPException."""
    parts = urlsplit(plan.webhook)
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=TIMEOUT, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "application/json", "User-Agent": "leveret-reports"}
    try:
        connection.request("POST", path, msgspec.json.encode(told(plan, run)), headers)
        status = connection.getresponse().status
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise OSError(f"the webhook answered {status}")


def told(plan: Plan, run: Run) -> dict[str, object]:
    """What a webhook gets."""
    return {
        "plan": plan.name,
        "report": run.report,
        "run_id": run.run_id,
        "state": run.state,
        "parameters": run.parameters,
        "ended_at": run.ended_at,
        "rows": run.rows_written,
        "gaps": msgspec.to_builtins(run.gaps),
        "error": run.error,
        "result": f"/api/reports/{run.report}/runs/{run.run_id}.json",
    }


def _mail(
    plan: Plan, run: Run, csv: Callable[[int], bytes | None], smtp_url: str, smtp_from: str
) -> None:
    """Raises OSError, SMTPException, and ValueError without a server."""
    if not smtp_url:
        raise ValueError("no mail server is set: the setting is smtp_url")
    message = _message(plan, run, csv(ATTACHMENT_MAX) if run.state == "done" else None)
    message["From"], message["To"] = smtp_from, ", ".join(plan.mail)
    parts = urlsplit(smtp_url)
    host = parts.hostname or ""
    context = ssl.create_default_context()
    if parts.scheme == "smtps":
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            host, parts.port or 465, timeout=TIMEOUT, context=context
        )
    else:
        server = smtplib.SMTP(host, parts.port or 587, timeout=TIMEOUT)
    with server:
        if parts.scheme == "smtp" and host not in LOOPBACK:
            server.starttls(context=context)
        if parts.username:
            server.login(unquote(parts.username), unquote(parts.password or ""))
        server.send_message(message)


def _message(plan: Plan, run: Run, csv: bytes | None) -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = f"Leveret report {run.report}: {run.state} ({plan.name})"
    message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain="leveret.invalid")
    chosen = (
        ", ".join(f"{name} {value}" for name, value in run.parameters.items()) or "its defaults"
    )
    lines = [f"The report {run.report} with {chosen} is {run.state}."]
    if run.error:
        lines.append(run.error)
    if run.state == "done":
        lines.append(f"It has {run.rows_written} rows.")
        lines += [f"Counts are missing in {len(run.gaps)} intervals."] if run.gaps else []
        if csv is None:
            size = ATTACHMENT_MAX // 1_000_000
            lines.append(f"The file is longer than {size} MB and not attached: see the page.")
    lines.append(f"Page: /reports/{run.report}")
    message.set_content("\n\n".join(lines))
    if csv is not None:
        name = f"{run.report}-{run.run_id}.csv"
        message.add_attachment(csv, maintype="text", subtype="csv", filename=name)
    return message
