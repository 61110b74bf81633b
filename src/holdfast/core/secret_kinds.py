"""Finds likely secrets in a text and replaces them by `***`: passwords, keys, tokens, cookies, signatures.

A kind is a pattern with the words that a text must contain for it, so that most texts are searched only for words. The
groups `a` and `b` of a pattern, where it has them, are kept: the name before a value.

Invariants: the time is linear in the length of the text: every repetition is bounded, or consumes what it reads; a text
that was redacted does not change when it is redacted again. In doubtful cases more text is removed, not less.
"""

import re
from functools import cache
from typing import NamedTuple

HIDDEN = "***"

# A value has one of these words in its name: PGPASSWORD, client_secret_v2, {'api_key': '…'}, user[password]=…
_NAME = (
    r"(?i)passw(?:or)?d|passwort|pwd|passphrase|passcode|secret|token|api[_-]?key|authorization|credential"
    r"|(?:access|account|private|signing|encryption|master|shared|auth|license|functions)[_-]?(?:access[_-]?)?key"
    r"|signature|connection[_-]?string|session[_-]?(?:id|key)|sess?id|csrf|xsrf|cvv|cvc|(?:mfa|otp|pin)[_-]?code"
    r"|(?<![a-z])(?:pass|auth|sig|otp|sid|jwt|totp|pin)(?![a-z])"
)
_NAMED = (
    r"""(?<![\w-])([\w-]++)(\\?["']?\]?\s{0,8}(?::=|=>|[:=]|%3[AaDd])\s{0,8}"""
    r"""|\\?["']\s{0,8},\s{0,8}(?=[bru]?\\?["']))"""
)
_NEW = r"(?!\*\*\*(?![\w*]))"  # not redacted yet
_QUOTED = r"""[bru]?"(?:[^"\\]|\\[\s\S])*+(?:"|\\?\Z)|[bru]?'(?:[^'\\]|\\[\s\S])*+(?:'|\\?\Z)"""
_ESCAPED = r"""\\"[^"]*(?:"|\Z)|\\'[^']*(?:'|\Z)"""  # the quotes of JSON inside a text
_SCHEME = r"(?i:bearer|basic|token|apikey|negotiate)\s{1,8}+"
_VALUE = rf"""(?!{_SCHEME}\*\*\*){_NEW}({_SCHEME})?+(?:{_ESCAPED}|{_QUOTED}|[^\s"'&;<>]+)"""


class Kind(NamedTuple):
    """A kind of secret: the words of which a text contains at least one, in lower case, and the pattern."""

    words: tuple[str, ...]
    pattern: str


