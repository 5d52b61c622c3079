"""Sessions of Spark: finding or starting one, checking its workers, and running jobs on it.

A task may be run twice, or twice at once, or die half-way. So every file that it writes has a new
name, and only the files that the message of a successful task names are ever used.
"""

from __future__ import annotations

import atexit
import base64
import builtins
import hashlib
import json
import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import pyarrow as pa
import pyspark
from fsspec.implementations.memory import MemoryFileSystem
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

import fsspeckit
from fsspeckit import errors
from fsspeckit.datasets.spark.progress import call_counting_tasks, open_watch
from fsspeckit.datasets.spark.source import new_path
from fsspeckit.errors import (
    ConcurrentModificationError,
    EngineNotInstalledError,
    FsspeckitError,
    InvalidArgumentError,
    SchemaMismatchError,
)
from fsspeckit.storage import HADOOP_OPTIONS, HADOOP_PREFIX, is_hadoop_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import DataType

    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.datasets.spark.progress import PhaseTasks
    from fsspeckit.storage import Root

__all__ = [
    "MESSAGE",
    "Jobs",
    "Mailbox",
    "absolute_path",
    "all_nullable",
    "arrow_schema",
    "carrying_errors",
    "check_shared",
    "check_types",
    "deserialize_error",
    "make_task",
    "messages",
    "open_session",
    "s3_settings",
]

_INSTEAD = {
    "variant": "to_json(column) or a cast",
    "interval": "a number of months, days or seconds",
    "geometry": "ST_AsBinary(column)",
    "geography": "ST_AsBinary(column)",
}
"""Types of Spark that plain Parquet does not have, with what to convert them to."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""How a URL begins; a drive of Windows has one letter."""

MESSAGE = "message binary"
"""The schema of what tasks return."""


logger = logging.getLogger("fsspeckit.spark")

_OLDEST = (4, 1)
_JAVA = 17
_INSTALL = 'pip install "pyspark[connect]>=4.1,<5"'
_NO_PYARROW = re.compile(r"No module named '?pyarrow|PyArrow\s*>=", re.IGNORECASE)
_LOCAL = re.compile(r"local($|\[)")
_TASKS_PER_CORE = 2
_TASKS_OF_SERVER = 32
_MAX_MESSAGE_BYTES = 32 * 1024
_CARRIED = re.compile(r"fsspeckit-error:([A-Za-z0-9+/=]+):")
_PLAIN = int | float | str | None
_ready: WeakSet[Any] = WeakSet()
_R = TypeVar("_R")


def open_session(spark: SparkSession | None = None) -> SparkSession:
    """Return the given session, the active one, or a new local one.

    Raises:
        EngineNotInstalledError: If pyspark or Java is too old, or Java is missing.
    """
    check_version(pyspark.__version__)
    if spark is not None:
        return spark
    return SparkSession.getActiveSession() or _local_session()


def check_version(version: str, what: str = "pyspark", hint: str = _INSTALL) -> None:
    """Refuse a pyspark, or a server of Spark, that lacks what is used here.

    Raises:
        EngineNotInstalledError: Naming both versions.
    """
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise EngineNotInstalledError(
            f"the 'spark' engine needs {what} {oldest} or newer, found {version}.\nHint: {hint}"
        )


def _local_session() -> SparkSession:
    """Start local mode with settings fit for one machine."""
    check_java()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    # Without it workers take the first python3 of the PATH, which may have no pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("fsspeckit")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.adaptive.enabled", "true")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
    )
    with _quiet():
        return builder.getOrCreate()


