"""Password hashes: argon2id of our own, RabbitMQ's salted hashes as guests.

An argon2id hash is kept in its PHC string form. RabbitMQ's is base64 of a 4-byte salt and the
digest of salt and password; it is accepted from definitions files and replaced at the next login.
Hashing takes tens of milliseconds and belongs in a thread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os

import argon2
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

ARGON2ID = "argon2id"
SHA256 = "rabbit_password_hashing_sha256"
SHA512 = "rabbit_password_hashing_sha512"

_DIGESTS = {SHA256: hashlib.sha256, SHA512: hashlib.sha512}
_SALT_BYTES = 4

# OWASP's second choice for argon2id: 19 MiB, two passes, one lane.
_hasher = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
_nobody = _hasher.hash(os.urandom(16).hex())


def hash_password(password: str) -> str:
    """The argon2id hash of a password. Takes about 40 ms."""
    return _hasher.hash(_octets(password))


def rabbit_hash(password: str, algorithm: str = SHA256) -> str:
    """RabbitMQ's salted hash of a password, for definitions files."""
    salt = os.urandom(_SALT_BYTES)
    return base64.b64encode(salt + _DIGESTS[algorithm](salt + _octets(password)).digest()).decode()


def check_hash(password_hash: str, algorithm: str) -> None:
    """Raises ValueError, saying why, if logins could never be checked against this hash.

    An empty hash is fine: it means that nobody logs in by password.
    """
    if not password_hash:
        return
    if algorithm == ARGON2ID:
        try:
            argon2.extract_parameters(password_hash)
        except InvalidHashError:
            raise ValueError("password_hash is not an argon2 hash") from None
    elif algorithm in _DIGESTS:
        try:
            raw = base64.b64decode(password_hash, validate=True)
        except binascii.Error:
            raise ValueError("password_hash is not base64") from None
        if len(raw) != _SALT_BYTES + _DIGESTS[algorithm]().digest_size:
            raise ValueError(f"password_hash has the wrong length for {algorithm}")
    else:
        known = ", ".join([ARGON2ID, *_DIGESTS])
        raise ValueError(f"hashing_algorithm '{algorithm}' is not supported; use one of {known}")


def verify(password: str, password_hash: str | None, algorithm: str) -> bool:
    """Whether the password fits. None, for a user that does not exist, costs as much as any other.

    An empty password or an empty hash never fits.
    """
    if not password_hash or not password:
        _argon2_fits(_nobody, password)
        return False
    if algorithm == ARGON2ID:
        return _argon2_fits(password_hash, password)
    if _rabbit_fits(password, password_hash, algorithm):
        return True
    _argon2_fits(_nobody, password)
    return False


def is_outdated(password_hash: str, algorithm: str) -> bool:
    """Whether a fitting hash should be replaced by one made today."""
    return algorithm != ARGON2ID or _hasher.check_needs_rehash(password_hash)


def _argon2_fits(password_hash: str, password: str) -> bool:
    try:
        return _hasher.verify(password_hash, _octets(password))
    except (VerifyMismatchError, VerificationError, InvalidHashError):
        return False


def _rabbit_fits(password: str, password_hash: str, algorithm: str) -> bool:
    digest = _DIGESTS.get(algorithm)
    if digest is None:
        return False
    try:
        raw = base64.b64decode(password_hash, validate=True)
    except binascii.Error:
        return False
    salt, wanted = raw[:_SALT_BYTES], raw[_SALT_BYTES:]
    return hmac.compare_digest(digest(salt + _octets(password)).digest(), wanted)


def _octets(text: str) -> bytes:
    # Passwords over AMQP are bytes; what is no UTF-8 arrives as surrogates and must not be lost.
    return text.encode("utf-8", "surrogatepass")
