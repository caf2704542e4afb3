from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ematix_flow.connect.config.redact import redact, redacted_json, safe_text
from ematix_flow.connect.config.secrets import forget_secrets, remember
from ematix_flow.errors import FlowError, RunError

# Without the letters of the mark itself: a secret "acte" would be found in "<redacted>".
secrets = st.text(min_size=4, max_size=30).filter(lambda text: not set(text) & set("<redacted>"))


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    forget_secrets()


@pytest.mark.slow
@given(secret=secrets, before=st.text(), after=st.text())
def test_a_known_secret_is_gone_in_every_form(secret: str, before: str, after: str) -> None:
    forget_secrets()
    remember(secret)
    raw = secret.encode(errors="surrogatepass")
    forms = [
        secret,
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
    ]
    for form in forms:
        assume(form not in before + after)
        assert form not in redact(before + form + after)


@pytest.mark.slow
@given(user=st.binary(max_size=8), secret=st.text(min_size=6, max_size=30), tail=st.binary(max_size=4))
def test_a_known_secret_is_gone_inside_longer_base64(user: bytes, secret: str, tail: bytes) -> None:
    forget_secrets()
    remember(secret)
    raw = secret.encode(errors="surrogatepass")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = redact(f"Authorization: Basic {encode(user + raw + tail).decode()}")
        assert encode(user + raw + tail).decode() not in text
        assert "<redacted>" in text


@pytest.mark.slow
@given(secrets=st.lists(st.text(alphabet="abc", min_size=4), min_size=1), text=st.text(alphabet="abc ", max_size=60))
def test_secrets_inside_secrets(secrets: list[str], text: str) -> None:
    forget_secrets()
    for secret in secrets:
        remember(secret)
    shown = redact(text).replace("<redacted>", "|")
    assert not [secret for secret in secrets if secret in shown]


@pytest.mark.slow
@given(password=st.text(min_size=1).filter(lambda text: not set(text) & set("\"'") and not any(map(str.isspace, text))))
def test_passwords_of_urls_are_hidden_without_being_known(password: str) -> None:
    canary = f"c4n4ry{password}c4n4ry"
    assert "c4n4ry" not in redact(f"cannot open 'postgres://u:{canary}@h/d' now")


@pytest.mark.parametrize(
    "key", ["password", "PWD", "sslpassword", "token", "secret_access_key", "api_key", "client_secret"]
)
@pytest.mark.parametrize(
    "pair", ["{}=c4n4ry", "?a=1&{}=c4n4ry&b=2", "{}='c4n4 c4n4ry'", '"{}": "c4n4ry"', "'{}': 'c4n4ry'"]
)
def test_pairs_are_hidden(key: str, pair: str) -> None:
    text = redact(f"before {pair.format(key)} after")
    assert "c4n4" not in text
    assert text.startswith("before ")
    assert text.endswith(" after")


def test_ordinary_text_is_left_alone() -> None:
    remember("abc")
    for text in (
        "password authentication failed for user u",
        "postgres://u@h:5432/d",
        "see https://example.com/a:b",
        "key=5 and s.token = t.token abc",
        "",
    ):
        assert redact(text) == text


def test_the_mark_can_be_chosen() -> None:
    remember("hunter22")
    assert redact("postgres://u:pw@h hunter22", "***") == "postgres://u:***@h ***"


def test_errors_are_redacted_with_their_hints_and_notes() -> None:
    remember("hunter22")
    error = RunError("cannot log in with hunter22", hint="check postgres://u:other@h/d")
    error.add_note("password=third-one")
    text = safe_text(error)
    assert "Hint: check postgres://u:<redacted>@h/d" in text
    assert not [part for part in ("hunter22", "other", "third-one") if part in text]
    assert safe_text(ValueError()) == "ValueError"
    assert safe_text(FlowError("plain")) == "plain"


def test_the_longer_of_two_secrets_leaves_no_rest() -> None:
    remember("hunter22")
    remember("hunter22-and-more")
    assert redact("with hunter22-and-more.") == "with <redacted>."


def test_a_switch_is_no_secret_and_hides_none() -> None:
    assert redact("default_credentials=True, region=r") == "default_credentials=True, region=r"
    for text in ("token=true,canary", "secret=True-canary", "credentials=truecanary", "api_key=false)canary"):
        assert "canary" not in redact(text)


def test_json_has_no_numbers_that_json_lacks_and_no_secret_in_keys_or_in_other_values() -> None:
    remember("canary-4711")

    class Odd:
        def __str__(self) -> str:
            return "odd canary-4711"

    value = {"canary-4711": [float("nan"), float("inf"), 1.5], (1, "canary-4711"): Odd(), 3: {float("nan"): None}}
    text = redacted_json(value)
    assert "canary-4711" not in text
    assert json.loads(text, parse_constant=pytest.fail) == {
        "<redacted>": ["nan", "inf", 1.5],
        "(1, '<redacted>')": "odd <redacted>",
        "3": {"nan": None},
    }