@contextmanager
def _quiet() -> Iterator[None]:
    """Redirect the output of Java, from its start on, to a file that is removed at exit."""
    directory = tempfile.mkdtemp(prefix="fsspeckit-spark-")
    logger.debug("the output of Spark goes to %s", directory)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(Path(directory) / "spark.log", "ab") as log:
            os.dup2(log.fileno(), 2)
        yield
        # Where a start fails, the file stays: nothing else says why.
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def check_java() -> None:
    """Refuse to start Spark without a Java that it can use.

    Raises:
        EngineNotInstalledError: With the command that installs one.
    """
    found = java_version()
    if found is not None and found >= _JAVA:
        return
    what = "no Java was found" if found is None else f"the Java found is version {found}"
    raise EngineNotInstalledError(
        f"the 'spark' engine needs Java {_JAVA} or newer: {what}.\n"
        f"Hint: install it, for example with 'apt install openjdk-{_JAVA}-jre-headless' or 'brew "
        f"install openjdk@{_JAVA}', and set JAVA_HOME if there are several. The engines 'duckdb' "
        "and 'pyarrow' need no Java."
    )


def java_version() -> int | None:
    """Return the major version of the Java that Spark would start; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None:
        return None
    try:
        output = subprocess.run([command, "-version"], capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout)
    return int(found.group(1)) if found else None


class Jobs:
    """Runs jobs on a session; every action of the engine goes through here."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.actions = 0
        """How many actions were run."""

    @property
    def are_local(self) -> bool:
        """Whether tasks run in threads and workers of this very machine, and nowhere else."""
        return not is_connect(self.spark) and bool(
            _LOCAL.match(self.spark.sparkContext.master or "")
        )

    @property
    def tasks(self) -> int:
        """How many tasks work that is not large is cut into: every task has a cost of its own."""
        if is_connect(self.spark):  # which does not report its cores
            return _TASKS_OF_SERVER
        return _TASKS_PER_CORE * int(self.spark.sparkContext.defaultParallelism)

    @property
    def functions(self) -> Any:
        """Spark's functions on columns, for this kind of session."""
        kind = (
            "pyspark.sql.connect.functions" if is_connect(self.spark) else "pyspark.sql.functions"
        )
        return import_module(kind)

    def map_items(
        self,
        phase: str,
        stage: OpenStage,
        function: Callable[[Any], Iterable[Any]],
        work: Sequence[Any],
        tasks: PhaseTasks | None = None,
    ) -> list[Any]:
        """Run a function on each item, one task for each, and return its messages.

        Args:
            phase: What the job is for, in front of the name of the dataset.
            stage: Where tasks leave messages that are long.
            function: Yields messages for an item.
            work: The items.
            tasks: Reports tasks that have ended, if anybody wants to know.
        """
        if not work:
            return []
        return self._collect(phase, stage, self._numbers(work), function, work, tasks)

    def map_partitions(
        self,
        phase: str,
        stage: OpenStage,
        frame: DataFrame,
        function: Callable[[Any], Iterable[Any]],
        tasks: PhaseTasks | None = None,
    ) -> list[Any]:
        """Run a function on the rows of each partition, and return its messages."""
        return self._collect(phase, stage, frame, function, None, tasks)

    def map_partitions_to_rows(
        self, frame: DataFrame, function: Callable[[Any], Iterable[Any]], schema: str
    ) -> DataFrame:
        """Return a frame of the rows that a function makes of each partition; nothing runs yet."""
        return frame.mapInArrow(make_task(carrying_errors, function), schema)

    def map_items_to_rows(
        self, function: Callable[[Any], Iterable[Any]], work: Sequence[Any], schema: Any
    ) -> DataFrame:
        """Return a frame of the rows that a function yields for each item; nothing runs yet."""
        self.prepare()
        return self._numbers(work).mapInArrow(make_task(carrying_errors, function, work), schema)

    def _numbers(self, work: Sequence[Any]) -> DataFrame:
        return self.spark.range(0, len(work), 1, max(len(work), 1))

    def _collect(
        self,
        phase: str,
        stage: OpenStage,
        frame: DataFrame,
        function: Callable[[Any], Iterable[Any]],
        work: Sequence[Any] | None,
        tasks: PhaseTasks | None,
    ) -> list[Any]:
        """Run an action and return its messages; an error among them is raised."""
        self.prepare()
        self.actions += 1
        mailbox = Mailbox(stage().storage.root, stage().path)
        run = make_task(partial(messages, mailbox=mailbox), function, work)
        what = _about(phase, stage)
        logger.info("%s", what)
        try:
            mapped = frame.mapInArrow(run, MESSAGE)
            rows = self._run(mapped.collect, what, tasks, len(work or ()))
            found = [mailbox.open(bytes(row.message)) for row in rows]
        except PySparkException as error:
            carried = deserialize_error(str(error))
            if carried is not None:
                raise carried from error
            raise
        for message in found:
            if isinstance(message, BaseException):
                raise message
        return found

    def estimated_bytes(self, frame: DataFrame) -> int | None:
        """Return how large Spark expects the rows of a frame to be; None if it does not say."""
        if is_connect(self.spark):
            return None
        plan = frame._jdf.queryExecution().optimizedPlan()
        return int(str(plan.stats().sizeInBytes()))

    def collect_table(
        self, phase: str, stage: OpenStage, frame: DataFrame, tasks: PhaseTasks | None = None
    ) -> pa.Table:
        """Return the few rows of a frame as Arrow, without any task of Python of ours."""
        self.actions += 1
        what = _about(phase, stage)
        logger.info("%s", what)
        return self._run(frame.toArrow, what, tasks, 0)

    def collect_rows(self, what: str, frame: DataFrame) -> list[Row]:
        """Return the few rows of a frame that Spark itself computes, without our functions."""
        self.actions += 1
        with self._described(f"fsspeckit: {what}"):
            return frame.collect()

    def _run(self, action: Callable[[], _R], what: str, tasks: PhaseTasks | None, known: int) -> _R:
        """Run an action; in a thread of its own if somebody wants to know how its tasks go."""

        def run() -> _R:
            with self._described(what):
                return action()

        if tasks is None or not tasks.is_wanted:
            return run()
        watch = open_watch(self.spark, is_connect(self.spark))
        return run() if watch is None else call_counting_tasks(watch, run, tasks, known)

    @contextmanager
    def _described(self, what: str) -> Iterator[None]:
        """Show in Spark's own pages what a job is for."""
        if is_connect(self.spark):
            tag = what.replace(",", ";")
            self.spark.addTag(tag)
            try:
                yield
            finally:
                self.spark.removeTag(tag)
            return
        context = self.spark.sparkContext
        before = context.getLocalProperty("spark.job.description")
        context.setJobDescription(what)
        try:
            yield
        finally:
            # None takes the property away again, whatever the signature says.
            context.setLocalProperty("spark.job.description", before)  # type: ignore[arg-type]

    def prepare(self) -> None:
        """Check once for a session that its workers can run our functions.

        Raises:
            FsspeckitError: If they cannot.
        """
        # A stream wraps its session for each batch again; the context stays.
        context = None if is_connect(self.spark) else self.spark.sparkContext
        if self.spark in _ready or context in _ready:
            return
        if is_connect(self.spark):
            hint = "connect to a newer server, or run the merge in a session of its own."
            check_version(self.spark.version, "a server of Spark", hint)
        found = self._probe()
        if found["fsspeckit"] != fsspeckit.__version__:
            self.spark.addArtifacts(_zipped(), pyfile=True)
            found = self._probe()
            context = None  # other sessions have not sent it yet
        _check_worker(found)
        _ready.add(self.spark if context is None else context)

    def _probe(self) -> dict[str, Any]:
        """Ask one worker what it has."""

        def probe(batches: Any) -> Any:
            import pickle
            import sys

            import pyarrow as pa

            found: dict[str, Any] = {"python": sys.version_info[:2], "pyarrow": pa.__version__}
            try:
                import fsspeckit

                # What tasks need: the package alone can be imported without its libraries.
                from fsspeckit.datasets.spark import engine  # noqa: F401

                found["fsspeckit"] = fsspeckit.__version__
            except ImportError as error:
                found["fsspeckit"] = None
                found["missing"] = error.name
            for _ in batches:
                data = pa.array([pickle.dumps(found)], pa.binary())
                yield pa.RecordBatch.from_arrays([data], ["message"])

        try:
            frame = self.spark.range(0, 1, 1, 1).mapInArrow(probe, MESSAGE)
            (row,) = frame.collect()
        except PySparkException as error:
            logger.debug("a worker failed", exc_info=True)
            # Without the cause: it is a page of tracebacks of Python and Java about one sentence.
            raise unfit_worker(str(error)) from None
        found: dict[str, Any] = pickle.loads(row.message)
        return found


