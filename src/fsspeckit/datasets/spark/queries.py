"""Which streaming query a batch belongs to: its id is stored in the checkpoint, and survives it.

A classic session keeps the id as a property of the thread that runs the batch. On Connect a process
of the server runs the batches, and nobody passes it the id. But it unpickles the function while the
session that starts the query is active, and before the query is: so the query is one of those
that this session has started since. If there are several, the query is the one whose plan has the
columns of the batch: Spark numbers columns, and no two plans of a server share a number.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from fsspeckit.datasets.spark.session import is_connect
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["StartedQueries", "find_query", "find_run"]

_QUERY_ID = "sql.streaming.queryId"
"""The property of a thread that Spark keeps the id in."""

_RUN_ID = "spark.jobGroup.id"
"""The property that has the id of the run: what a query runs is one group of jobs, unless the
function of the user names a group of its own."""

_ID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

_SERVER_URL = "SPARK_CONNECT_LOCAL_URL"
"""What is in the environment of a process that runs functions of streams for a server."""

_COLUMN_NUMBER = re.compile(r"#\d+")


@dataclass(eq=False)
class StartedQueries:
    """The queries that a session of a server has started since a function was unpickled."""

    session: SparkSession
    """The session that starts the query; batches have another one, a copy of it."""

    before: frozenset[str]
    """The runs that were active when the function was unpickled."""

    query: str | None = None
    """The query, once it is known: a process runs the batches of one."""

    @classmethod
    def since_now(cls) -> StartedQueries | None:
        """Return those from now on; None if this process does not run batches for a server."""
        if not is_worker_of_server():
            return None
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        session: Any = ConnectSession.getActiveSession()
        if session is None:
            return None
        return cls(session, frozenset(str(query.runId) for query in session.streams.active))

    def find(self, batch: DataFrame) -> str:
        """Return the id of the query that a batch belongs to.

        Raises:
            InvalidArgumentError: If several queries may be it.
        """
        if self.query is None:
            since = [each for each in self.session.streams.active if each.runId not in self.before]
            if len(since) > 1:
                numbers = _column_numbers(batch.explain)
                since = [each for each in since if numbers & _column_numbers(each.explain)]
            if len(since) != 1:
                raise _unknown_query([str(each.id) for each in since])
            self.query = str(since[0].id)
        return self.query


def is_worker_of_server() -> bool:
    """Whether this process runs functions of streams for a Connect server."""
    return _SERVER_URL in os.environ


def find_query(batch: DataFrame, started: StartedQueries | None) -> str | None:
    """Return the id of the streaming query that a batch belongs to; None outside of a stream."""
    session = batch.sparkSession
    if is_connect(session):
        return None if started is None else started.find(batch)
    query: str | None = session.sparkContext.getLocalProperty(_QUERY_ID)
    return query


def find_run(batch: DataFrame) -> str | None:
    """Return what the batches share that a query runs until it ends.

    None on Connect, where a process runs the batches of one run.
    """
    if is_connect(batch.sparkSession):
        return None
    run: str | None = batch.sparkSession.sparkContext.getLocalProperty(_RUN_ID)
    if run is None or not _ID.match(run):
        # A group of the user's own may be that of the next run, too, which has another thread.
        return f"{run} in thread {threading.get_ident()}"
    return run


def _column_numbers(explain: Callable[..., object]) -> frozenset[str]:
    """Return the numbers that Spark gives the columns of a plan."""
    with redirect_stdout(StringIO()) as text:
        explain(extended=True)
    return frozenset(_COLUMN_NUMBER.findall(text.getvalue()))


def _unknown_query(candidates: list[str]) -> InvalidArgumentError:
    found = f"may be any of {candidates!r}" if candidates else "is not among the active ones"
    return InvalidArgumentError(
        f"the streaming query of this batch {found}, and without its id a batch that is repeated "
        "could be applied twice. Nothing was changed.\n"
        "Hint: start each query in a session of its own, with SparkSession.builder.create(); and "
        "create the sink before the query, not in a function that runs for each batch."
    )
