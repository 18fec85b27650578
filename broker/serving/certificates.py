"""TLS: the certificates of the appliance, by name, and the contexts that are served with them.

Broker and web process make theirs here from the same settings. A context is made whole or not at
all: a bad file leaves the one before in use. Rules (RFC 9325): TLS 1.2 or newer, no compression, no
renegotiation, no session tickets, since AMQP connections are long.

Certificates by name (SNI): besides the one of `tls_cert_file`, each `<name>.pem` of `tls_names_dir`
is for that host name and holds its chain and key (or the key is in `<name>.key`); `_.example.pem`
is for every name with one more label, as `*.example`. Whether clients must show a certificate is
the same for all names, so that no name is a way around it.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from broker.settings.config import Config

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
VERIFY = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
WILDCARD = "_."


class CertificateError(Exception):
    """A certificate, a key or a list of authorities that cannot be used; one line says which."""


class CertificateFile(NamedTuple):
    """A PEM file as it was when it was loaded, for who asks how long it is valid."""

    path: Path
    content: bytes


class Certificates:
    """The contexts of one process. `load` makes them, again at each reload; connections that are
    open keep theirs."""

    def __init__(self, *, ask_clients: bool) -> None:
        self._ask_clients = ask_clients
        self._by_name: dict[str, ssl.SSLContext] = {}
        self.context: ssl.SSLContext | None = None
        """What a new connection is wrapped with; it changes to the right certificate itself."""
        self.files: list[CertificateFile] = []
        """The files of certificates in use, that of `tls_cert_file` first."""
        self.authorities: CertificateFile | None = None
        """The file that clients' certificates are checked against, if they are."""

    @property
    def names(self) -> list[str]:
        """Host names that have a certificate of their own."""
        return sorted(self._by_name)

    @property
    def verifies_clients(self) -> bool:
        """Whether a client's certificate is asked for and checked."""
        return self.context is not None and self.context.verify_mode is not ssl.CERT_NONE

    def load(self, config: Config) -> None:
        """Reads every file. Waits for the disk. Raises CertificateError, and changes nothing."""
        if config.tls_cert_file is None:
            self.context, self._by_name = None, {}
            self.files, self.authorities = [], None
            return
        context = self._made(config, config.tls_cert_file, config.tls_key_file)
        named = _named_files(config.tls_names_dir)
        by_name = {name: self._made(config, chain, key) for name, chain, key in named}
        context.sni_callback = self._choose
        files = [_read(path) for path in (config.tls_cert_file, *(chain for _, chain, _ in named))]
        checks = self._ask_clients and config.tls_verify != "none" and config.tls_ca_file
        self.authorities = _read(config.tls_ca_file) if checks and config.tls_ca_file else None
        self.files = files
        self._by_name = by_name
        self.context = context

    def _choose(self, socket: Any, name: str | None, context: ssl.SSLContext) -> None:
        """Called in the handshake with the name that the client wants, if it says one."""
        chosen = self.find(name or "")
        if chosen is not None:
            socket.context = chosen

    def find(self, name: str) -> ssl.SSLContext | None:
        """The context of a host name: its own, else its parent's wildcard, else None."""
        name = name.lower().rstrip(".")
        exact = self._by_name.get(name)
        return exact or self._by_name.get("*." + name.partition(".")[2])

    def _made(self, config: Config, chain: Path, key: Path | None) -> ssl.SSLContext:
        context = offered(config)
        try:
            context.load_cert_chain(chain, key, password=_no_password)
        except (OSError, ValueError) as error:
            raise _unusable("certificate", chain, key, error) from None
        if self._ask_clients and config.tls_verify != "none":
            assert config.tls_ca_file is not None
            try:
                context.load_verify_locations(config.tls_ca_file)
            except (OSError, ValueError) as error:
                raise _unusable("authorities", config.tls_ca_file, None, error) from None
            context.verify_mode = VERIFY[config.tls_verify]
        return context


def offered(config: Config) -> ssl.SSLContext:
    """The versions and ciphers of the settings, without a certificate. Raises CertificateError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[config.tls_min_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    if config.tls_ciphers:
        try:
            context.set_ciphers(config.tls_ciphers)
        except ssl.SSLError:
            raise CertificateError(
                f"tls_ciphers: OpenSSL knows no cipher of '{config.tls_ciphers}'"
            ) from None
    return context


def _named_files(directory: Path | None) -> list[tuple[str, Path, Path | None]]:
    """Name, chain and key of each certificate in the directory."""
    if directory is None:
        return []
    try:
        files = sorted(directory.glob("*.pem")) if directory.is_dir() else None
    except OSError as error:
        raise CertificateError(f"cannot read {directory}: {error.strerror}") from None
    if files is None:
        raise CertificateError(f"tls_names_dir {directory} is no directory")
    found = []
    for chain in files:
        name = chain.stem.lower()
        if name.startswith(WILDCARD):
            name = "*." + name.removeprefix(WILDCARD)
        key = chain.with_suffix(".key")
        found.append((name, chain, key if key.exists() else None))
    return found


def _read(path: Path) -> CertificateFile:
    try:
        return CertificateFile(path, path.read_bytes())
    except OSError as error:
        raise _unusable("certificate", path, None, error) from None


def _no_password() -> str:
    raise ValueError("the key has a password; give one without")


def _unusable(what: str, path: Path, key: Path | None, error: Exception) -> CertificateError:
    if isinstance(error, ssl.SSLError):
        reason = {
            "KEY_VALUES_MISMATCH": "the key is not this certificate's",
            "NO_CERTIFICATE_OR_CRL_FOUND": "there is none in it",
        }.get(error.reason, "") or f"it is not PEM, or a part is missing ({error.reason or error})"
    elif isinstance(error, OSError):
        reason = error.strerror or str(error)
    else:
        reason = str(error)
    where = f"{path} with key {key}" if key is not None else str(path)
    return CertificateError(f"cannot use the {what} {where}: {reason}")


_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_SAN = {"dns": "DNS", "email": "email", "ip": "IP Address", "uri": "URI"}


def distinguished_name(parts: Any) -> str:
    """A subject or issuer as `ssl` gives it, as text of RFC 4514: the most special part first."""
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in each)
        for each in reversed(tuple(parts))
    )


def _escaped(value: str) -> str:
    text = "".join("\\" + each if each in ',+"\\<>;=' else each for each in value)
    text = text.replace("\0", "\\00")
    if text[:1] in (" ", "#"):
        text = "\\" + text
    if text.endswith(" ") and len(value) > 1:
        text = text[:-1] + "\\ "
    return text


def login_name(certificate: dict[str, Any], source: str, san_kind: str) -> str:
    """The user that a verified client certificate stands for; empty if it names none.

    `source` and `san_kind` are the values of `tls_login_from` and `tls_login_san`. As in RabbitMQ
    several common names are joined by commas, and of alternative names the first of the kind
    counts.
    """
    subject = certificate.get("subject", ())
    if source == "distinguished_name":
        return distinguished_name(subject)
    if source == "common_name":
        return ",".join(value for each in subject for name, value in each if name == "commonName")
    wanted = _SAN[san_kind]
    return next(
        (value for kind, value in certificate.get("subjectAltName", ()) if kind == wanted), ""
    )
