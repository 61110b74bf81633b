"""Secrets in a text: every kind is found in every form, quickly, and other text stays."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.redaction import (
    LEFT_OUT,
    MESSAGE_MAX,
    READ_MAX,
    TRACE,
    redacted,
    redacted_json,
    redacted_lines,
)
from holdfast.core.secret_kinds import KINDS, without_secrets

pytestmark = pytest.mark.attack("input")

# The samples are put together here, so that no scanner takes this file for a leak.
WORD = "hunter2" * 3
LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0bL"
HEX = "0123456789abcdef" * 2
DIGITS = "1234567890"
JWT = ".".join(["ey" + "JhbGciOiJIUzI1NiJ9", "ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0", "dozjgNryP4J3jVmNHl0w5N"])
PEM_BODY = base64.b64encode(bytes(range(96))).decode()


def pem(kind: str, newline: str = "\n", *, ends: bool = True) -> str:
    end = f"{newline}-----END {kind}-----" if ends else ""
    return f"-----BEGIN {kind}-----{newline}{PEM_BODY}{end}"


# By kind: a text, and the secret in it.
SECRETS = {
    "password=": (f"password={WORD}", WORD),
    "PGPASSWORD": (f"PGPASSWORD={WORD} psql", WORD),
    "DB_PASS": (f"DB_PASS={WORD}", WORD),
    "pwd of a connection string": (f"Server=db;Uid=me;Pwd={WORD};", WORD),
    "passphrase": (f"passphrase: {WORD}", WORD),
    "quoted with spaces": (f"password='{WORD} two words'", WORD),
    "quoted with an escape": (f'password="a\\"{WORD}"', WORD),
    "quoted without an end": (f'password="{WORD} and more', WORD),
    "JSON": (f'{{"user": "me", "password": "{WORD}"}}', WORD),
    "JSON in JSON": (f'{{\\"password\\": \\"{WORD}\\"}}', WORD),
    "repr of bytes": (f"{{b'password': b'{WORD}'}}", WORD),
    "tuples of headers": (f"[('X-Api-Key', '{WORD}')]", WORD),
    "Ruby": (f'"password"=>"{WORD}"', WORD),
    "a form": (f"user[password]={WORD}&x=1", WORD),
    "a form, encoded": (f"password%3D{WORD}", WORD),
    "XML": (f"<password>{WORD}</password>", WORD),
    "SQL": (f"ALTER ROLE me PASSWORD '{WORD}'", WORD),
    "SQL, identified by": (f"CREATE USER me IDENTIFIED BY '{WORD}'", WORD),
    "in words": (f'the password is "{WORD}"', WORD),
    "a flag": (f"mysql --password {WORD} -h db", WORD),
    "a flag with =": (f"tool --api-key={WORD}", WORD),
    "curl -u": (f"curl -u me:{WORD} http://h/", WORD),
    ".netrc": (f"machine h login me password {WORD}", WORD),
    ".pgpass": (f"db.example:5432:work:me:{WORD}", WORD),
    "client secret": (f"client_secret_v2={WORD}", WORD),
    "camel case": (f"accessToken={WORD} clientSecret={WORD}", WORD),
    "refresh token": (f"refresh_token={WORD}", WORD),
    "private key by name": (f"privateKey: {WORD}", WORD),
    "basic auth in a URL": (f"https://me:{WORD}@host/path", WORD),
    "a password with @ and /": (f"postgresql://me:a@b/{WORD}@host/db", WORD),
    "a token as the user of a URL": (f"https://{HEX}@sentry.example/1", HEX),
    "Authorization: Bearer": (f"Authorization: Bearer {WORD}", WORD),
    "Authorization: Basic": (f"Authorization: Basic {LETTERS}==", LETTERS),
    "Authorization: token": (f"authorization: token {WORD}", WORD),
    "Authorization: Digest": (f'Authorization: Digest username="me", response="{WORD}"', WORD),
    "Authorization: AWS4": (f"Authorization: AWS4-HMAC-SHA256 Credential=x/y, Signature={HEX}", HEX),
    "bearer in words": (f"sent Bearer {WORD} to it", WORD),
    "a cookie": (f"Cookie: theme=dark; sid={WORD}; a={WORD}", WORD),
    "a cookie that is set": (f"Set-Cookie: id={WORD}; Path=/; HttpOnly", WORD),
    "a session id": (f"JSESSIONID={WORD}", WORD),
    "CSRF": (f"csrfmiddlewaretoken={WORD} X-XSRF-TOKEN: {WORD}", WORD),
    "X-Amz-Signature": (f"https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature={HEX}", HEX),
    "X-Amz-Security-Token": (f"?X-Amz-Security-Token={LETTERS}%2F&x=1", LETTERS),
    "X-Goog-Signature": (f"?X-Goog-Signature={HEX}", HEX),
    "Azure SAS": (f"https://a.blob.core.windows.net/c?sv=2022&se=2030&sig={LETTERS}%3D", LETTERS),
    "Azure account key": (f"AccountName=a;AccountKey={LETTERS}==;EndpointSuffix=x", LETTERS),
    "Azure shared access key": (f"SharedAccessKeyName=root;SharedAccessKey={LETTERS}=", LETTERS),
    "AWS access key id": ("AK" + "IAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    "AWS temporary key id": ("AS" + "IAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    "AWS secret key, alone": ("used wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
    "PEM, RSA": (pem("RSA PRIVATE KEY"), PEM_BODY),
    "PEM, PKCS 8": (pem("PRIVATE KEY"), PEM_BODY),
    "PEM, encrypted": (pem("ENCRYPTED PRIVATE KEY"), PEM_BODY),
    "PEM, OpenSSH": (pem("OPENSSH PRIVATE KEY"), PEM_BODY),
    "PEM, with escaped lines": (pem("EC PRIVATE KEY", "\\n"), PEM_BODY),
    "PEM, cut off": (pem("PRIVATE KEY", ends=False), PEM_BODY),
    "PGP": (pem("PGP PRIVATE KEY BLOCK"), PEM_BODY),
    "age": ("AGE-SECRET-KEY-" + "1" + LETTERS.upper(), LETTERS.upper()),
    "JWT": (JWT, "dozjgNryP4J3"),
    "JWT without a signature": (JWT.rpartition(".")[0] + ".", "eyJzdWIi"),
    "GitHub, personal": ("ghp" + f"_{LETTERS}abcd", LETTERS),
    "GitHub, app": ("ghs" + f"_{LETTERS}abcd", LETTERS),
    "GitHub, fine-grained": ("github" + f"_pat_{LETTERS}_{LETTERS}", LETTERS),
    "GitLab": ("glpat" + f"-{LETTERS[:20]}", LETTERS[:20]),
    "Slack, bot": ("xox" + f"b-{DIGITS}-{DIGITS}-{LETTERS}", LETTERS),
    "Slack, user": ("xox" + f"p-{DIGITS}-{LETTERS}", LETTERS),
    "Slack, app": ("xapp" + f"-1-A0-{DIGITS}-{HEX}", HEX),
    "Slack, webhook": (f"https://hooks.slack.com/services/T000/B000/{LETTERS}", LETTERS),
    "Stripe, secret": ("sk" + f"_live_{LETTERS}", LETTERS),
    "Stripe, restricted": ("rk" + f"_test_{LETTERS}", LETTERS),
    "Stripe, webhook": ("wh" + f"sec_{LETTERS}", LETTERS),
    "Google, API key": ("AI" + f"za{LETTERS}abc", LETTERS),
    "Google, access token": ("ya" + f"29.{LETTERS}", LETTERS),
    "Google, client secret": ("GOCSPX" + f"-{LETTERS[:28]}", LETTERS[:28]),
    "OpenAI": ("sk" + f"-proj-{LETTERS}", LETTERS),
    "Anthropic": ("sk" + f"-ant-api03-{LETTERS}", LETTERS),
    "SendGrid": ("S" + f"G.{LETTERS[:22]}.{LETTERS}", LETTERS),
    "Twilio": ("S" + f"K{HEX}", HEX),
    "Telegram": (f"{DIGITS}:AA{LETTERS}x", LETTERS),
    "Telegram's URL": (f"https://api.telegram.org/bot{DIGITS}:AA{LETTERS}x/getMe", LETTERS),
    "Discord": ("M" + f"{LETTERS[:25]}.Gabcde.{LETTERS}", LETTERS),
    "Discord, webhook": (f"https://discord.com/api/webhooks/1/{LETTERS}", LETTERS),
    "npm": ("npm" + f"_{LETTERS}", LETTERS),
    "PyPI": ("pypi" + f"-{LETTERS}", LETTERS),
    "DigitalOcean": ("dop" + f"_v1_{HEX}{HEX}", HEX),
    "Hugging Face": ("h" + f"f_{LETTERS}", LETTERS),
    "Shopify": ("shp" + f"at_{HEX}", HEX),
    "Square": ("sq0" + f"csp-{LETTERS}", LETTERS),
    "Mailgun": ("key" + f"-{HEX}", HEX),
    "Vault": ("hv" + f"s.{LETTERS}", LETTERS),
    "Databricks": ("da" + f"pi{HEX}", HEX),
    "New Relic": ("NR" + f"AK-{LETTERS.upper()[:27]}", LETTERS.upper()[:27]),
    "Linear": ("lin" + f"_api_{LETTERS}", LETTERS),
    "Atlassian": ("ATATT" + f"3x{LETTERS}", LETTERS),
    "Grafana": ("gl" + f"sa_{LETTERS}_01234567", LETTERS),
}  # fmt: skip


def test_many_kinds_of_secrets_are_listed() -> None:
    assert len(SECRETS) >= 44


@pytest.mark.req("K-05", "K-13")
@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_of_every_kind_is_removed(kind: str) -> None:
    text, secret = SECRETS[kind]
    assert secret in text
    around = (text, f"order 7 failed: {text}", f"order 7 failed ({text}) on try 2", f"a\n{text}\nb", f"'{text}'")
    for dressed in around:
        shown = redacted(dressed)
        assert secret not in shown
        assert "***" in shown
        assert redacted(shown) == shown
        assert secret not in without_secrets(dressed)
    assert redacted(f"order 7 failed: {text}").startswith("order 7 failed: ")


@pytest.mark.parametrize(
    "text",
    [
        "order 404 of customer 9: no such file /srv/data/2026/part-00001.parquet",
        f"sha256 {HEX}{HEX} differs from {'f' * 64}",
        "commit 8ff88c3f0e1d2c3b4a5968778695a4b3c2d1e0f9 was not found",
        "job 5f2b9c1e-8f7a-4c63-9a51-0c9d6f1f2a33 is failed",
        "KeyError: 'a'", 'duplicate key value violates unique constraint "orders_pkey"',
        "postgresql://me@host:5432/db is unreachable", "https://example.com/a/b?c=d&e=f@g",
        "could not connect to server: Connection refused (0x0000274D/10061)",
        "the tokeniser designed a pinned passage for an author", "idempotency_key=order-7", "foreign_key=3",
        "src/Holdfast3/engine/worker/Attempt_of_a_very_long_name.py", "line 12, column 5: unexpected end",
        "2026-11-16T05:58:13.093887249+00:00 worker-7f3a", "SKU SK12 and AKIA", "a: b, c: d", "x < 3 and y > 4",
    ],
)  # fmt: skip
def test_text_without_a_secret_stays(text: str) -> None:
    assert redacted(text) == text


@given(st.text(max_size=300))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    assert redacted(redacted(text)) == redacted(text)
    assert without_secrets(without_secrets(text)) == without_secrets(text)


EVIL = [
    "password" * 10,
    'password="\\\n',
    "password='",
    "a://",
    "x://a:",
    "x://a:b@",
    "eyJ-",
    "-eyJ",
    "eyJaaaaaaaaaa.",
    "<",
    "<a",
    "-",
    "--a",
    "login a ",
    "-u a",
    "1234:5678:a:b",
    "SG.aaaaaaaaaaaaaaaaaa.",
    "-----BEGIN A-----",
    "-----BEGIN",
    "token ",
    'token\\"',
    "aB3/",
    "M" * 27 + ".",
    "cookie:",
    "authorization: digest",
    "secret\t\t\t\t",
    "key-",
    "\u202e",
    "Bearer ",
    "'",
    '"',
    "\\",
    ": ",
    "hooks.slack.com/a",
    "xoxb-",
    "sk-",
    "a.b.",
]


@pytest.mark.parametrize("piece", EVIL)
def test_the_time_is_linear_in_the_length(piece: str) -> None:
    def took_s(length: int) -> float:
        text = (piece * (length // len(piece) + 1))[:length]
        began = time.process_time()
        without_secrets(text)
        return time.process_time() - began

    took_s(1000)  # compiles
    # Sixteen times the length: quadratic time would be 256 times as much.
    short, long = max(min(took_s(16_000) for _ in range(3)), 0.001), took_s(256_000)
    assert long < 80 * short


def test_a_secret_that_the_limit_would_cut_is_not_shown_in_part() -> None:
    token = "ghp" + f"_{LETTERS}{LETTERS}"
    for spaces in range(3_900, 4_010):
        assert LETTERS[:6] not in redacted("x" + " " * spaces + token)


def test_a_long_text_is_shortened_and_not_emptied() -> None:
    assert len(redacted("ValueError: " + "x" * 100_000)) == MESSAGE_MAX
    assert redacted("a " * 50_000).startswith("a a a ")


def test_a_text_at_a_limit_is_whole() -> None:
    assert redacted("x" * MESSAGE_MAX) == "x" * MESSAGE_MAX
    assert redacted("x" * (MESSAGE_MAX + 1)) == "x" * (MESSAGE_MAX - 1) + "…"


FRAME = '  File "/app/a.py", line 1, in f\n'


# What is read is filled with what the result does not have.
@pytest.mark.parametrize(
    "text, shown",
    [
        ("a" + " " * (READ_MAX - 2) + "b", "a b"),
        ("a" + " " * (READ_MAX - 3) + "bcd", "a"),  # a word that is cut is left out
        ("a" + " " * (READ_MAX // 2) + "b" * READ_MAX, "a " + "b" * (MESSAGE_MAX - 3) + "…"),  # unless it is half of it
        (f"{TRACE}:\n{FRAME}E", "E"),
        (f"{TRACE}:\n{FRAME * 300}E: no", "E: no"),  # of a stack trace more is read, and its end counts
        (f"{TRACE}:\n{FRAME * 3000}E: no", LEFT_OUT),
    ],
)
def test_a_long_text_is_read_up_to_its_limit(text: str, shown: str) -> None:
    assert redacted(text) == shown


@pytest.mark.parametrize(
    "text, length_max, shown",
    [
        ("one\ntwo", 7, "one\ntwo"),
        ("one\ntwo\nsix", 10, "two\nsix"),  # of a longer text the last whole lines
        (f"one\npassword={WORD}\nsix", 100, "one\npassword=***\nsix"),
        ("a\x1bb\nc\ud800", 100, "a b\nc "),
        ("onetwo", 3, ""),
    ],
)
def test_lines_are_kept_of_a_text_of_several_lines(text: str, length_max: int, shown: str) -> None:
    assert redacted_lines(text, length_max) == shown


def test_a_json_value_loses_what_its_names_and_its_texts_give_away() -> None:
    value = {
        "user": "me",
        "api_key": 7,
        "tries": [1, None, {"password": {"a": 1}}, f"pwd={WORD}"],
        "author": True,
    }
    assert redacted_json(value) == {
        "user": "me",
        "api_key": "***",
        "tries": [1, None, {"password": "***"}, "pwd=***"],
        "author": True,
    }


@pytest.mark.parametrize(
    "text, shown",
    [
        (f"tool --password {WORD} -v", "tool --password *** -v"),  # what is before the value stays
        ("AK" + "IAIOSFODNN7EXAMPLE is old", "*** is old"),  # and a kind without a name has nothing to keep
        (f"key {(LETTERS + LETTERS)[:40]} end", "key *** end"),
        (f"key {(LETTERS + LETTERS)[:39]} end", f"key {(LETTERS + LETTERS)[:39]} end"),
        ((LETTERS + LETTERS)[:40], "***"),
        (f"https://{HEX[:20]}@h/", "https://***@h/"),
        (f"https://{HEX[:19]}@h/", f"https://{HEX[:19]}@h/"),
    ],
)
def test_what_is_not_secret_stays_beside_the_secret(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_each_kind_has_a_pattern_and_words_in_lower_case() -> None:
    for kind in KINDS:
        assert kind.words == tuple(word.lower() for word in kind.words)
