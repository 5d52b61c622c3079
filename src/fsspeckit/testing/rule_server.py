"""A server of this process in front of a store, which follows rules about the answers.

Behind it is moto in this process, or any store with a port of its own. A rule may refuse a request,
let the store answer and lose the answer, or change it.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from werkzeug.wrappers import Request, Response

__all__ = ["Answer", "Rule", "RuleServer", "passing_on_to"]

Answer = Callable[[], "Response"]
"""Lets the store answer a request; at any time, because its body is read already."""

Rule = Callable[["Request", Answer], "Response"]
"""Answers a request, with the help of the store or without."""

_Noted = TypeVar("_Noted")
_HEADERS_AS_SENT = "fsspeckit.headers"
# They are about one connection, and not about what is asked for.
_OF_A_CONNECTION = {"connection", "expect", "keep-alive", "transfer-encoding"}
_LONGEST_ANSWER = 60.0


class RuleServer:
    """A port that answers with the help of a store, and follows rules."""

    def __init__(self, store: Callable[[Request], Response], *rules: Rule) -> None:
        from werkzeug.serving import make_server

        self._store = store
        self._rules = rules
        self._notes: list[Callable[[Request], None]] = []
        self._server = make_server(
            "127.0.0.1", 0, self._serve, threaded=True, request_handler=_handler()
        )
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Any:
        from werkzeug.wrappers import Request

        request = Request(environ)
        request.get_data()  # an answer may be wanted when the client is gone
        for note in self._notes:
            note(request)

        def answer() -> Response:
            return self._store(request)

        for rule in self._rules:
            answer = _following(rule, request, answer)
        return answer()(environ, start_response)

    @contextmanager
    def following(self, *rules: Rule) -> Iterator[None]:
        """Follow more rules for a while; the last one sees a request first."""
        before = self._rules
        self._rules = (*before, *rules)
        try:
            yield
        finally:
            self._rules = before

    @contextmanager
    def noting(self, of: Callable[[Request], _Noted]) -> Iterator[list[_Noted]]:
        """Write something down of each request of a while."""
        noted: list[_Noted] = []

        def note(request: Request) -> None:
            noted.append(of(request))

        self._notes.append(note)
        try:
            yield noted
        finally:
            self._notes.remove(note)

    def stop(self) -> None:
        """Close its port."""
        self._server.shutdown()
        self._server.server_close()


def _following(rule: Rule, request: Request, answer: Answer) -> Answer:
    return lambda: rule(request, answer)


def _handler() -> Any:
    from moto.moto_server.werkzeug_app import MotoRequestHandler

    class Handler(MotoRequestHandler):
        def make_environ(self) -> dict[str, Any]:
            # The environment of WSGI has no underscores in names, as metadata on Azure has.
            environ = super().make_environ()
            environ[_HEADERS_AS_SENT] = self.headers.items()
            return environ

        def log(self, *arguments: Any, **options: Any) -> None:
            pass

    return Handler


def passing_on_to(url: str) -> Callable[[Request], Response]:
    """Let a store with a port of its own answer; clients sign the name of the port they ask."""
    place = urlsplit(url).netloc

    def ask(request: Request) -> Response:
        from werkzeug.wrappers import Response

        connection = http.client.HTTPConnection(place, timeout=_LONGEST_ANSWER)
        sent = _kept(request.environ[_HEADERS_AS_SENT])
        target = request.environ["RAW_URI"]
        try:
            connection.request(request.method, target, request.get_data() or None, dict(sent))
            found = connection.getresponse()
            data = found.read()
        finally:
            connection.close()
        # An upload of several parts goes on at an address that the store has chosen.
        own = request.host_url.rstrip("/")
        headers = [(name, text.replace(url, own)) for name, text in _kept(found.getheaders())]
        # As a list, because of bytes it sets the length, and HEAD asks for that of others.
        return Response([data], found.status, headers)

    return ask


def _kept(headers: Any) -> list[tuple[str, str]]:
    return [(name, text) for name, text in headers if name.lower() not in _OF_A_CONNECTION]
