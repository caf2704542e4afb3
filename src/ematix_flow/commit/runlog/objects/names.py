"""Names of objects that any text can have: in a folder, in a bucket, and never too long; it decides no layout."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

LONGEST = 100
"""Characters of a name; longer texts keep their beginning and end with a digest."""

_PREFIX_LENGTH = 60


def safe_name(text: str) -> str:
    """Return a name without `~` for a text, another one for every text; a short text's beginning begins its name."""
    name = quote(text, safe="").replace("~", "%7E")
    if name.startswith("."):  # the name of a draft, or of the folder itself
        name = f"%2E{name[1:]}"
    if len(name) > LONGEST:
        return f"{name[:_PREFIX_LENGTH]}!{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:32]}"
    return name or "!"
