"""Keeping credentials out of what is written down and shown."""

from __future__ import annotations

import re

_PATTERNS = (
    (re.compile(r"(?<=://)[^/\s@]+@"), ""),  # user:password@ of an address
    (re.compile(r"(?i)\b([\w-]*(?:token|password|passwd|secret|api[_-]?key)\s*[=:]\s*)[^\s&;]+"), r"\1***"),
    (re.compile(r"(?i)(--(?:token|password|secret|api[_-]?key)\s+)\S+"), r"\1***"),
)


def without_secrets(text: str) -> str:
    """The text without user names and passwords of addresses, and without values that are named secrets."""
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text
