"""Remove credentials and other secrets from text that is printed or stored.

Credentials appear in URLs: ``https://user:password@host``, a token in the path of a conda channel (``/t/TOKEN/``), a
signature in the query (``?sig=…`` of an Azure SAS link).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit, urlunsplit

from argosy.core.shell import quote

STARS = "***"
SHORTEST_SECRET = 4
"""Characters of the shortest value that is hidden: shorter ones are counts and switches."""

# The lengths are bounded: a search from each letter of a long line would take time quadratic in its length.
_LOGIN = re.compile(r"(?P<scheme>[A-Za-z0-9+.-]{1,40})://(?P<login>[^/\s?#]*)@")
_PATH_TOKEN = re.compile(
    r"(?P<before>(?<!git\+https)(?<!git\+http)(?<!git\+ssh)://[^/\s]{1,255}(?:/[^/\s]{1,255}){0,3}?/t/)[^/\s]+(?=/)"
)
_QUERY = re.compile(
    r"(?i)(?P<name>[?&;](?:[a-z_-]{0,40}token|[a-z_-]{0,40}key|password|secret|sig(?:nature)?|x-amz-[a-z-]{1,40})=)[^&;#\s'\"]+"
)


def redact(text: str) -> str:
    """Replace all credentials of URLs in a text by ``***``.

    The user name of an ssh URL without a password is kept: ``git@`` is not a secret.
    """
    text = _LOGIN.sub(_redact_login, text)
    text = _QUERY.sub(lambda found: found["name"] + STARS, text)
    return _PATH_TOKEN.sub(lambda found: found["before"] + STARS, text)


def hide(text: str, secrets: Iterable[str]) -> str:
    """Replace secret values in a text by ``***``, also where JSON or a shell script quotes them; paths stay."""
    for value in sorted(secrets, key=len, reverse=True):
        if len(value) >= SHORTEST_SECRET and not value.startswith("/"):
            for form in (quote(value), json.dumps(value)[1:-1], value):
                text = text.replace(form, STARS)
    return text


def _redact_login(found: re.Match[str]) -> str:
    public = "ssh" in found["scheme"] and ":" not in found["login"]
    return f"{found['scheme']}://{found['login'] if public else STARS}@"


def without_login(url: str) -> str:
    """Return the URL of a conda channel or an index without user name, password, and token in its path."""
    return re.sub(r"/t/[^/\s]+(?=/)", "", split_login(url)[0])


def split_login(url: str) -> tuple[str, str, str]:
    """Split a URL into the URL without credentials, the decoded user name and the decoded password."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, "", ""
    user, _, password = login.partition(":")
    return urlunsplit(parts._replace(netloc=host)), unquote(user), unquote(password)
