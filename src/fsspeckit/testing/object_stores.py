"""Object stores on this machine: moto, MinIO, Azurite and fake-gcs-server.

moto answers as the S3 of AWS does. Two rules change its answers: :func:`as_minio`, because plain
moto hides what is different there, and :func:`limited_to`, the credentials of a careful
administrator. A test may add rules of its own, such as a response that is lost.

MinIO and fake-gcs-server are programs in Go, Azurite is one for Node. ``make stores`` builds or
fetches them once, into a cache outside of the checkout. HDFS is here as well, though it has files
and directories: a small cluster in one process of Java.
"""

from __future__ import annotations

import atexit
import base64
import io
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zlib
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from unittest import SkipTest
from uuid import uuid4

import fsspec

from fsspeckit.testing.rule_server import Answer, Rule, RuleServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from werkzeug.wrappers import Request, Response

__all__ = [
    "AZURITE_VERSION",
    "FAKE_GCS_VERSION",
    "HADOOP_AWS_VERSION",
    "HADOOP_VERSION",
    "MINIO_VERSION",
    "Answer",
    "Answered",
    "Asked",
    "Azurite",
    "FakeGcs",
    "Hdfs",
    "ObjectStore",
    "Rule",
    "as_minio",
    "azurite",
    "azurite_program",
    "fake_gcs",
    "fake_gcs_program",
    "hadoop_aws_jars",
    "hadoop_jars",
    "hdfs",
    "limited_to",
    "longest_chain",
    "minio",
    "minio_program",
    "moto",
    "policy",
]

MINIO_VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
"""The version of the Go module github.com/minio/minio that is built."""

AZURITE_VERSION = "3.35.0"
"""The version of the npm package azurite that is fetched."""

FAKE_GCS_VERSION = "v1.56.1"
"""The version of the Go module github.com/fsouza/fake-gcs-server that is built."""

HADOOP_VERSION = "3.4.2"
"""The version of the jars of Hadoop that are fetched."""

HADOOP_AWS_VERSION = "3.5.0"
"""The version of hadoop-aws whose jars are fetched: that of the Hadoop inside of pyspark."""

KEY, SECRET, REGION = "test-key", "test-secret", "us-east-1"
_LONGEST_START = 30.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that a store was sent."""

    action: str
    """What it asks for, by its name in the documentation of S3."""

    bucket: str
    """Its bucket; empty if it has none."""

    key: str
    """Its key, the first of several, or the prefix of a listing."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A request with the time that it took, in seconds of one clock."""

    asked: Asked
    start: float
    """When it came."""

    end: float
    """When its answer was ready to be sent."""


def longest_chain(requests: Iterable[Answered]) -> list[Answered]:
    """Return the most requests of which each came after the answer to the one before.

    Requests that depend on each other are never at the same time. So this is at least the number
    of round trips that a caller waits for one after the other. It is more only where the caller
    was too slow to send two requests at the same time.
    """
    chain: list[Answered] = []
    for request in sorted(requests, key=attrgetter("end")):
        if not chain or request.start >= chain[-1].end:
            chain.append(request)
    return chain


@dataclass
class ObjectStore:
    """A store that is running."""

    url: str
    """Its endpoint."""

    credentials: Mapping[str, str]
    """Those of its owner, as the filesystem takes them."""

    scheme: ClassVar[str] = "s3"
    """How the URL of an object begins."""

    keeps_versions: ClassVar[bool] = True
    """Whether a bucket can keep what was replaced or deleted."""

    def at(self, bucket: str, path: str) -> str:
        """The URL of a path in a bucket."""
        return f"{self.scheme}://{bucket}/{path}"

    @property
    def options(self) -> dict[str, Any]:
        """What fsspec needs to open it as its owner."""
        return self.opened_with(self.credentials)

    def opened_with(self, credentials: Mapping[str, str]) -> dict[str, Any]:
        """What fsspec needs to open it with some credentials."""
        client = {"endpoint_url": self.url, "region_name": REGION}
        return {**credentials, "client_kwargs": client}

    def client(self, service: str = "s3") -> Any:
        """A client of the SDK, for what fsspec cannot do."""
        return _client(service, self.url, self.credentials["key"], self.credentials["secret"])

    def buckets(self) -> list[str]:
        """The names of all buckets."""
        return [bucket["Name"] for bucket in self.client().list_buckets()["Buckets"]]

    def make_bucket(self, *, versioned: bool = False) -> str:
        """Create a bucket with a name of its own."""
        name = f"lake-{uuid4().hex}"
        client = self.client()
        client.create_bucket(Bucket=name)
        if versioned:
            state = {"Status": "Enabled"}
            client.put_bucket_versioning(Bucket=name, VersioningConfiguration=state)
        return name

    @contextmanager
    def limited(self, bucket: str, *prefixes: str) -> Iterator[Mapping[str, str]]:
        """Give credentials that see nothing of a bucket but what is below some prefixes."""
        granted = self.client("sts").assume_role(
            RoleArn="arn:aws:iam::000000000000:role/limited",
            RoleSessionName="limited",
            Policy=json.dumps(policy(bucket, *prefixes)),
        )["Credentials"]
        yield {
            "key": granted["AccessKeyId"],
            "secret": granted["SecretAccessKey"],
            "token": granted["SessionToken"],
        }


