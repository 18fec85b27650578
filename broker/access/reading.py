"""Reads the settings file of users, and refuses what could not be carried out.

A person may have edited them, so every refusal is one line that names the file and the place.
"""

from __future__ import annotations

from broker.access import passwords
from broker.access.patterns import BadPattern, Pattern
from broker.access.records import (
    USERS_FILE,
    BadSetting,
    UsersFile,
)
from broker.settings.files import SettingsError, SettingsFiles


def read_users(files: SettingsFiles) -> UsersFile | None:
    """Users and permissions, None if there is no file yet. Raises SettingsError."""
    content = files.load(USERS_FILE, UsersFile)
    if content is None:
        return None
    where = files.path(USERS_FILE)
    names = set()
    for user in content.users:
        if user.name in names:
            raise SettingsError(f"{where}: user '{user.name}' is there twice")
        names.add(user.name)
        try:
            passwords.check_hash(user.password_hash, user.hashing_algorithm)
        except ValueError as error:
            raise SettingsError(f"{where}: user '{user.name}': {error}") from error
    try:
        for row in content.permissions:
            check_patterns(row.configure, row.write, row.read, is_stored=True)
        for topic in content.topic_permissions:
            check_patterns(topic.write, topic.read, is_stored=True)
    except BadSetting as error:
        raise SettingsError(f"{where}: {error}") from error
    return content


def check_patterns(*patterns: str, is_stored: bool = False) -> None:
    """Raises BadSetting for text that is no regular expression, or unless `is_stored` for one that
    takes too long to match."""
    for pattern in patterns:
        try:
            Pattern(pattern) if is_stored else Pattern.sent(pattern)
        except BadPattern as error:
            raise BadSetting(str(error)) from None


def check_limit(name: str, known: tuple[str, ...]) -> None:
    """Raises BadSetting for a limit that does not exist."""
    if name not in known:
        raise BadSetting(f"limit '{name}' is not known; known are {' and '.join(known)}")
