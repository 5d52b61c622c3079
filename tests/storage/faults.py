"""What a store or a network does instead of answering: rules for a server in front of a store."""

from __future__ import annotations

import atexit
import os
import re
import signal
import socket
import threading
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Literal

from tests.storage.hasty import READ_TIMEOUT

from fsspeckit.testing.conformance.stores import object_store
from fsspeckit.testing.object_stores import Moto, refusal, refusal_of_gcs
from fsspeckit.testing.rule_server import RuleServer, passing_on_to

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from werkzeug.wrappers import Request, Response

    from fsspeckit.testing.object_stores import ObjectStore
    from fsspeckit.testing.rule_server import Answer, Rule

Refusal = Literal["busy", "broken", "expired"]
_REFUSALS: dict[str, dict[Refusal, tuple[int, str, str]]] = {
    "s3": {
        "busy": (503, "SlowDown", "Please reduce your request rate."),
        "broken": (500, "InternalError", "We encountered an internal error."),
        "expired": (400, "ExpiredToken", "The provided token has expired."),
    },
    "abfs": {
        "busy": (503, "ServerBusy", "The server is busy."),
        "broken": (500, "InternalError", "The server encountered an internal error."),
        "expired": (401, "InvalidAuthenticationInfo", "The access token expired."),
    },
    "gs": {
        "busy": (503, "backendError", "Backend Error"),
        "broken": (500, "internalError", "Internal Error"),
        "expired": (401, "authError", "Invalid Credentials"),
    },
}
"""The words of each cloud, by the scheme of its URLs."""


@dataclass(frozen=True)
class FaultyStore:
    """A store whose answers rules can change."""

    kind: str
    """Its name in the store suite."""

    server: ObjectStore
    """It, at the address where rules are followed."""

    following: Callable[..., AbstractContextManager[None]]
    """Follows rules for a while."""


@cache
def faulty(kind: str) -> FaultyStore:
    """Give a store, behind a server of this process; skips the test where it is not built."""
    server = object_store(kind)
    if isinstance(server, Moto):
        return FaultyStore(kind, server, server.following)
    rules = RuleServer(passing_on_to(server.url))
    atexit.register(rules.stop)
    return FaultyStore(kind, replace(server, url=rules.url), rules.following)


def is_change(request: Request) -> bool:
    """Whether a request may change something."""
    return request.method not in ("GET", "HEAD")


_NAMES_IN_BODY = re.compile(r'<Key>([^<]*)</Key>|"name": ?"([^"]*)"')


def names_in(request: Request) -> str:
    """What a request is about: its address, and the objects that its body names.

    One address takes all uploads of a bucket on Google Cloud Storage, and all removals on S3.
    """
    body = request.get_data()[:10_000].decode("latin-1") if is_change(request) else ""
    found = ["".join(names) for names in _NAMES_IN_BODY.findall(body)]
    return " ".join([request.method, request.full_path, *found])


@dataclass
class Fault:
    """Something that a store or a network does instead of answering a request."""

    name: str
    """What the table calls it."""

    does: Callable[[Injection, Request, Answer], Response]
    """Answers; it may leave what is to be done when the client has given up."""

    changes_only: bool = False
    """Whether it befalls only requests that change something."""

    lasting: bool = False
    """Whether a repeated request fails as well, so that the merge sees it; or each one from then
    on, if it is about credentials."""

    every: int | None = None
    """How often it comes again; None if it comes once."""

    def befalls(self, number: int, seen: int, request: Request, hit: set[str]) -> bool:
        """Whether a request fails that is the ``seen``-th, if the ``number``-th is to fail."""
        if self.every is not None:
            return seen % self.every == number % self.every
        if seen == number:
            hit.add(names_in(request))
            return True
        return self.lasting and names_in(request) in hit


@dataclass
class Injection:
    """A rule that lets a fault befall requests."""

    fault: Fault
    number: int
    scheme: str
    hits: int = 0
    late: list[Answer] = field(default_factory=list)
    _seen: int = -1
    _hit: set[str] = field(default_factory=set)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request, answer: Answer) -> Response:
        if self.fault.changes_only and not is_change(request):
            return answer()
        with self._turn:
            self._seen += 1
            befallen = self.fault.befalls(self.number, self._seen, request, self._hit)
            self.hits += befallen
        return self.fault.does(self, request, answer) if befallen else answer()

    def refuse(self, reason: Refusal) -> Response:
        """Refuse as the cloud does that the store stands for."""
        in_words = refusal_of_gcs if self.scheme == "gs" else refusal
        return in_words(*_REFUSALS[self.scheme][reason])