@cache  # to make one takes as long as a merge
def _client(service: str, url: str, key: str, secret: str) -> Any:
    import botocore.session

    return botocore.session.get_session().create_client(
        service,
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
    )


def policy(bucket: str, *prefixes: str) -> dict[str, Any]:
    """The least that a writer needs, as docs/guides/s3.md says."""
    actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": actions,
                "Resource": [f"arn:aws:s3:::{bucket}/{prefix}*" for prefix in prefixes],
            },
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [f"arn:aws:s3:::{bucket}"],
                "Condition": {"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}},
            },
        ],
    }


class Moto(ObjectStore):
    """moto behind a server of this process that writes down requests and follows rules."""

    def __init__(self, *rules: Rule) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._moto = DomainDispatcherApplication(create_backend_app)
        self._writing = threading.Lock()
        self._server = RuleServer(self._answer, *rules)
        super().__init__(self._server.url, {"key": KEY, "secret": SECRET})

    def _answer(self, request: Request) -> Response:
        from werkzeug.wrappers import Response

        environ = {**request.environ, "wsgi.input": io.BytesIO(request.get_data())}
        # moto looks for an object and then stores the new one; S3 does both at once.
        reads = request.method in ("GET", "HEAD")
        with nullcontext() if reads else self._writing:
            return Response.from_app(self._moto, environ, buffered=True)

    def following(self, *rules: Rule) -> AbstractContextManager[None]:
        """Follow more rules for a while; the last one sees a request first."""
        return self._server.following(*rules)

    def recording(self) -> AbstractContextManager[list[Asked]]:
        """Write down the requests of a while."""
        return self._server.noting(asked_by)

    @contextmanager
    def timing(self, pause: float) -> Iterator[list[Answered]]:
        """Write down the requests of a while with their times; each takes ``pause`` seconds more.

        The list is in the order of the answers.
        """
        found: list[Answered] = []

        def timed(request: Request, answer: Answer) -> Response:
            start, asked = time.perf_counter(), asked_by(request)
            time.sleep(pause)
            response = answer()
            found.append(Answered(asked, start, time.perf_counter()))
            return response

        with self.following(timed):
            yield found

    @contextmanager
    def limited(self, bucket: str, *prefixes: str) -> Iterator[Mapping[str, str]]:
        """Limit all credentials for a while."""
        with self.following(limited_to(*prefixes)):
            yield self.credentials

    def stop(self) -> None:
        """Close its port."""
        self._server.stop()


_BUCKET_ACTIONS = {"HEAD": "HeadBucket", "PUT": "CreateBucket", "DELETE": "DeleteBucket"}
_OBJECT_ACTIONS = {"HEAD": "HeadObject", "GET": "GetObject", "DELETE": "DeleteObject"}
_QUESTIONS = {
    "versions": "ListObjectVersions",
    "location": "GetBucketLocation",
    "uploads": "ListMultipartUploads",
}
_UPLOAD_ACTIONS = {
    "GET": "ListParts",
    "POST": "CompleteMultipartUpload",
    "DELETE": "AbortMultipartUpload",
}


