from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.redact import redact, split_login

SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=12).map("K".__add__)


@given(user=SECRETS, password=SECRETS)
def test_no_login_of_a_url_is_shown(user: str, password: str) -> None:
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    shown = redact(f"see https://{login}@example.org/simple, and git+https://{login}@example.org/a.git")
    assert login not in shown
    assert shown == "see https://***@example.org/simple, and git+https://***@example.org/a.git"


@given(user=SECRETS, password=SECRETS)
def test_a_login_is_split_off_whole(user: str, password: str) -> None:
    url = f"https://{quote(user, safe='')}:{quote(password, safe='')}@example.org:8080/simple"
    assert split_login(url) == ("https://example.org:8080/simple", user, password)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://example.org/simple", "https://example.org/simple"),
        ("git+ssh://git@example.org/a.git", "git+ssh://git@example.org/a.git"),
        ("ssh://me:word@example.org/a.git", "ssh://***@example.org/a.git"),
        ("https://TOKEN@example.org/a", "https://***@example.org/a"),
        ("https://example.org/t/tk-123/channel", "https://example.org/t/***/channel"),
        ("https://example.org/conda/t/tk-123/channel", "https://example.org/conda/t/***/channel"),
        ("git+https://git.example/group/t/mine.git@1/x", "git+https://git.example/group/t/mine.git@1/x"),
        ("git+https://me@git.example/t/mine/x.git", "git+https://***@git.example/t/mine/x.git"),
        ("/scratch/t/ada/environment.yml", "/scratch/t/ada/environment.yml"),
        ("https://example.org/a?sig=abc&x=1", "https://example.org/a?sig=***&x=1"),
        ("https://example.org/a?private_token=abc", "https://example.org/a?private_token=***"),
        ("numpy @ https://example.org/numpy.whl", "numpy @ https://example.org/numpy.whl"),
    ],
)
def test_only_secrets_are_taken_out(text: str, shown: str) -> None:
    assert redact(text) == shown
