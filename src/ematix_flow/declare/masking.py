"""Decides what in a text is a secret and hides it; it knows no secret values, only the shapes they come in."""

from __future__ import annotations

import re

REDACTED = "<redacted>"

_SECRET_NAMES = frozenset(
    {"access_key_id", "secret_access_key", "key_password", "private_key", "api_key", "connection_string"}
)
_SECRET_PARTS = frozenset({"password", "secret", "token", "key"})

_WHOLE_URL = re.compile(r"(://[^:]*:)(.+)(?=@)", re.DOTALL)
# Up to the last @ of the run, because people do write unescaped @ and / into passwords.
_URL_IN_TEXT = re.compile(r"(://[^\s:'\"]*:)([^\s'\"]+)(?=@)")
_VALUE = r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s&]+)"
_PASSWORD_PAIR = re.compile(r"((?:password|passwd|passphrase|pwd)[\w.\-]*\s*=\s*)" + _VALUE, re.IGNORECASE)
# No spaces around "=" here: `s.token = t.token` is ordinary SQL.
_SECRET_PAIR = re.compile(
    # A switch such as default_credentials=True is no secret.
    r"((?:token|secret|credential|api_?key|access_?key|private_?key|account_?key|accesssignature|\bsig(?==))[\w.\-]*=)(?!(?:true|false)[,)]*(?:[\s&]|$))"
    + _VALUE,
    re.IGNORECASE,
)
_QUOTED_PAIR = re.compile(
    # Nothing before the name: a long run of letters would be scanned again from each of them.
    r"((?:password|passwd|passphrase|pwd|token|secret|credential|api_?key|access_?key|private_?key)"
    r"[\w.\-]*[\"']\s*:\s*)(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')",
    re.IGNORECASE,
)
_PAIRS = (_PASSWORD_PAIR, _SECRET_PAIR, _QUOTED_PAIR)
_SIGN = re.compile(r"""=|://|["']""")
"""Without one of these in it a text matches none of the patterns."""


def is_secret_field(name: str) -> bool:
    """Return whether a field of this name holds a secret."""
    lowered = name.lower()
    return lowered in _SECRET_NAMES or not _SECRET_PARTS.isdisjoint(lowered.split("_"))


def mask_value(value: str, replacement: str = REDACTED) -> str:
    """Return one setting with the password of its URL and its `password=` pairs replaced."""
    return _mask(value, _WHOLE_URL, replacement)


def mask_text(text: str, replacement: str = REDACTED) -> str:
    """Return running text with the password of every URL in it and every `password=` pair replaced."""
    return _mask(text, _URL_IN_TEXT, replacement)


def secrets_in(value: str) -> list[str]:
    """Return the parts of one setting that `mask_value` hides."""
    secrets = [match.group(2) for pattern in (_WHOLE_URL, *_PAIRS) for match in pattern.finditer(value)]
    return [secret[1:-1] if secret[:1] in {'"', "'"} and secret[:1] == secret[-1:] else secret for secret in secrets]


def _mask(text: str, url: re.Pattern[str], replacement: str) -> str:
    if _SIGN.search(text) is None:
        return text

    def hide(match: re.Match[str]) -> str:
        return match.group(1) + replacement

    text = url.sub(hide, text)
    for pattern in _PAIRS:
        text = pattern.sub(hide, text)
    return text