def asked_by(request: Request) -> Asked:
    """What a request asks for."""
    bucket, _, key = request.path.lstrip("/").partition("/")
    if not bucket:
        return Asked("ListBuckets" if request.method == "GET" else request.method, "", "")
    if key:
        return Asked(_object_action(request), bucket, key)
    if request.method == "GET":
        found = [name for question, name in _QUESTIONS.items() if question in request.args]
        return Asked((found or ["ListObjectsV2"])[0], bucket, request.args.get("prefix", ""))
    if "delete" in request.args:
        return Asked("DeleteObjects", bucket, _keys_in(request)[0])
    return Asked(_BUCKET_ACTIONS.get(request.method, request.method), bucket, "")


def _object_action(request: Request) -> str:
    copies = "x-amz-copy-source" in request.headers
    if "uploadId" in request.args:
        part = "UploadPartCopy" if copies else "UploadPart"
        return _UPLOAD_ACTIONS.get(request.method, part)
    if request.method == "POST" and "uploads" in request.args:
        return "CreateMultipartUpload"
    return _OBJECT_ACTIONS.get(request.method, "CopyObject" if copies else "PutObject")


def _keys_in(request: Request) -> list[str]:
    """The keys of a request that deletes many objects."""
    return re.findall(r"<Key>([^<]*)</Key>", request.get_data(as_text=True))


_LISTED_TIME = re.compile(r"(<Key>([^<]*)</Key>\s*<LastModified>[^<]*?)\.000Z")
_CONDITION = re.compile(r"<Condition>[^<]*</Condition>")


def as_minio(request: Request, answer: Answer) -> Response:
    """Answer as MinIO does where it differs from AWS.

    A listing has milliseconds, HEAD has seconds; an error 412 does not name the condition. (In a
    bucket that keeps versions both list prefixes below which everything was deleted, as MinIO does
    and AWS does not.)
    """
    response = answer()
    if response.status_code == 412:
        response.set_data(_CONDITION.sub("", response.get_data(as_text=True)))
    if asked_by(request).action == "ListObjectsV2" and response.status_code == 200:
        listing = response.get_data(as_text=True)
        response.set_data(_LISTED_TIME.sub(_with_milliseconds, listing))
    return response


def _with_milliseconds(found: re.Match[str]) -> str:
    return f"{found[1]}.{1 + zlib.crc32(found[0].encode()) % 999:03}Z"


def limited_to(*prefixes: str) -> Rule:
    """Allow what :func:`policy` allows, as AWS does.

    The condition on the prefix of a listing does not hold for other requests. So AWS does not say
    of an object that it is missing: it answers 403 instead of 404.
    """

    def rule(request: Request, answer: Answer) -> Response:
        asked = asked_by(request)
        if asked.action == "DeleteObjects":
            keys = _keys_in(request)
        else:
            allowed = asked.action == "ListObjectsV2" or bool(asked.key)
            keys = [asked.key if allowed else ""]
        if not all(key.startswith(prefixes) for key in keys):
            return refusal(403, "AccessDenied", "Access Denied")
        response = answer()
        if response.status_code == 404 and asked.action in ("HeadObject", "GetObject"):
            return refusal(403, "AccessDenied", "Access Denied")
        return response

    return rule


def refusal(status: int, code: str, message: str) -> Response:
    """An answer that is an error, in the words of S3 and of Azure."""
    from werkzeug.wrappers import Response

    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    headers = {"x-ms-error-code": code}
    return Response(text, status, headers, content_type="application/xml")


def refusal_of_gcs(status: int, code: str, message: str) -> Response:
    """An answer that is an error, in the words of Google Cloud Storage."""
    from werkzeug.wrappers import Response

    reasons = [{"reason": code, "message": message}]
    error = {"code": status, "message": message, "errors": reasons}
    return Response(json.dumps({"error": error}), status, content_type="application/json")


@cache
def moto() -> Moto:
    """Give moto, started once in this process."""
    return _started()


@cache
def moto_as_minio() -> Moto:
    """Give moto with the differences of MinIO, started once in this process."""
    return _started(as_minio)


def _started(*rules: Rule) -> Moto:
    server = Moto(*rules)
    atexit.register(server.stop)
    return server


