"""Verification: healthy datasets have no finding, and every kind of damage has its own."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.parquet import BYTES, Spec, decode, encode
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.testing.conformance.merging import EVERY_STORE, three_files
from fsspeckit.testing.conformance.stores import data_files
from fsspeckit.testing.conformance.target import Target, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspeckit.datasets.verification import VerifyReport

__all__ = ["VerifyTests", "with_statistics"]

_FOOTER: Spec = {4: [{1: [{3: {12: {1: BYTES, 2: BYTES, 5: BYTES, 6: BYTES}}}]}]}


def with_statistics(data: bytes, column: int, change: Callable[[dict[int, Any]], None]) -> bytes:
    """Return a file in which the statistics of a column of the first row group are others."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer, _ = decode(data[start:-8], _FOOTER)
    change(footer.values[4][0].values[1][column].values[3].values[12].values)
    encoded = encode(footer)
    return data[:start] + encoded + struct.pack("<I", len(encoded)) + b"PAR1"


def _set(number: int, value: bytes) -> Callable[[dict[int, Any]], None]:
    def change(statistics: dict[int, Any]) -> None:
        statistics[number] = value

    return change


class VerifyTests:
    """What `verify` finds on every engine."""

    def _verify(self, target: Target, key_columns: Any = None, **options: Any) -> VerifyReport:
        """Verify, and check that nothing was changed."""
        before = target.store.tree()
        report: VerifyReport = target.io.verify(target.store.path, key_columns, **options)
        assert target.store.tree() == before
        assert target.store.leftovers() == []
        assert json.loads(json.dumps(report.to_dict()))["ok"] == report.ok
        assert all(str(finding) in str(report) for finding in report.findings[:20])
        return report

    @EVERY_STORE
    def test_nothing_is_wrong_with_a_healthy_dataset(self, target: Target) -> None:
        three_files(target)
        target.merge(numbers(2, 8, v="new"))
        report = self._verify(target, "id")
        assert report.findings == ()
        assert (report.ok, report.commit) == (True, 1)
        assert report.rows == sum(target.rows(numbers().schema).values())
        assert report.files == len(data_files(target.store.tree()))

    def test_nothing_is_wrong_after_merges_with_all_that_is_kept(self, target: Target) -> None:
        target.write("part-1.parquet", numbers(*range(200)), row_group_size=50)
        options: dict[str, Any] = {"key_index": True, "bloom_columns": ["v"]}
        target.merge(numbers(3, 300, v="new"), **options)
        target.io.delete(numbers(7, 301), target.store.path, ["id"])
        assert self._verify(target, ["id"]).findings == ()

    def test_a_wrong_bound(self, target: Target) -> None:
        three_files(target)
        name = data_files(target.store.tree())[0]
        data = target.store.tree()[name].data
        high = struct.pack("<q", 0)
        target.store.put(name, with_statistics(data, 0, _set(5, high)))
        (finding,) = self._verify(target).findings
        assert (finding.severity, finding.file) == ("error", name)
        assert (finding.row_group, finding.column) == (0, "id")
        assert "readers that prune by it lose rows" in finding.what

    def test_a_changed_page(self, target: Target) -> None:
        options: dict[str, Any] = {"write_page_checksum": True, "compression": "none"}
        target.write("part-1.parquet", numbers(*range(50)), use_dictionary=False, **options)
        data = bytearray(target.store.tree()["part-1.parquet"].data)
        data[200] ^= 1
        target.store.put("part-1.parquet", bytes(data))
        (finding,) = self._verify(target).findings
        assert "the checksum of page 0 does not fit its bytes" in finding.what
        assert self._verify(target, checksums=False).notes

    def test_garbage(self, target: Target) -> None:
        three_files(target)
        target.store.put("garbage.parquet", b"PAR1" + bytes(100) + b"PAR1")
        target.store.put("empty.parquet", b"")
        report = self._verify(target, ["id"])
        assert {finding.file for finding in report.errors} == {"garbage.parquet", "empty.parquet"}

    def test_keys_that_occur_twice(self, target: Target) -> None:
        target.write("part-1.parquet", numbers(1, 2, None))
        target.write("part-2.parquet", numbers(2, None, 3))
        (finding,) = self._verify(target, "id").findings
        assert "1 keys of id occur more than once, in 2 rows, such as 2" in finding.what
        (finding,) = self._verify(target, "id", null_keys="match").findings
        assert "2 keys of id" in finding.what
        assert self._verify(target, ["id", "v"]).errors
        assert self._verify(target).ok

    def test_arguments_are_checked(self, target: Target) -> None:
        three_files(target)
        with pytest.raises(InvalidArgumentError, match="'nope'"):
            self._verify(target, ["nope"])
        with pytest.raises(InvalidArgumentError, match="null_keys"):
            self._verify(target, ["id"], null_keys="error")
        with pytest.raises(InvalidArgumentError, match="checksums must be True or False"):
            self._verify(target, ["id"], checksums="no")
        with pytest.raises(FileNotFoundError):
            target.io.verify(f"{target.store.path}-nowhere")

    def test_files_that_differ(self, target: Target) -> None:
        target.write("part-1.parquet", numbers(1))
        target.write("part-2.parquet", numbers(2))
        target.write("part-3.parquet", pa.table({"id": pa.array([3], pa.int32())}))
        findings = self._verify(target).errors
        assert {(finding.file, finding.column) for finding in findings} == {
            ("part-3.parquet", "id"),
            ("part-3.parquet", "v"),
        }

    def test_partitions_that_readers_disagree_about(self, target: Target) -> None:
        target.write("p=1/part-1.parquet", numbers(1))
        target.write("p=01/part-2.parquet", numbers(2))
        (finding,) = self._verify(target).findings
        assert finding.severity == "warning"
        assert "'p=01' and 'p=1' are the same partition" in finding.what
        stored = numbers(3).append_column("p", pa.array([2], pa.int64()))
        target.store.filesystem.rm(target.store.at("p=01"), recursive=True)
        target.write("p=1/part-3.parquet", stored)
        report = self._verify(target)
        found = [one for one in report.errors if "other values of 'p' than its path" in one.what]
        assert [one.file for one in found] == ["p=1/part-3.parquet"]

    def test_hidden_files_that_some_readers_read(self, target: Target) -> None:
        three_files(target)
        sink = pa.BufferOutputStream()
        pq.write_table(numbers(9), sink)
        target.store.put("_temporary/0/part-1.parquet", sink.getvalue().to_pybytes())
        (finding,) = self._verify(target).findings
        assert (finding.severity, finding.file) == ("error", "_temporary/0/part-1.parquet")

    def test_a_file_that_somebody_deleted_or_brought_back(self, target: Target) -> None:
        three_files(target)
        before = target.store.tree()
        target.merge(numbers(1, v="new"))
        (new,) = set(target.store.tree()) - set(before)
        data = target.store.tree()[new].data
        target.store.filesystem.rm(target.store.at(new))
        (finding,) = self._verify(target).findings
        assert (finding.severity, finding.file) == ("error", new)
        assert "no commit has removed it, and it is not there" in finding.what
        target.store.put(new, data + b"")
        assert self._verify(target).ok
