"""Password hashes: argon2id for new passwords; those of RabbitMQ and LavinMQ as they were imported.

An argon2id hash is kept in its PHC string form. RabbitMQ's are base64 of a 4-byte salt and the
digest of salt and password (SHA-256, SHA-512, and MD5 of before version 3.6); LavinMQ has the same
and bcrypt in its modular crypt form. An imported hash stays until the user gets a new password, or
until the next login where `rehash_at_login` is on. Hashing takes tens of milliseconds and belongs
in a thread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from functools import partial
from typing import Any

import argon2
import argon2.low_level
import bcrypt
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

ARGON2ID = "argon2id"
SHA256 = "rabbit_password_hashing_sha256"
SHA512 = "rabbit_password_hashing_sha512"
MD5 = "rabbit_password_hashing_md5"
BCRYPT = "lavinmq_bcrypt"

# An imported MD5 hash is verified; none is made for a new password.
_DIGESTS: dict[str, Any] = {
    SHA256: hashlib.sha256,
    SHA512: hashlib.sha512,
    MD5: partial(hashlib.md5, usedforsecurity=False),
}
_SALT_BYTES = 4
KNOWN = (ARGON2ID, *_DIGESTS, BCRYPT)

# LavinMQ takes any name with one of these endings, and hashes with these prefixes.
_ENDINGS = {"sha256": SHA256, "sha512": SHA512, "md5": MD5, "bcrypt": BCRYPT}
_PREFIXES = {SHA256: "$5$", SHA512: "$6$", MD5: "$1$"}
_LENGTHS = {20: MD5, 36: SHA256, 68: SHA512}

_BCRYPT = re.compile(r"\$2[abxy]?\$(\d\d)\$[./A-Za-z0-9]{53}")
BCRYPT_COST_MAX = 14
"""Each step doubles the time of a check; 14 takes about a second."""
_BCRYPT_BYTES = 72

# OWASP's second choice for argon2id: 19 MiB, two passes, one lane.
_hasher = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


def _unfitting() -> str:
    """A hash that no password is known to fit, and that costs as much to compare with as a real
    one. Made up, not computed: a process need not hash when it starts."""
    salt, digest = (
        base64.b64encode(os.urandom(size)).decode().rstrip("=")
        for size in (_hasher.salt_len, _hasher.hash_len)
    )
    costs = f"m={_hasher.memory_cost},t={_hasher.time_cost},p={_hasher.parallelism}"
    return f"$argon2id$v={argon2.low_level.ARGON2_VERSION}${costs}${salt}${digest}"


_no_user = _unfitting()


def hash_password(password: str) -> str:
    """The argon2id hash of a password. Takes about 40 ms."""
    return _hasher.hash(_octets(password))


def rabbit_hash(password: str, algorithm: str = SHA256) -> str:
    """RabbitMQ's salted hash of a password, for definitions files."""
    salt = os.urandom(_SALT_BYTES)
    return base64.b64encode(salt + _DIGESTS[algorithm](salt + _octets(password)).digest()).decode()


def imported(password_hash: str, algorithm: str | None) -> tuple[str, str]:
    """Hash and algorithm as they are kept, from a definitions file: LavinMQ's spellings become
    RabbitMQ's, and a missing algorithm is read off the hash's length."""
    if algorithm is None:
        algorithm = _by_length(password_hash)
    elif algorithm not in KNOWN:
        ending = re.search(r"(sha256|sha512|md5|bcrypt)\Z", algorithm.lower())
        if ending is not None:
            algorithm = _ENDINGS[ending[1]]
    return password_hash.removeprefix(_PREFIXES.get(algorithm, "\0")), algorithm


def _by_length(password_hash: str) -> str:
    if _BCRYPT.fullmatch(password_hash):
        return BCRYPT
    try:
        return _LENGTHS.get(len(base64.b64decode(password_hash, validate=True)), SHA256)
    except (binascii.Error, ValueError):
        return SHA256


def check_length(password: str, least: int) -> None:
    """Raises ValueError for a new password with fewer characters than `least`."""
    if len(password) < least:
        raise ValueError(f"the password has fewer than {least} characters (password_length_min)")


def is_supported(password_hash: str, algorithm: str) -> bool:
    """Whether logins can be checked against well-formed hashes of this kind."""
    if algorithm == BCRYPT:
        match = _BCRYPT.fullmatch(password_hash)
        return match is None or int(match[1]) <= BCRYPT_COST_MAX
    return algorithm in KNOWN


def check_hash(password_hash: str, algorithm: str) -> None:
    """Raises ValueError, saying why, if logins could never be checked against this hash.

    An empty hash is valid: the user cannot log in by password.
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
        except (binascii.Error, ValueError):
            raise ValueError("password_hash is not base64") from None
        if len(raw) != _SALT_BYTES + _DIGESTS[algorithm]().digest_size:
            raise ValueError(f"password_hash has the wrong length for {algorithm}")
    elif algorithm == BCRYPT:
        match = _BCRYPT.fullmatch(password_hash)
        if match is None:
            raise ValueError("password_hash is not a bcrypt hash")
        if not 4 <= int(match[1]) <= BCRYPT_COST_MAX:
            raise ValueError(
                f"password_hash has the bcrypt cost {match[1]}; supported are 4 to "
                f"{BCRYPT_COST_MAX}"
            )
    else:
        known = ", ".join(KNOWN)
        raise ValueError(f"hashing_algorithm '{algorithm}' is not supported; use one of {known}")


def verify(password: str, password_hash: str | None, algorithm: str) -> bool:
    """Whether the password fits. None, for a user that does not exist, costs as much as any other.

    An empty password or an empty hash never fits.
    """
    if not password_hash or not password:
        _argon2_fits(_no_user, password)
        return False
    if algorithm == ARGON2ID:
        return _argon2_fits(password_hash, password)
    fits = _bcrypt_fits if algorithm == BCRYPT else partial(_rabbit_fits, algorithm=algorithm)
    if fits(password, password_hash):
        return True
    _argon2_fits(_no_user, password)
    return False


def is_outdated(password_hash: str, algorithm: str) -> bool:
    """Whether a hash is of another form than one that is made today."""
    return algorithm != ARGON2ID or _hasher.check_needs_rehash(password_hash)


def _argon2_fits(password_hash: str, password: str) -> bool:
    try:
        return _hasher.verify(password_hash, _octets(password))
    except (VerifyMismatchError, VerificationError, InvalidHashError):
        return False


def _bcrypt_fits(password: str, password_hash: str) -> bool:
    # bcrypt reads 72 bytes; the library refuses longer passwords, LavinMQ cuts them.
    try:
        return bool(bcrypt.checkpw(_octets(password)[:_BCRYPT_BYTES], password_hash.encode()))
    except ValueError:
        return False


def _rabbit_fits(password: str, password_hash: str, algorithm: str) -> bool:
    digest = _DIGESTS.get(algorithm)
    if digest is None:
        return False
    try:
        raw = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        return False
    salt, wanted = raw[:_SALT_BYTES], raw[_SALT_BYTES:]
    return hmac.compare_digest(digest(salt + _octets(password)).digest(), wanted)


def _octets(text: str) -> bytes:
    # Passwords over AMQP are bytes; what is no UTF-8 arrives as surrogates and must not be lost.
    return text.encode("utf-8", "surrogatepass")