class Azurite(ObjectStore):  # pragma: no cover - it may not be built
    """Azurite: containers without versions, and no credentials for some prefixes only."""

    scheme = "abfs"
    keeps_versions = False

    def opened_with(self, credentials: Mapping[str, str]) -> dict[str, Any]:
        """What fsspec needs to open it."""
        parts = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": credentials["account_name"],
            "AccountKey": credentials["account_key"],
            "BlobEndpoint": f"{self.url}/{credentials['account_name']}",
        }
        return {"connection_string": "".join(f"{name}={parts[name]};" for name in parts)}

    def buckets(self) -> list[str]:
        """The names of all containers."""
        filesystem = self._filesystem()
        filesystem.invalidate_cache()
        return [name.strip("/") for name in filesystem.ls("", detail=False)]

    def make_bucket(self, *, versioned: bool = False) -> str:
        """Create a container with a name of its own; SkipTest if it must keep versions."""
        if versioned:
            raise SkipTest("Azurite keeps no versions.")
        name = f"lake-{uuid4().hex}"
        self._filesystem().mkdir(name)
        return name

    @contextmanager
    def limited(self, bucket: str, *prefixes: str) -> Iterator[Mapping[str, str]]:
        """There are no such credentials: SkipTest."""
        raise SkipTest("A shared access signature of Azurite is for a container or for one blob.")
        yield {}

    def _filesystem(self) -> Any:
        return fsspec.filesystem(self.scheme, **self.options)


class FakeGcs(ObjectStore):  # pragma: no cover - it may not be built
    """fake-gcs-server, which accepts all credentials."""

    scheme = "gs"

    def opened_with(self, credentials: Mapping[str, str]) -> dict[str, Any]:
        """What fsspec needs to open it."""
        return {"endpoint_url": self.url, "project": "test", **credentials}

    def buckets(self) -> list[str]:
        """The names of all buckets."""
        with urllib.request.urlopen(f"{self.url}/storage/v1/b?project=test") as answer:
            return [bucket["name"] for bucket in json.load(answer).get("items", [])]

    def make_bucket(self, *, versioned: bool = False) -> str:
        """Create a bucket with a name of its own."""
        name = f"lake-{uuid4().hex}"
        wanted = {"name": name, "versioning": {"enabled": versioned}}
        request = urllib.request.Request(
            f"{self.url}/storage/v1/b?project=test",
            json.dumps(wanted).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request):
            return name

    @contextmanager
    def limited(self, bucket: str, *prefixes: str) -> Iterator[Mapping[str, str]]:
        """There are no such credentials: SkipTest."""
        raise SkipTest("fake-gcs-server accepts all credentials.")
        yield {}


class Hdfs(ObjectStore):  # pragma: no cover - it may not be built
    """HDFS with one data node; a bucket is a directory."""

    scheme = "hdfs"
    keeps_versions = False

    def at(self, bucket: str, path: str) -> str:
        """The URL of a path in a directory."""
        return f"{self.url}/{bucket}/{path}"

    def opened_with(self, credentials: Mapping[str, str]) -> dict[str, Any]:
        """Its URL says all that fsspec needs to open it."""
        return {}

    def make_bucket(self, *, versioned: bool = False) -> str:
        """Name a directory; SkipTest if it must keep versions."""
        if versioned:
            raise SkipTest("HDFS keeps no versions.")
        return f"lake-{uuid4().hex}"


def _cached(name: str) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "fsspeckit" / name


def minio_program() -> Path:
    """Where the program is, or will be, that ``make minio`` builds."""
    return _cached(f"minio-{MINIO_VERSION}")


def azurite_program() -> Path:
    """Where the npm package is, or will be, that ``make azurite`` fetches."""
    return _cached(f"azurite-{AZURITE_VERSION}")


def fake_gcs_program() -> Path:
    """Where the program is, or will be, that ``make fake-gcs`` builds."""
    return _cached(f"fake-gcs-server-{FAKE_GCS_VERSION}")


def hadoop_jars() -> Path:
    """Where the jars are, or will be, that ``make hdfs`` fetches."""
    return _cached(f"hadoop-{HADOOP_VERSION}")


def hadoop_aws_jars() -> Path:
    """Where the jars are, or will be, that ``make hadoop-aws`` fetches."""
    return _cached(f"hadoop-aws-{HADOOP_AWS_VERSION}")


def memory_disk() -> str | None:
    """A disk in memory, where fsync costs nothing; None where there is none."""
    path = "/dev/shm"
    return path if os.path.isdir(path) and os.access(path, os.W_OK) else None