KINDS = (
    # A block of a key or a certificate; one that does not end reaches to the end of the text.
    Kind(("-----begin",), r"(?s)-----BEGIN [A-Z0-9 ]{1,40}-----(?:.*?-----END [A-Z0-9 ]{1,40}-----|.*)"),
    # Headers with several parts reach to the end of their line.
    Kind(
        ("cookie",),
        rf"""(?i)(?P<a>cookies?)(?P<b>\\?["']?\s{{0,8}}[:=]\s{{0,8}}+|\\?["']\s{{0,8}},\s{{0,8}}+){_NEW}[^\r\n]+""",
    ),
    Kind(
        ("aws4-", "digest", "oauth", "hawk"),
        r"(?i)(?P<a>authorization\\?[\"']?\s{0,8}[:=,]\s{0,8}[\"']?)(?P<b>)(?:aws4-|digest\s|oauth\s|hawk\s)[^\r\n]+",
    ),
    Kind(
        ("passw", "identified"),
        rf"(?i)(?P<a>identified\s{{1,8}}by|passw(?:or)?d)"
        rf"(?P<b>\s{{1,8}}(?:is\s{{1,8}}|was\s{{1,8}})?)(?:{_QUOTED})",
    ),
    Kind(
        ("--",),
        r"(?i)(?P<a>(?<![\w-])--[\w-]{0,40}(?:passw(?:or)?d|secret|token|api-?key)[\w-]{0,40})(?P<b>\s{1,8})[^\s-]\S*",
    ),
    Kind(("login",), r"(?i)(?P<a>login\s{1,8}\S{1,200}\s{1,8}password)(?P<b>\s{1,8})\S+"),
    Kind(("-u", "--user"), r"(?P<a>(?:(?<!\S)-u|--user)\s{1,8})(?P<b>[^\s:]{1,200}:)\S+"),
    Kind(("<",), r"(?i)(?P<a><[\w:.-]{0,40}(?:passw(?:or)?d|secret|token|key)[\w:.-]{0,40}>)(?P<b>)[^<]+"),
    Kind(("bearer", "basic"), r"(?i)(?P<a>\b(?:bearer|basic)\s{1,8})(?P<b>)[A-Za-z0-9._~+/=-]{8,}"),
    # A line of .pgpass: host, port, database, user, password.
    Kind((":",), r"(?P<a>(?<![\w:.*-])[\w.*-]++:\d{4,5}:[\w*-]{1,63}:[\w*-]{1,63}:)(?P<b>)\S+"),
    Kind(
        ("hooks.slack.com", "webhook"),
        r"(?P<a>(?:hooks\.slack\.com/\w{1,20}|/api/webhooks|\.webhook\.office\.com)/)(?P<b>)\S+",
    ),
    # Tokens that begin with the sign of their service.
    Kind(("akia", "asia", "aroa", "aida", "abia", "acca"), r"\bA(?:KIA|SIA|ROA|IDA|BIA|CCA)[A-Z0-9]{16}\b"),
    Kind(("eyj",), r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{5,}+(?:\.[A-Za-z0-9_-]*+)*"),
    Kind(
        ("ghp_", "gho_", "ghr_", "ghs_", "ghu_", "github_pat_"),
        r"\b(?:gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})",
    ),
    Kind(
        ("glpat-", "gldt-", "glrt-", "glptt-", "glft-", "glsoat-", "glcbt-", "glagent-", "glimt-", "glsa_", "glc_",
         "gr1348941"),
        r"\b(?:gl(?:pat|dt|rt|ptt|ft|soat|cbt|agent|imt)-|gl(?:sa|c)_|GR1348941)[\w-]{16,}",
    ),
    Kind(("xox", "xapp-"), r"\b(?:xox[a-z](?:\.xox[a-z])?-|xapp-)[\w-]{8,}"),
    Kind(("_live_", "_test_", "whsec_"), r"\b(?:[srp]k_(?:live|test)_|whsec_)[A-Za-z0-9+/=]{8,}"),
    Kind(
        ("aiza", "ya29.", "gocspx-", "1//0"),
        r"\b(?:AIza[\w-]{30,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,}|1//0[\w-]{20,})",
    ),
    Kind(("sk-", "xai-", "gsk_", "r8_", "hf_"), r"\b(?:(?:sk|xai)-|gsk_|r8_|hf_)[\w-]{16,}"),
    Kind(("sg.",), r"\bSG\.[\w-]{16,}+\.[\w-]{16,}"),
    Kind(
        ("npm_", "pypi-", "_v1_", "shp", "sq0", "lin_api_", "atatt3", "ntn_", "hvs.", "hvb.", "ccipat_", "rubygems_",
         "pscale_", "figd_", "pat-na", "age-secret", "dp."),
        r"\b(?:npm_|pypi-|do[por]_v1_|shp(?:at|ss|ca|pa|tka)_|sq0(?:atp|csp|idp)-|lin_api_|ATATT3x|ntn_|hv[sb]\.|CCIPAT_"
        r"|rubygems_|pscale_(?:tkn|pw|oauth)_|figd_|pat-na\d-|AGE-SECRET-KEY-1|dp\.[a-z]{2,5}\.)[\w=.-]{16,}",
    ),
    Kind(("dapi",), r"\bdapi[0-9a-f]{32}"),
    Kind(("key-",), r"\bkey-[0-9a-f]{32}"),
    Kind(("nrak-",), r"\bNRAK-[A-Z0-9]{20,}"),
    Kind((":aa",), r"(?<!\d)\d{8,10}:AA[\w-]{30,}"),  # Telegram, in its URLs after "bot"
    Kind(("sk",), r"\bSK[0-9a-f]{32}\b"),  # Twilio
    Kind((".",), r"\b[MNO][A-Za-z\d_-]{23,27}\.[\w-]{6}\.[\w-]{27,}"),  # Discord
)  # fmt: skip
_WORDS = tuple((word, kind.pattern) for kind in KINDS for word in kind.words)
# 40 characters of base64, of three sorts: the secret key of AWS. Digests of Holdfast and of Git are hexadecimal.
_FORTY = re.compile(r"(?<![A-Za-z0-9/+=_.-])[A-Za-z0-9+][A-Za-z0-9/+]{39}+(?![A-Za-z0-9/+=_.-])")
_FORTY_SORTS = tuple(map(re.compile, ("[A-Z]", "[a-z]", "[0-9]")))
_ADDRESS = re.compile(r"(?<=\w)://\S+")
_USER_MIN = 20  # a user name in a URL that is at least as long is a token


def without_secrets(text: str) -> str:
    """Return the text with each likely secret replaced by `***`; lines and other white space are kept."""
    lower = text.lower()
    for pattern in dict.fromkeys([pattern for word, pattern in _WORDS if word in lower]):
        text = _compiled(pattern).sub(_hidden, text)
    text = _without_named(text)
    if len(text) >= 40:
        text = _FORTY.sub(_without_key, text)
    return _ADDRESS.sub(_without_password, text) if "@" in text else text


def names_secret(name: str) -> bool:
    """Return whether a name says that its value is secret, such as `api_key`."""
    return _compiled(_NAME).search(name) is not None


def _without_named(text: str) -> str:
    """Return the text without the values whose name says that they are secret."""
    is_secret, value = _compiled(_NAME).search, _compiled(_VALUE).match
    parts: list[str] = []
    done = 0
    for found in _compiled(_NAMED).finditer(text):
        if found.start() < done or not is_secret(found[1]):
            continue
        secret = value(text, found.end())
        if secret is not None:
            parts += (text[done : found.end()], secret[1] or "", HIDDEN)
            done = secret.end()
    return "".join([*parts, text[done:]]) if parts else text


def _without_key(found: re.Match[str]) -> str:
    return HIDDEN if all(sort.search(found[0]) for sort in _FORTY_SORTS) else found[0]


def _hidden(found: re.Match[str]) -> str:
    kept = found.groupdict()
    return f"{kept.get('a') or ''}{kept.get('b') or ''}{HIDDEN}"


def _without_password(found: re.Match[str]) -> str:
    """Return a URL with the password before its host replaced; a password may contain `@` and `/`."""
    address = found[0]
    before, at, host = address.rpartition("@")
    user, colon, _ = before.removeprefix("://").partition(":")
    if colon and "/" not in user:
        return f"://{user}:{HIDDEN}@{host}"
    if at and not colon and "/" not in user and len(user) >= _USER_MIN:
        return f"://{HIDDEN}@{host}"
    return address


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern; it is compiled at its first use, because that is slow."""
    return re.compile(pattern)
