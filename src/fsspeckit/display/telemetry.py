"""Telemetry of a call: its progress, log lines and spans, all from one hook.

:class:`Phases` measures the phases of a call. Whoever wants to know gets the same facts of each:
the function or bars of ``progress=``, the logger ``fsspeckit.calls``, and the tracer of
OpenTelemetry if the process has imported its API. Nothing is imported for it here: without a
tracer there is nobody to send spans to. What nobody wants to know costs a few dictionary entries.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import time
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from traceback import format_exception
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from fsspeckit.display.progress import report_nothing, show_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fsspeckit.display.progress import Progress

__all__ = [
    "Fact",
    "PhaseListener",
    "Phases",
    "add_facts",
    "log_to_stream",
    "observed_call",
    "reporting",
    "warn",
    "without_queries",
]

Fact = str | int | float | bool | None
"""A value of a log line or of a span; None is left out."""

logger = logging.getLogger("fsspeckit")
"""Warnings, and a line for each batch of a stream."""

_calls = logging.getLogger("fsspeckit.calls")
"""A line for each call and for each of its phases."""

# A library prints nothing by itself, and no warning of it goes to standard error.
logger.addHandler(logging.NullHandler())

_LINE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_PLAIN = re.compile(r"[^\s\"=]+")
_QUERY = re.compile(r"(?P<address>[A-Za-z][A-Za-z0-9+.-]*://[^\s?]*)\?[^\s\"'<>]*=[^\s\"'<>]*")

_current: ContextVar[Phases | None] = ContextVar("fsspeckit_phases", default=None)


def without_queries(text: str) -> str:
    """Return a text without the parameters of its URLs, which may be tokens."""
    return _QUERY.sub(r"\g<address>?***", text) if "?" in text else text


def reporting(progress: Progress | bool | None) -> AbstractContextManager[Progress]:
    """Return the function that progress is reported to, for the time of a call.

    Args:
        progress: A function, which is called itself; True to show bars or lines; None or False to
            show nothing.
    """
    return nullcontext(progress) if callable(progress) else show_progress(bool(progress))


@contextmanager
def observed_call(
    name: str,
    context: Mapping[str, Fact],
    progress: Progress | bool | None = None,
    redact: Callable[[str], str] = without_queries,
) -> Iterator[Phases]:
    """Observe a call of the library: a span around those of its phases, and a log line.

    A call inside of another one, such as the merge of a batch, has a span below that of the outer
    call, and the same ``call_id``.

    Args:
        name: The name of the call.
        context: What all its lines and spans say: the dataset, the engine, the transaction.
        progress: Where progress goes, as for :func:`reporting`.
        redact: Takes out of the text of an error what nobody must read in a log.
    """
    outer = _current.get()
    identifier = secrets.token_hex(4) if outer is None else outer.identifier
    with reporting(progress) as report:
        phases = Phases(report, name, context, identifier, redact)
        token = _current.set(phases)
        try:
            with phases.observed("call", name, phases.facts):
                yield phases
        finally:
            _current.reset(token)


def add_facts(**facts: Fact) -> None:
    """Add facts to the phase that is running and to its call; numbers of one name are summed up.

    The number of a commit is not summed up: it is that of the last one.
    """
    phases = _current.get()
    if phases is None:
        return
    for known in {id(known): known for known in (phases.facts, phases.phase_facts)}.values():
        for name, value in facts.items():
            known[name] = _sum(known.get(name), value) if name != "commit" else value


def _sum(known: Fact, value: Fact) -> Fact:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return known + value if is_number and isinstance(known, (int, float)) else value  # type: ignore[operator]


def warn(event: str, context: Mapping[str, Fact], **facts: Fact) -> None:
    """Log a warning, and add it to the span that is running.

    Args:
        event: What happened, in one word: ``recovery``, ``conflict``, ``retry`` and so on.
        context: What is said if no call is observed, such as the dataset.
        **facts: More about it.
    """
    phases = _current.get()
    known = context if phases is None else phases.context
    if logger.isEnabledFor(logging.WARNING):
        _log(logger, logging.WARNING, {"event": event, **known, **facts})
    trace = _trace()
    if trace is not None:
        trace.get_current_span().add_event(f"fsspeckit.{event}", _attributes(facts))


class PhaseListener(Protocol):
    """Whoever else wants to know of phases while they run."""

    def begin(self, phase: str) -> None:
        """Take note that a phase begins."""

    def count(self, done: int, total: int) -> None:
        """Take note of how much of it is done; only called if progress is wanted."""

    def end(self) -> None:
        """Take note that it has ended; one that fails has no end."""


class Phases:
    """The phases of one call: reports each, measures how long it takes, and collects facts of it.

    ``report`` gets phase, done and total: 0 of 1 at the beginning of a phase, 1 of 1 at its end,
    and what engines report in between. A phase may ask an engine several times, each of which
    counts from the beginning: these counts are added up, so that neither number decreases.
    """

    def __init__(
        self,
        report: Progress,
        call: str = "",
        context: Mapping[str, Fact] | None = None,
        identifier: str = "",
        redact: Callable[[str], str] = without_queries,
    ) -> None:
        self._show = report
        # An engine does not count what nobody wants to know.
        self.report = report if report is report_nothing else self._report
        self.seconds: dict[str, float] = {}
        self.identifier = identifier
        self.context: dict[str, Fact] = {"call": call, "call_id": identifier, **(context or {})}
        self.facts: dict[str, Fact] = {}
        """What is known of the call at its end."""

        self.phase_facts = self.facts
        """Those of the phase that is running; of the call between phases."""

        self.listeners: list[PhaseListener] = []
        self._redact = redact
        self._phase = ""
        self._before = 0
        self._last = (0, 0)

    def fields(self) -> dict[str, Fact]:
        """Return what is known of the call, as fields of a log record."""
        return {n: v for n, v in {**self.context, **self.facts}.items() if v is not None}

    def _report(self, phase: str, done: int, total: int) -> None:
        """Report what an engine has counted, in whatever phase it believes to be."""
        if done < self._last[0] or total < self._last[1]:
            self._before += self._last[1]
        self._last = (done, total)
        for listener in self.listeners:
            listener.count(self._before + done, self._before + total)
        self._show(self._phase or phase, self._before + done, self._before + total)

    @contextmanager
    def timed(self, phase: str) -> Iterator[dict[str, Fact]]:
        """Measure a phase, and report its start and end; one that fails has no end.

        Yields:
            The facts of the phase, to add to.
        """
        self._phase, self._before, self._last = phase, 0, (0, 0)
        for listener in self.listeners:
            listener.begin(phase)
        self._show(phase, 0, 1)
        outer, facts = self.phase_facts, dict[str, Fact]()
        self.phase_facts = facts
        try:
            with self.observed("phase", phase, facts) as measure:
                yield facts
        finally:
            self.phase_facts = outer
        self.seconds[phase] = self.seconds.get(phase, 0.0) + measure.seconds
        for listener in self.listeners:
            listener.end()
        self._show(phase, 1, 1)

    @contextmanager
    def observed(self, kind: str, name: str, facts: dict[str, Fact]) -> Iterator[_Measure]:
        """Measure a phase, or the call itself: a span while it runs, a log line at its end."""
        measure = _Measure()
        with ExitStack() as stack:
            span = self._start_span(name, stack)
            try:
                yield measure
            except BaseException as error:
                measure.stop()
                if span is not None:
                    self._end_failed_span(span, error, facts)
                self._log_end(kind, name, measure.seconds, facts, error)
                raise
            measure.stop()
            if span is not None and span.is_recording():
                span.set_attributes(_attributes(facts))
            self._log_end(kind, name, measure.seconds, facts, None)

    def _start_span(self, name: str, stack: ExitStack) -> Any:
        trace = _trace()
        if trace is None:
            return None
        tracer = trace.get_tracer("fsspeckit", _version())
        attributes = _attributes(self.context)
        return stack.enter_context(
            tracer.start_as_current_span(
                f"fsspeckit.{name}",
                attributes=attributes,
                # Their text would not be redacted.
                record_exception=False,
                set_status_on_exception=False,
            )
        )

    def _end_failed_span(self, span: Any, error: BaseException, facts: Mapping[str, Fact]) -> None:
        if not span.is_recording():
            return
        trace = _trace()
        message = self._redact(str(error))
        span.set_attributes(_attributes(facts))
        span.set_status(trace.Status(trace.StatusCode.ERROR, message.partition("\n")[0]))
        attributes = {
            "exception.type": type(error).__qualname__,
            "exception.message": message,
            "exception.stacktrace": self._redact("".join(format_exception(error))),
        }
        span.add_event("exception", attributes)

    def _log_end(
        self,
        kind: str,
        name: str,
        seconds: float,
        facts: Mapping[str, Fact],
        error: BaseException | None,
    ) -> None:
        is_failed_call = error is not None and kind == "call"
        log, level = (logger, logging.WARNING) if is_failed_call else (_calls, logging.INFO)
        if not log.isEnabledFor(level):
            return
        about: dict[str, Fact] = {"event": kind, "phase": name if kind == "phase" else None}
        about |= {**self.context, "seconds": round(seconds, 6)}
        about |= {"outcome": "done", **facts}
        if error is not None:
            about |= {
                "outcome": "failed",
                "error": type(error).__name__,
                "reason": self._redact(str(error)).partition("\n")[0],
            }
        _log(log, level, about)


class _Measure:
    """How long something takes."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.seconds = 0.0

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self._started


