"""Reads of many objects on S3 with obstore and without: MinIO, each answer of which comes later."""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq

from benchmarks.bench_object_store import ROUND_TRIP_SECONDS, workloads
from benchmarks.harness import median
from fsspeckit.testing.object_stores import minio

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from benchmarks.bench_object_store import Workload

_CASES = {
    "s3fs": "import sys; sys.modules['obstore'] = None\n",  # as if it was not installed
    "obstore": "",
}

_PROGRAM = """
import json, sys, time
import pyarrow.parquet as pq
from fsspeckit.core.planning import read_footers
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.storage import open_storage, list_files
given = json.loads(sys.argv[1])
source = pq.read_table(given["source"])
storage = open_storage(given["path"], storage_options=given["options"])
files = list_files(storage.root).files
print("ready", flush=True)
input()
start, worked = time.perf_counter(), time.process_time()
if given["merges"]:
    with PyarrowDatasetIO(storage_options=given["options"]) as engine:
        assert engine.merge(source, given["path"], "upsert", ["id"]).updated == len(source)
else:
    assert not any(footer.error for footer in read_footers(storage.root, files, ["id"]))
print(time.perf_counter() - start, time.process_time() - worked, len(files), flush=True)
"""


async def _pass_on(port: int, sender: Connection) -> None:
    """Pass connections on to a port; what it answers comes later by the time of a round trip."""
    tasks: set[asyncio.Task[Any] | None] = set()  # asyncio itself does not keep them

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        upstream, target = await asyncio.open_connection("127.0.0.1", port)
        later = partial(asyncio.get_running_loop().call_later, ROUND_TRIP_SECONDS)
        answers = asyncio.create_task(_copy(upstream, partial(later, writer.write)))
        await _copy(reader, target.write)
        target.close()
        await answers
        later(writer.close)
        tasks.discard(asyncio.current_task())

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    sender.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, write: Any) -> None:
    while data := await reader.read(1 << 20):
        write(data)


def _serve(port: int, sender: Connection) -> None:
    asyncio.run(_pass_on(port, sender))


def _run(case: str, given: dict[str, Any]) -> tuple[float, float]:
    """Return the seconds of a process of its own, and those of them on a processor."""
    with subprocess.Popen(
        [sys.executable, "-c", _CASES[case] + _PROGRAM, json.dumps(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("a reader could not begin.")
        process.stdin.write("go\n")
        process.stdin.flush()
        seconds, worked, _ = process.stdout.readline().split()
    return float(seconds), float(worked)


def _fill(client: Any, path: str, work: Workload) -> None:
    bucket, _, prefix = path.partition("/")
    for number in range(work.files):
        with tempfile.TemporaryFile() as file:
            pq.write_table(work.table(number), file, row_group_size=250)
            file.seek(0)
            key = f"{prefix}/part-{number:05}.parquet"
            client.put_object(Bucket=bucket, Key=key, Body=file.read())


def main() -> None:
    """Print medians of reading all footers, and of a first merge into 20 of the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7, help="of reading all footers")
    parser.add_argument("--merges", type=int, default=5, help="with each client")
    arguments = parser.parse_args()
    store = minio()
    if store is None:
        raise SystemExit("MinIO is not built: make minio")
    receiver, sender = multiprocessing.Pipe(duplex=False)
    port = urlsplit(store.url).port
    proxy = multiprocessing.get_context("spawn").Process(target=_serve, args=(port, sender))
    proxy.start()
    options = store.options
    options["client_kwargs"]["endpoint_url"] = f"http://127.0.0.1:{receiver.recv()}"
    work = workloads(100_000, arguments.files)[-1]
    bucket, client = store.make_bucket(), store.client()
    found: dict[tuple[bool, str], list[tuple[float, float]]] = {}
    try:
        with tempfile.TemporaryDirectory() as place:
            source = Path(place) / "source.parquet"
            pq.write_table(work.source(), source)
            given = {"options": options, "source": str(source)}
            for number in range(1 + len(_CASES) * arguments.merges):
                merges = number > 0
                path = f"{bucket}/lake-{number}/data"
                _fill(client, path, work)
                rounds = 1 if merges else len(_CASES) * arguments.rounds
                for turn in range(rounds):
                    case = list(_CASES)[(number + turn) % len(_CASES)]
                    asked = {**given, "path": f"s3://{path}", "merges": merges}
                    found.setdefault((merges, case), []).append(_run(case, asked))
    finally:
        proxy.terminate()
        proxy.join()
    print("| what | client | median | fastest | median on a processor |")
    print("| --- | --- | ---: | ---: | ---: |")
    for (merges, case), pairs in sorted(found.items()):
        what = work.title if merges else f"footers of {work.files} files"
        seconds, worked = map(list, zip(*pairs, strict=True))
        cells = median(seconds), min(seconds), median(worked)
        print(f"| {what} | {case} |", *(f"{cell:.2f} s |" for cell in cells))


if __name__ == "__main__":
    main()