def hang_up(request: Request) -> Response:
    """Cut the connection: whatever is answered does not arrive."""
    request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return refusal(500, "NotSent", "the connection is cut")


def refusing(reason: Refusal) -> Callable[[Injection, Request, Answer], Response]:
    return lambda injection, request, answer: injection.refuse(reason)


def silent(injection: Injection, request: Request, answer: Answer) -> Response:
    time.sleep(2 * READ_TIMEOUT)
    return hang_up(request)


def delayed(injection: Injection, request: Request, answer: Answer) -> Response:
    injection.late.append(answer)
    return hang_up(request)


def cut_before(injection: Injection, request: Request, answer: Answer) -> Response:
    return hang_up(request)


def cut_after(injection: Injection, request: Request, answer: Answer) -> Response:
    answer()
    return hang_up(request)


SINGLE = [
    Fault("503, once", refusing("busy")),
    Fault("503, repeats too", refusing("busy"), lasting=True),
    Fault("500, once", refusing("broken")),
    Fault("500, repeats too", refusing("broken"), lasting=True),
    Fault("no answer, once", silent),
    Fault("no answer, repeats too", silent, lasting=True),
    Fault("connection cut before a change, once", cut_before, changes_only=True),
    Fault("connection cut before a change, repeats too", cut_before, True, True),
    Fault("connection cut after a change, once", cut_after, changes_only=True),
    Fault("connection cut after a change, repeats too", cut_after, True, True),
    Fault("change done after the client gave up", delayed, True, True),
]
PERIODS = (3, 5, 7)
PERIODIC = [
    Fault(f"{name}, one request in {period}", does, every=period)
    for name, does in [
        ("503", refusing("busy")),
        ("500", refusing("broken")),
        ("no answer", silent),
        ("connection cut", cut_before),
    ]
    for period in PERIODS
]


@dataclass
class ExpiredFrom(Fault):
    """All requests fail from one on."""

    def befalls(self, number: int, seen: int, request: Request, hit: set[str]) -> bool:
        return seen >= number


EXPIRED = ExpiredFrom("credentials that expire", refusing("expired"), lasting=True)
CUT = Fault("cut", cut_after, changes_only=True, lasting=True)


@dataclass
class OfTheRecord(Fault):
    """A fault of each request that puts the record."""

    def befalls(self, number: int, seen: int, request: Request, hit: set[str]) -> bool:
        return "/commits/0000000001.json" in names_in(request)


LATE_RECORD = OfTheRecord("a record put late", delayed, changes_only=True)

# S3 and Azure in XML, Google Cloud Storage in JSON; only listings have these names.
_TIMES = re.compile(
    r"(<LastModified>|<Last-Modified>|<Creation-Time>"
    r'|"(?:timeCreated|updated|timeStorageClassUpdated|timeFinalized)": ?")([^<"]+)'
)


def clock_off_by(hours: int) -> Rule:
    """A rule: the clock of the store is not that of the writers."""
    skew = timedelta(hours=hours)

    def later(found: re.Match[str]) -> str:
        if not found[2][0].isdigit():
            return found[1] + _later_date(found[2], skew)
        when = datetime.fromisoformat(found[2]) + skew
        return found[1] + when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")

    def rule(request: Request, answer: Answer) -> Response:
        response = answer()
        for name in ("Last-Modified", "Date"):
            if name in response.headers:
                response.headers[name] = _later_date(response.headers[name], skew)
        if str(response.mimetype).endswith(("/xml", "/json")) and not is_change(request):
            text = response.get_data(as_text=True)
            if text.lstrip("\ufeff\n ").startswith("<?xml") or '"storage#object' in text:
                response.set_data(_TIMES.sub(later, text))
        return response

    return rule


def _later_date(text: str, skew: timedelta) -> str:
    when = parsedate_to_datetime(text) + skew
    return format_datetime(when.astimezone(UTC), usegmt=True)


class Pausing:
    """A rule: stops a process at one of its changes, and goes on when another has merged."""

    def __init__(self, number: int, *, held: bool) -> None:
        self._number = number
        self._held = held
        self._seen = -1
        self._turn = threading.Lock()
        self.process = 0
        self.is_paused = threading.Event()
        self.goes_on = threading.Event()

    def __call__(self, request: Request, answer: Answer) -> Response:
        with self._turn:
            is_turn = False
            if is_change(request) and not self.is_paused.is_set():
                self._seen += 1
                is_turn = self._seen == self._number
            if is_turn:
                os.kill(self.process, signal.SIGSTOP)
        if not is_turn:
            return answer()
        if not self._held:
            response = answer()
            self.is_paused.set()
            return response
        self.is_paused.set()
        self.goes_on.wait(60)
        return answer()