def _log(log: logging.Logger, level: int, facts: Mapping[str, Fact]) -> None:
    """Write facts as one line, and as fields of the record."""
    known = {name: value for name, value in facts.items() if value is not None}
    line = " ".join(f"{name}={_quoted(value)}" for name, value in known.items())
    log.log(level, "%s", line, extra=known)


def _quoted(value: Fact) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _attributes(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    return {f"fsspeckit.{name}": value for name, value in facts.items() if value is not None}


def _trace() -> Any:
    """Return the API of OpenTelemetry if the process uses it, and has imported all of it."""
    trace = sys.modules.get("opentelemetry.trace")
    return trace if hasattr(trace, "get_tracer") else None


def _version() -> str:
    from fsspeckit import __version__

    return __version__


def log_to_stream(stream: TextIO, level: int = logging.INFO) -> None:
    """Write warnings and lines of batches to a stream, unless somebody writes log lines already.

    What each job and each phase does is left out unless the level is DEBUG.
    """
    if not _has_output():
        handler = logging.StreamHandler(stream)
        if level > logging.DEBUG:
            handler.addFilter(lambda record: record.name == logger.name)
        handler.setFormatter(logging.Formatter(_LINE_FORMAT))
        logger.addHandler(handler)
        logger.setLevel(level)


def _has_output() -> bool:
    """Whether a handler writes log lines; the one that writes nothing does not count."""
    current: logging.Logger | None = logger
    while current is not None:
        if any(not isinstance(one, logging.NullHandler) for one in current.handlers):
            return True
        current = current.parent if current.propagate else None
    return False
