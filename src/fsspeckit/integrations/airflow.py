"""Airflow: the transaction of the task that runs, so that a retry is not applied twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import get_current_context

from fsspeckit.storage import Transaction

__all__ = ["run_transaction"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run_transaction(name: str | None = None) -> Transaction:
    """Return the transaction of the task that runs.

    The application is the DAG and the task, with the index of a mapped task; the version is the
    time after which the run was due. A retry is the same run, and skipped if the run is committed.
    A run that was due before the last one that is committed, such as a cleared one or one of a
    backfill, is refused with a :class:`~fsspeckit.errors.TransactionResetError`. So runs have to be
    committed in their order: set ``max_active_runs=1``.

    Args:
        name: What the transaction is for, where a task commits to one dataset more than once, or
            where runs count for themselves, as those of a backfill do.

    Examples:
        >>> @task(retries=3)  # doctest: +SKIP
        ... def load(ds=None):
        ...     write_dataset(f"landing/{ds}", "lake/orders", transaction=run_transaction())
    """
    context = get_current_context()
    run, instance = context["dag_run"], context["ti"]
    index = "" if instance.map_index in (None, -1) else f"[{instance.map_index}]"
    purpose = "" if name is None else f":{name}"
    application = f"airflow:{instance.dag_id}.{instance.task_id}{index}{purpose}"
    version = (run.run_after - _EPOCH) // timedelta(microseconds=1)
    return Transaction(application, version, run=run.run_id)