def _about(phase: str, stage: OpenStage) -> str:
    """Describe a job: the merge by the name of its staging directory, phase and dataset."""
    root = stage().storage.root
    return f"fsspeckit {stage().name[-8:]}: {phase} {root.to_user_path(root.path)}"


def is_connect(spark: SparkSession) -> bool:
    """Whether a session talks to a server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def s3_settings(spark: SparkSession, url: str) -> dict[str, str]:
    """Return what the session has set for S3: settings ``fs.s3a.*``, also those of the bucket.

    They come from Hadoop's configuration on a classic session, and from ``spark.conf`` on Connect,
    whose server shows nothing that may be secret: endpoint and region, but no keys.
    """
    session: Any = spark
    if is_connect(spark):
        return {name: text for name, text in session.conf.getAll.items() if is_hadoop_option(name)}
    configuration = session._jsparkSession.sessionState().newHadoopConf()
    bucket = url.partition("://")[2].partition("/")[0]
    own = f"{HADOOP_PREFIX}bucket.{bucket}."
    found = {f"{own}{name}": text for name, text in configuration.getPropsWithPrefix(own).items()}
    shared = ((name, configuration.get(name)) for name in HADOOP_OPTIONS)
    return {**found, **{name: text for name, text in shared if text}}


def absolute_path(path: str) -> str:
    """Return a path that means the same in other processes; a URL stays as it is."""
    return path if _SCHEME.match(path) else os.path.abspath(os.path.expanduser(path))


def all_nullable(kind: Any) -> Any:
    """Return a type in which everything may be NULL, as in all files that Spark writes.

    Whether a column of a query may be NULL depends on how it is computed; a dataset whose first
    rows were literals would refuse NULL for ever.
    """
    if isinstance(kind, StructType):
        columns = [
            StructField(one.name, all_nullable(one.dataType), metadata=one.metadata)
            for one in kind.fields
        ]
        return StructType(columns)
    if isinstance(kind, ArrayType):
        return ArrayType(all_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(all_nullable(kind.keyType), all_nullable(kind.valueType))
    return kind


def check_shared(root: Root) -> None:
    """Refuse a filesystem that other processes cannot see.

    Raises:
        InvalidArgumentError: Naming it.
    """
    message = (
        f"{root.to_user_path(root.path)!r} is on a filesystem ({root.protocol}) that only this "
        "process can see, but Spark works in others.\n"
        "Hint: use a disk or an object store, or the engines 'pyarrow' or 'duckdb'."
    )
    if isinstance(root.filesystem, MemoryFileSystem):
        raise InvalidArgumentError(message)
    try:
        pickle.dumps(root.filesystem)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise InvalidArgumentError(message) from error


def unfit_worker(text: str) -> FsspeckitError:
    """Say in one sentence why a worker cannot work."""
    here = ".".join(map(str, sys.version_info[:2]))
    if "PYTHON_VERSION_MISMATCH" in text:
        return EngineNotInstalledError(
            f"the workers of Spark run another Python than this one ({here}).\n"
            "Hint: set spark.pyspark.python, or PYSPARK_PYTHON, to the same version for both."
        )
    if _NO_PYARROW.search(text):
        return EngineNotInstalledError(
            "the Python of Spark's workers has no pyarrow that Spark can use.\n"
            "Hint: pip install pyarrow there, or set PYSPARK_PYTHON to an interpreter that has it."
        )
    lines = [line for line in text.splitlines() if line.strip()]
    return FsspeckitError(f"the workers of Spark cannot run Python: {lines[-1] if lines else text}")


def _check_worker(found: dict[str, Any]) -> None:
    missing = found.get("missing") or "fsspeckit"
    if found["fsspeckit"] is None and not missing.startswith("fsspeckit"):
        raise EngineNotInstalledError(
            f"the Python of Spark's workers has no {missing}.\n"
            f"Hint: pip install {missing} there, or set PYSPARK_PYTHON to an interpreter that has "
            "it."
        )
    if found["fsspeckit"] != fsspeckit.__version__:
        raise EngineNotInstalledError(
            f"the workers of Spark have fsspeckit {found['fsspeckit']}, this process has "
            f"{fsspeckit.__version__}.\nHint: remove it from the workers; it is sent to them."
        )


@cache
def _zipped() -> str:
    """This package as a file that Python can import; Spark may ask for it to the end."""
    directory = tempfile.mkdtemp(prefix="fsspeckit-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    package = Path(fsspeckit.__file__).parent
    path = Path(directory) / f"fsspeckit-{fsspeckit.__version__}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(package.rglob("*.py")):
            archive.write(file, Path("fsspeckit") / file.relative_to(package))
    return str(path)


# Spark 4.1 asks whether timestamps with a zone are in UTC, later versions ask for the zone.
_IN_UTC = (
    {"timezone": "UTC"}
    if "timezone" in signature(to_arrow_schema).parameters
    else {"timestamp_utc": True}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which tasks get the rows of a data frame, instants in UTC."""
    return to_arrow_schema(schema, **_IN_UTC)


