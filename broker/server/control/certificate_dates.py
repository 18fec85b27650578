"""What certificates say, above all until when they are valid. The parser is imported when it is
first needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

UNITS = {
    "days": timedelta(days=1),
    "weeks": timedelta(days=7),
    "months": timedelta(days=365 / 12),
    "years": timedelta(days=365),
}
"""The units of RabbitMQ's health check, and how long they are there."""


def expiring(pem: bytes, within: timedelta) -> list[str]:
    """Ends of those certificates of a PEM file that are not valid now or not for so long, each
    as `YYYY-MM-DD H:MM:SS` in UTC. Certificates that cannot be read are in it as a sentence."""
    from cryptography import x509

    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        return [f"cannot be read: {error}"]
    now = datetime.now(UTC)
    found = []
    for certificate in certificates:
        if certificate.not_valid_before_utc > now:
            found.append("Certificate is not yet valid")
        elif certificate.not_valid_after_utc - now < within:
            end = certificate.not_valid_after_utc
            found.append(f"{end:%Y-%m-%d} {end.hour}:{end:%M:%S}")
    return found


def described(pem: bytes) -> list[dict[str, Any]]:
    """The certificates of a PEM file, as a person reads them. One that cannot be read is a sentence
    in place of its subject."""
    from cryptography import x509

    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        return [{"subject": f"cannot be read: {error}"}]
    found = []
    for certificate in certificates:
        try:
            extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            names = [str(one.value) for one in extension.value]
        except (x509.ExtensionNotFound, ValueError):
            names = []
        found.append(
            {
                "subject": certificate.subject.rfc4514_string(),
                "issuer": certificate.issuer.rfc4514_string(),
                "names": names,
                "not_before": certificate.not_valid_before_utc.isoformat(),
                "not_after": certificate.not_valid_after_utc.isoformat(),
                "serial": f"{certificate.serial_number:x}",
            }
        )
    return found
