"""Keeping credentials out of what is written down and shown."""

import re
from urllib.parse import unquote

#: An address in a text; a password may hold any character that is no white space. Scheme and names below have bounds, as
#: patterns without one take seconds on an answer of 100 kB.
_ADDRESS = re.compile(r"[A-Za-z][\w+.-]{0,40}://[^\s\"'<>]*")
_SHORTEST = 3  #: Parts of a password that are shorter could be any word's.
_PATTERNS = (
    (re.compile(r"(?i)([\w-]{0,40}(?:token|password|passwd|secret|api[_-]?key)\s*[=:]\s*)[^\s&;]+"), r"\1***"),
    (re.compile(r"(?i)(--(?:token|password|secret|api[_-]?key)\s+)\S+"), r"\1***"),
)


def without_secrets(text: str) -> str:
    """The text without user names, passwords and queries of addresses, and without values that are named secrets."""
    text = _ADDRESS.sub(lambda found: shown_address(found[0]), text)
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def shown_address(uri: str) -> str:
    """An address without user name, password and query, which may hold a key.

    The user's part ends with the last ``@``: SQLAlchemy's passwords may hold ``/`` and ``?``, and some hold an ``@`` that
    should have been escaped. An address without a host, as SQLite's, has no user's part.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return rest or scheme
    if not rest.startswith("/"):
        rest = rest.rpartition("@")[2]
    return f"{scheme}://{re.split('[?#]', rest, maxsplit=1)[0]}"


def of_address(text: str, uri: str) -> str:
    """A program's message about an address, without the address's user name, password and query, whole or in parts."""
    _, _, rest = uri.partition("://")
    user, _, place = ("", "", rest) if rest.startswith("/") else rest.rpartition("@")
    query = re.split("[?#]", place, maxsplit=1)[1:]
    text = text.replace(uri, shown_address(uri))
    parts = {part for whole in (user, *query) for part in (whole, *re.split(r"[:@/&=?#]", whole))}
    for part in sorted({*parts, *map(unquote, parts)}, key=len, reverse=True):
        if len(part) >= _SHORTEST:
            text = text.replace(part, "***")
    return without_secrets(text)