def check_types(schema: StructType, *unknown: str) -> None:
    """Refuse columns of a data frame that cannot be stored as what they are.

    Args:
        schema: The columns.
        unknown: The types of Spark that plain Parquet does not have.

    Raises:
        SchemaMismatchError: Naming the first such column, and what to convert it to.
    """
    for column in schema.fields:
        _check_type(column.name, column.dataType, unknown)


def _check_type(name: str, kind: DataType, unknown: Sequence[str]) -> None:
    text = kind.simpleString()
    if found := [each for each in unknown if each in text.partition("<")[0]]:
        raise SchemaMismatchError(
            f"column {name!r} is of Spark's type {text}, which plain Parquet does not have.\n"
            f"Hint: convert it first, for example to {_INSTEAD[found[0]]}."
        )
    for inner in _inner_types(kind):
        _check_type(name, inner, unknown)
    try:
        arrow_schema(StructType().add(name, kind))
    except PySparkException as error:
        raise SchemaMismatchError(
            f"column {name!r} is of Spark's type {text}, which cannot be converted to Arrow.\n"
            "Hint: convert it first, for example to a string."
        ) from error


def _inner_types(kind: Any) -> list[DataType]:
    """Return the types inside of a struct, an array or a map."""
    if isinstance(kind, StructType):
        return [column.dataType for column in kind.fields]
    if isinstance(kind, ArrayType):
        return [kind.elementType]
    return [kind.keyType, kind.valueType] if isinstance(kind, MapType) else []


