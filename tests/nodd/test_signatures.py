"""The signatures of SNS: only signed messages are accepted, and certificates come from SNS alone."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

from holdfast.core.errors import StoreUnavailableError
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.dataset import shipped
from holdfast.nodd.signatures import CERTIFICATE_BYTES_MAX, CERTIFICATES_MAX, Signatures, fetched
from holdfast.nodd.units import Fate
from holdfast.store import open_store
from tests.nodd.messages import event, record

pytestmark = pytest.mark.attack("input")

NOW = datetime(2026, 7, 26, tzinfo=UTC)
TOPIC = "arn:aws:sns:us-east-1:123901341784:NewGFSObject"
URL = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem"
ALGORITHMS: dict[str, Any] = {"1": hashes.SHA1(), "2": hashes.SHA256()}  # noqa: S303 - as SNS does

_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate(key: Any = _KEY, *, since: datetime = NOW - timedelta(days=1), days: int = 30) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(since)
        .not_valid_after(since + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


CERTIFICATE = certificate()


def signed(
    message: str, *, version: str = "1", key: Any = _KEY, kind: str = "Notification", **more: Any
) -> dict[str, Any]:
    """Return an envelope as SNS makes it, signed by a key of the test's."""
    envelope = {
        "Type": kind,
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": TOPIC,
        "Subject": "Amazon S3 Notification",
        "Message": message,
        "Timestamp": "2026-07-26T00:00:00.000Z",
        "SignatureVersion": version,
        "SigningCertURL": URL,
        **more,
    }
    envelope = {name: value for name, value in envelope.items() if value is not None}
    names = ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
    if kind != "Notification":
        names.remove("Subject")
    text = "".join(f"{name}\n{envelope[name]}\n" for name in names if name in envelope)
    signature = key.sign(text.encode(), padding.PKCS1v15(), ALGORITHMS.get(version, hashes.SHA256()))
    return {**envelope, "Signature": base64.b64encode(signature).decode()}


class Certificates:
    """The content of each address, and the requests for it."""

    def __init__(self, data: bytes = CERTIFICATE) -> None:
        self.data = data
        self.requested_urls: list[str] = []

    def __call__(self, url: str) -> bytes:
        self.requested_urls.append(url)
        return self.data


def verifier(data: bytes = CERTIFICATE) -> tuple[Signatures, Certificates]:
    certificates = Certificates(data)
    return Signatures(certificates, now=lambda: NOW), certificates


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("subject", ["Amazon S3 Notification", None])
def test_a_message_signed_by_its_topic_is_accepted(version: str, subject: str | None) -> None:
    signatures, certificates = verifier()
    body = json.dumps(signed(event(record()), version=version, Subject=subject))
    assert [signatures.problem_of(body) for _ in range(3)] == [None] * 3
    assert certificates.requested_urls == [URL]  # once


def test_a_confirmation_is_signed_over_its_token() -> None:
    signatures, _ = verifier()
    more: dict[str, Any] = {
        "Subject": None,
        "SubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=Confirm",
        "Token": "t",
    }
    envelope = signed("You have chosen to subscribe", kind="SubscriptionConfirmation", **more)
    assert signatures.problem_of(json.dumps(envelope)) is None
    problem = signatures.problem_of(json.dumps({**envelope, "Token": "another"}))
    assert problem is not None
    assert problem.code == "signature_invalid"


