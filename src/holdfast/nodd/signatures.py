"""Signatures of SNS: verifies that a message comes from the topic that it names.

This is for queues that others can write to. A queue whose policy names its topics (`aws:SourceArn`) does not need it.

Invariants: a certificate is fetched only from a host of SNS, over https, without redirects, and once while it is valid;
a message that cannot be verified has a problem with a code; if a certificate cannot be fetched now, an error is raised
and the message stays in its queue.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from holdfast.core.errors import InputError, StoreUnavailableError
from holdfast.core.feature_errors import extra
from holdfast.core.json_input import loads
from holdfast.nodd.notices import BODY_BYTES_MAX

Fetch = Callable[[str], bytes]

CERTIFICATE_BYTES_MAX = 1 << 16
CERTIFICATES_MAX = 32
TIMEOUT_S = 10

_CERTIFICATE = re.compile(r"https://sns\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/[A-Za-z0-9_-]+\.pem", re.ASCII)
_ARN = re.compile(r"arn:aws[a-z-]*:sns:([a-z0-9-]+):\d{12}:[A-Za-z0-9_-]+(?:\.fifo)?")
_SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    "UnsubscribeConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}
_OPTIONAL = "Subject"

UNTRUSTED = frozenset({
    "signature_missing", "signature_invalid", "signature_version", "certificate_url", "certificate_invalid",
    "certificate_expired", "topic_invalid",
})  # fmt: skip
"""The codes of SignatureProblem."""


class SignatureProblem(msgspec.Struct, frozen=True):
    """Why a message is not trusted."""

    code: str
    message: str


class _Doubt(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.problem = SignatureProblem(code, message)


class Signatures:
    """Verifies envelopes of SNS; `fetch` returns the certificate at a URL."""

    def __init__(self, fetch: Fetch | None = None, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._fetch = fetch or fetched
        self._now = now
        self._certificates: dict[str, Any] = {}
        _require_extra()

    def problem_of(self, body: str) -> SignatureProblem | None:
        """Return why the signature of a message is not valid; None if it is.

        Raises StoreUnavailableError if the certificate cannot be fetched.
        """
        try:
            envelope = _envelope(body)
            text = _signed_text(envelope)
            signature = _decoded(envelope)
            self._verify(_certificate_url(envelope), envelope.get("SignatureVersion"), text, signature)
        except _Doubt as doubt:
            return doubt.problem
        return None

    def _verify(self, url: str, version: object, text: bytes, signature: bytes) -> None:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric import padding, rsa  # noqa: PLC0415 - an extra

        # Version 1 (SHA-1) is weak, but still the default of SNS.
        algorithms: dict[object, Any] = {"1": hashes.SHA1(), "2": hashes.SHA256()}  # noqa: S303
        if version not in algorithms:
            raise _Doubt("signature_version", "SignatureVersion is not 1 or 2")
        key = self._certificate(url).public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            raise _Doubt("certificate_invalid", "the certificate has no RSA key")
        try:
            key.verify(signature, text, padding.PKCS1v15(), algorithms[version])
        except InvalidSignature:
            raise _Doubt("signature_invalid", "the signature does not match the message") from None

    def _certificate(self, url: str) -> Any:
        certificate = self._certificates.get(url)
        if certificate is None:
            certificate = _parsed(self._fetch(url))
            if len(self._certificates) >= CERTIFICATES_MAX:
                self._certificates.clear()
            self._certificates[url] = certificate
        if not certificate.not_valid_before_utc <= self._now() <= certificate.not_valid_after_utc:
            del self._certificates[url]
            raise _Doubt("certificate_expired", "the certificate is not valid at this time")
        return certificate


# ---------------------------------------------------------------------------------------------------------------------
# What was signed


def _envelope(body: str) -> dict[str, Any]:
    try:
        envelope = loads(body, size_max=BODY_BYTES_MAX)
    except InputError:
        raise _Doubt("signature_missing", "the message has no SNS envelope") from None
    if not isinstance(envelope, dict) or "Signature" not in envelope:
        raise _Doubt("signature_missing", "the message has no signature: raw delivery sends none")
    return envelope


def _signed_text(envelope: dict[str, Any]) -> bytes:
    kind = envelope.get("Type")
    if not isinstance(kind, str) or kind not in _SIGNED:
        raise _Doubt("signature_missing", "the Type of the envelope is not one that SNS signs")
    lines = []
    for name in _SIGNED[kind]:
        value = envelope.get(name)
        if value is None and name == _OPTIONAL:
            continue
        if not isinstance(value, str):
            raise _Doubt("signature_missing", f"{name} is missing or not text")
        lines += [name, value]
    return "".join(f"{line}\n" for line in lines).encode(errors="surrogatepass")


def _decoded(envelope: dict[str, Any]) -> bytes:
    signature = envelope["Signature"]
    try:
        return base64.b64decode(signature, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _Doubt("signature_invalid", "the signature is not base64") from None


def _certificate_url(envelope: dict[str, Any]) -> str:
    """Return the URL of the certificate, which must be a host of SNS in the topic's region."""
    url, arn = envelope.get("SigningCertURL"), envelope["TopicArn"]
    topic = _ARN.fullmatch(arn)
    if topic is None:
        raise _Doubt("topic_invalid", "TopicArn is not the ARN of an SNS topic")
    place = _CERTIFICATE.fullmatch(url) if isinstance(url, str) else None
    if place is None:
        raise _Doubt("certificate_url", "SigningCertURL is not a URL of SNS")
    if place[1] != topic[1]:
        raise _Doubt("certificate_url", "SigningCertURL is in another region than the topic")
    return place[0]


# ---------------------------------------------------------------------------------------------------------------------
# Certificates


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def fetched(url: str) -> bytes:
    """Return the content at a URL of SNS; raise StoreUnavailableError if it cannot be fetched."""
    opener = build_opener(_NoRedirect)
    try:
        with opener.open(Request(url), timeout=TIMEOUT_S) as answer:  # noqa: S310 - https at a host of SNS, see _certificate_url
            data: bytes = answer.read(CERTIFICATE_BYTES_MAX + 1)
    except HTTPError as error:
        error.close()
        raise StoreUnavailableError(f"the certificate of a topic cannot be fetched: HTTP {error.code}") from None
    except OSError as error:
        raise StoreUnavailableError(f"the certificate of a topic cannot be fetched: {type(error).__name__}") from None
    return data


def _parsed(data: bytes) -> Any:
    from cryptography import x509  # noqa: PLC0415 - an extra

    if len(data) > CERTIFICATE_BYTES_MAX:
        raise _Doubt("certificate_invalid", f"the certificate has more than {CERTIFICATE_BYTES_MAX} bytes")
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        raise _Doubt("certificate_invalid", "SigningCertURL does not return a certificate") from None


def _require_extra() -> None:
    with extra("nodd,signing"):
        import cryptography  # noqa: F401, PLC0415 - an extra