@dataclass(frozen=True)
class Mailbox:
    """Where tasks leave long messages: the driver accepts only so many bytes of results."""

    root: Root
    directory: str

    def leave(self, data: bytes) -> _LongMessage:
        """Write a message into a staged file."""
        path = new_path(self.directory, "message")
        with self.root.filesystem.open(path, "wb") as handle:
            handle.write(data)
        return _LongMessage(path, hashlib.sha256(data).digest())

    def open(self, data: bytes) -> Any:
        """Return the message that a task sent.

        Raises:
            ConcurrentModificationError: If a file is not what the task has left. Who may write
                files may not yet run code here, so nothing else is unpickled.
        """
        message = pickle.loads(data)
        if not isinstance(message, _LongMessage):
            return message
        data = self.root.filesystem.cat_file(message.path)
        if hashlib.sha256(data).digest() != message.digest:
            raise ConcurrentModificationError(
                f"{message.path!r} in staging is not what a task of Spark has left there.\n"
                "Hint: nothing but fsspeckit may write into its control directory."
            )
        return pickle.loads(data)


@dataclass(frozen=True)
class _LongMessage:
    """A message that is in a file."""

    path: str
    digest: bytes


def make_task(
    send: Callable[[Iterable[Any]], Iterator[pa.RecordBatch]],
    function: Callable[[Any], Iterable[Any]],
    work: Sequence[Any] | None = None,
) -> Any:
    """Make a task for ``mapInArrow``: a function on all rows of a partition, or on numbered items.

    Args:
        send: :func:`messages`, or :func:`carrying_errors` for a function that yields rows.
        function: Yields messages or rows for a partition or an item.
        work: The items, whose numbers are the rows of the partition; None for a partition.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if work is None:
            yield from send(_called(function, batches))
            return
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from send(_called(function, work[number]))

    return run


def messages(produced: Iterable[Any], mailbox: Mailbox | None = None) -> Iterator[pa.RecordBatch]:
    """Yield messages as rows for Spark, long ones as references to files.

    An error that a repetition would not mend is a message too; others fail the task, so that Spark
    repeats it, and travel inside the error's text if they fail it for good.
    """
    try:
        for message in carrying_errors(produced, FsspeckitError):
            yield _message(message, mailbox)
    except FsspeckitError as error:
        yield _message(error)


def _message(value: Any, mailbox: Mailbox | None = None) -> pa.RecordBatch:
    data = pickle.dumps(value)
    if mailbox is not None and len(data) > _MAX_MESSAGE_BYTES:
        data = pickle.dumps(mailbox.leave(data))
    return pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], ["message"])


def _called(function: Callable[[Any], Iterable[Any]], item: Any) -> Iterator[Any]:
    """Call a function when its first result is wanted, so that its errors come then."""
    yield from function(item)


def carrying_errors(produced: Iterable[Any], *others: type[Exception]) -> Iterator[Any]:
    """Yield what is produced; an error, except others, becomes one whose text carries it."""
    try:
        yield from produced
    except others:
        raise
    except Exception as error:  # whatever it is, the driver shall raise it as what it is
        raise RuntimeError(f"fsspeckit-error:{serialize_error(error)}: {error}") from error


def serialize_error(error: Exception) -> str:
    """Return an error's type, arguments and plain fields as text, which is never unpickled."""
    arguments = list(error.args)
    if isinstance(error, OSError) and error.filename is not None:
        arguments = [error.errno, error.strerror, error.filename]
    plain = [one if isinstance(one, _PLAIN) else str(one) for one in arguments]
    fields = {name: value for name, value in vars(error).items() if isinstance(value, _PLAIN)}
    return base64.b64encode(json.dumps([type(error).__name__, plain, fields]).encode()).decode()


def deserialize_error(text: str) -> BaseException | None:
    """Return the error that a failed task's text carries, if it is ours, Python's or Arrow's."""
    found = _CARRIED.search(text)
    if found is None:
        return None
    try:
        name, arguments, fields = json.loads(base64.b64decode(found.group(1)))
        modules = (builtins, pa.lib, errors)
        kind: Any = next((vars(one)[name] for one in modules if name in vars(one)), None)
        is_error = isinstance(kind, type) and issubclass(kind, Exception)
        if not is_error:
            return None
        error: BaseException = kind(*arguments)
        vars(error).update(fields)
        return error
    except (ValueError, TypeError):  # not our words, or not all that its type asks for
        return None
