"""Certificates for tests, made with the `openssl` command: an authority, and what it signs."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


class Authority:
    """A certificate authority in a directory of its own."""

    def __init__(self, directory: Path, name: str = "Test Authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.file = directory / "ca.pem"
        self.key = directory / "ca.key"
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "30", "-subj", f"/CN={name}"),
            *("-keyout", str(self.key), "-out", str(self.file)),
        )

    @classmethod
    def kept(cls, directory: Path) -> Authority:
        """The one that was made in this directory."""
        found = cls.__new__(cls)
        found.directory = directory
        found.file, found.key = directory / "ca.pem", directory / "ca.key"
        return found

    def issue(
        self, name: str, *, subject: str | None = None, san: str | None = None, days: int = 30
    ) -> Path:
        """A new certificate and its key in one file `<name>.pem`, overwriting an older one.

        `subject` is openssl's, as `/O=Shop/CN=till`; `san` its alternative names, as
        `DNS:shop.example`.
        """
        request, key = self.directory / f"{name}.csr", self.directory / f"{name}.key.tmp"
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={san or f'DNS:{name}'}\n")
        openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", subject or f"/CN={name}", "-keyout", str(key), "-out", str(request)),
        )
        certificate = openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.file), "-CAkey", str(self.key)),
            *("-CAcreateserial", "-days", str(days), "-extfile", str(extensions)),
        )
        file = self.directory / f"{name}.pem"
        file.write_bytes(certificate + key.read_bytes())
        for each in (request, key, extensions):
            each.unlink()
        return file

    def client_context(self, certificate: Path | None = None) -> ssl.SSLContext:
        """What a client needs that believes this authority, with a certificate of its own or
        not."""
        context = ssl.create_default_context(cafile=str(self.file))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


def openssl(*words: str) -> bytes:
    """What the command prints."""
    return subprocess.run(["openssl", *words], check=True, capture_output=True).stdout