@cache
def minio() -> ObjectStore | None:  # pragma: no cover - it may not be built
    """Give MinIO, started once for this process; None where it is not built."""
    program = minio_program()
    if not program.exists():
        return None
    directory, port = _directory("minio-"), _free_port()
    owner = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"}
    command = [str(program), "server", "--quiet", "--address", f"127.0.0.1:{port}", directory]
    url = f"http://127.0.0.1:{port}"
    _serve("MinIO", command, directory, f"{url}/minio/health/ready", owner)
    return ObjectStore(url, {"key": KEY, "secret": SECRET})


@cache
def azurite() -> Azurite | None:  # pragma: no cover - it may not be built
    """Give Azurite, started once for this process; None where it is not fetched."""
    program = azurite_program() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not program.exists() or shutil.which("node") is None:
        return None
    directory, port = _directory("azurite-"), _free_port()
    account = {"account_name": "lake", "account_key": base64.b64encode(SECRET.encode()).decode()}
    command = [
        *("node", str(program), "--inMemoryPersistence"),
        *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
        *("--silent", "--skipApiVersionCheck", "--disableTelemetry"),
    ]
    url = f"http://127.0.0.1:{port}"
    accounts = {"AZURITE_ACCOUNTS": ":".join(account.values())}
    _serve("Azurite", command, directory, url, accounts)
    return Azurite(url, account)


@cache
def fake_gcs() -> FakeGcs | None:  # pragma: no cover - it may not be built
    """Give fake-gcs-server, started once for this process; None where it is not built."""
    program = fake_gcs_program()
    if not program.exists():
        return None
    # It has HTTP alone; gcsfs would ask a bucket's kind with gRPC, and wait for an answer.
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    directory, port = _directory("fake-gcs-"), _free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        *(str(program), "-backend", "memory", "-scheme", "http", "-log-level", "error"),
        *("-host", "127.0.0.1", "-port", str(port)),
        *("-external-url", url, "-public-host", f"127.0.0.1:{port}"),
    ]
    _serve("fake-gcs-server", command, directory, f"{url}/_internal/healthcheck", {})
    return FakeGcs(url, {"token": "anon"})


@cache
def hdfs() -> Hdfs | None:  # pragma: no cover - it may not be built
    """Give HDFS, started once for this process; None where it is not fetched."""
    jars = hadoop_jars()
    if not jars.exists() or shutil.which("java") is None:
        return None
    directory, port, web = _directory("hdfs-"), _free_port(), _free_port()
    started = Path(directory) / "started.json"
    command = [
        *("java", "-Xmx512m", f"-Dtest.build.data={directory}", "-cp", f"{jars}/*"),
        *("org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-nomr", "-format"),
        *("-nnport", str(port), "-nnhttpport", str(web), "-writeDetails", str(started)),
    ]
    _serve("HDFS", command, directory, f"http://127.0.0.1:{web}/", {})
    deadline = time.monotonic() + _LONGEST_START
    while not started.exists():  # the data node takes longer than the pages of the name node
        if time.monotonic() > deadline:
            raise RuntimeError("HDFS has no data node.")
        time.sleep(0.1)
    return Hdfs(f"hdfs://127.0.0.1:{port}", {})


def _directory(prefix: str) -> str:  # pragma: no cover - it may not be built
    """Make a directory for what a server stores, until this process ends."""
    directory = tempfile.mkdtemp(prefix=prefix, dir=memory_disk())
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _free_port() -> int:  # pragma: no cover - it may not be built
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _serve(
    name: str, command: list[str], directory: str, url: str, environment: Mapping[str, str]
) -> None:  # pragma: no cover - it may not be built
    """Start a server, wait until it answers at a URL, and end it with this process."""
    log = f"{directory}.log"
    with open(log, "wb") as output:
        server = subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    atexit.register(_end, server, log)
    deadline = time.monotonic() + _LONGEST_START
    while time.monotonic() < deadline and server.poll() is None:
        if _answers(url):
            return
        time.sleep(0.1)
    text = Path(log).read_text(errors="replace")
    raise RuntimeError(f"{name} does not answer at {url}: {text}")


def _answers(url: str) -> bool:  # pragma: no cover - it may not be built
    """Whether a server answers at all; one that refuses a question without credentials does."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return error.code < 500
    except OSError:
        return False


def _end(
    server: subprocess.Popen[bytes], log: str
) -> None:  # pragma: no cover - it may not be built
    server.terminate()
    server.wait()
    Path(log).unlink(missing_ok=True)