@pytest.mark.parametrize("field", ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Signature"])
def test_a_message_with_a_changed_field_is_refused(field: str) -> None:
    signatures, _ = verifier()
    envelope = signed(event(record()))
    changed = {
        "TopicArn": TOPIC + "2",
        "Signature": base64.b64encode(b"\0" * 256).decode(),
    }.get(field, envelope[field] + " ")
    problem = signatures.problem_of(json.dumps({**envelope, field: changed}))
    assert problem is not None
    assert problem.code == "signature_invalid"


@pytest.mark.parametrize(
    "url",
    [
        None, 7, "", URL.replace("https", "http"), URL.replace("https", "file"), URL + "?x", URL + "#x", URL + "\n",
        URL.replace("sns.us-east-1.amazonaws.com", "sns.us-east-1.amazonaws.com.example.org"),
        URL.replace("sns.us-east-1.amazonaws.com", "sns.us-east-1.amazonaws.com:8443"),
        URL.replace("sns.us-east-1.amazonaws.com", "user@sns.us-east-1.amazonaws.com"),
        URL.replace("sns.us-east-1.amazonaws.com", "bucket.s3.amazonaws.com"),
        URL.replace("sns.us-east-1.amazonaws.com", "169.254.169.254"),
        URL.replace("sns.us-east-1.amazonaws.com", "sns.us-east-1.amazonaws.com/.."),
        URL.replace("us-east-1", "eu-west-1"), URL.replace(".pem", ".der"),
        "https://[", "https://sns.us-east-1.amazonaws.com@example.org/a.pem",
    ],
)  # fmt: skip
def test_a_certificate_from_elsewhere_is_never_fetched(url: Any) -> None:
    signatures, certificates = verifier()
    problem = signatures.problem_of(json.dumps({**signed("x"), "SigningCertURL": url}))
    assert problem is not None
    assert (problem.code, certificates.requested_urls) == ("certificate_url", [])


@pytest.mark.parametrize(
    "body, code",
    [
        ("", "signature_missing"),
        ("[1]", "signature_missing"),
        ("null", "signature_missing"),
        (event(record()), "signature_missing"),  # raw delivery
        (json.dumps({**signed("x"), "Type": "Other"}), "signature_missing"),
        (json.dumps({**signed("x"), "Type": ["Notification"]}), "signature_missing"),
        (json.dumps({**signed("x"), "Message": None}), "signature_missing"),
        (json.dumps({**signed("x"), "Signature": "no base64!"}), "signature_invalid"),
        (json.dumps({**signed("x"), "Signature": 7}), "signature_invalid"),
        (json.dumps({**signed("x"), "Signature": "é"}), "signature_invalid"),
        (json.dumps({**signed("x"), "TopicArn": "arn:aws:sqs:us-east-1:1:q"}), "topic_invalid"),
        (json.dumps({**signed("x"), "SignatureVersion": "3"}), "signature_version"),
        (json.dumps({**signed("x"), "SignatureVersion": 1}), "signature_version"),
        (json.dumps({**signed("x"), "SignatureVersion": None}), "signature_version"),
        (json.dumps({**signed("x"), "SignatureVersion": "2"}), "signature_invalid"),
        (json.dumps({**signed("x"), "Message": "\ud800"}), "signature_invalid"),
    ],
)
def test_a_message_that_cannot_be_verified_has_a_code(body: str, code: str) -> None:
    signatures, _ = verifier()
    problem = signatures.problem_of(body)
    assert problem is not None
    assert problem.code == code


@pytest.mark.parametrize(
    "data, code",
    [
        (b"", "certificate_invalid"),
        (b"x" * (CERTIFICATE_BYTES_MAX + 1), "certificate_invalid"),
        (certificate(ec.generate_private_key(ec.SECP256R1())), "certificate_invalid"),
        (certificate(rsa.generate_private_key(public_exponent=65537, key_size=2048)), "signature_invalid"),
        (certificate(since=NOW + timedelta(days=1)), "certificate_expired"),
        (certificate(since=NOW - timedelta(days=31)), "certificate_expired"),
    ],
)
def test_an_invalid_certificate_is_refused(data: bytes, code: str) -> None:
    signatures, certificates = verifier(data)
    problem = signatures.problem_of(json.dumps(signed("x")))
    assert problem is not None
    assert problem.code == code
    certificates.data = CERTIFICATE  # a bad answer is not cached, unless it is a certificate for another key
    later = signatures.problem_of(json.dumps(signed("x")))
    assert (later is None) == (code == "certificate_expired" or data[:1] != b"-")


def test_few_certificates_are_remembered() -> None:
    signatures, certificates = verifier()
    for number in range(CERTIFICATES_MAX + 1):
        other = URL.replace("0123456789abcdef", str(number))
        assert signatures.problem_of(json.dumps({**signed("x"), "SigningCertURL": other})) is None
    assert len(signatures._certificates) == 1
    assert len(certificates.requested_urls) == CERTIFICATES_MAX + 1


# ---------------------------------------------------------------------------------------------------------------------
# Fetching


@pytest.fixture
def server() -> Iterator[str]:
    """A server on loopback with a certificate, and with ways to go wrong."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = {"/good": 200, "/moved": 302, "/gone": 404, "/broken": 500}[self.path]
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/good")
            self.end_headers()
            self.wfile.write(CERTIFICATE)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


def test_a_certificate_is_fetched_and_no_redirect_is_followed(server: str) -> None:
    assert fetched(f"{server}/good") == CERTIFICATE
    for path in ("moved", "gone", "broken"):
        with pytest.raises(StoreUnavailableError):
            fetched(f"{server}/{path}")


def test_an_unreachable_certificate_server_is_an_error_and_not_a_refusal() -> None:
    def unreachable(_: str) -> bytes:
        raise StoreUnavailableError("no way")

    with pytest.raises(StoreUnavailableError):
        Signatures(unreachable, now=lambda: NOW).problem_of(json.dumps(signed("x")))


# ---------------------------------------------------------------------------------------------------------------------
# At admission


def test_an_unsigned_message_is_rejected_and_kept(ledger_url: str) -> None:
    signatures, _ = verifier()
    good = json.dumps(signed(event(record())))
    forged = json.dumps(
        {**signed(event(record(key="gfs.20260726/00/atmos/gfs.t00z.pgrb2.0p25.f006"))), "Message": "{}"}
    )
    with open_store(ledger_url) as store:
        messages = [FeedMessage(good, "1"), FeedMessage(forged, "2"), FeedMessage(event(record()), "3")]
        found = admit(store, messages, shipped(), signatures=signatures)
        assert [(one.fate, (one.reason or "").partition(":")[0]) for one in found] == [
            (Fate.ADMITTED, ""),
            (Fate.REJECTED, "signature_invalid"),
            (Fate.REJECTED, "signature_missing"),
        ]
        with store.reading() as reading:
            kept = reading.execute("SELECT body, code FROM nodd_rejected ORDER BY code")
        assert kept == [(forged, "signature_invalid"), (event(record()), "signature_missing")]
