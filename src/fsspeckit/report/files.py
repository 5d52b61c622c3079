"""Files of a report: their numbers, names, sizes and partitions, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fsspeckit.datasets.inspection import Survey


class FileNumbers:
    """Numbers files: first those of the dataset in their order, then others as they are named."""

    def __init__(self, present: Sequence[str], max_gone: int) -> None:
        self._numbers = {path: number for number, path in enumerate(present)}
        self._present = len(self._numbers)
        self._max = self._present + max_gone

    def number_of(self, path: str) -> int | None:
        """Return the number of a file by its path below the root; None if there are too many."""
        number = self._numbers.get(path)
        if number is None and len(self._numbers) < self._max:
            number = self._numbers[path] = len(self._numbers)
        return number

    def runs_of(self, paths: Iterable[str]) -> list[int] | None:
        """Return the numbers of files as runs; None if one cannot be numbered."""
        numbers = [self.number_of(path) for path in paths]
        if None in numbers:
            return None
        return as_runs(number for number in numbers if number is not None)

    @property
    def gone(self) -> list[str]:
        """The files that are not in the dataset, in the order of their numbers."""
        return list(self._numbers)[self._present :]


def as_runs(numbers: Iterable[int]) -> list[int]:
    """Return numbers as start, length, start, length, and so on.

    Examples:
        >>> as_runs([7, 3, 4, 5])
        [3, 3, 7, 1]
    """
    runs: list[int] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs += [number, 1]
    return runs


def file_names(paths: Iterable[str]) -> dict[str, Any]:
    """Return names of files, each directory once."""
    directories: dict[str, int] = {}
    directory, names = [], []
    for path in paths:
        parent, _, name = path.rpartition("/")
        directory.append(directories.setdefault(parent, len(directories)))
        names.append(name)
    return {"directories": list(directories), "directory": directory, "name": names}


def file_columns(
    surveyed: Survey, paths: Sequence[str], commits: Mapping[str, int]
) -> dict[str, Any]:
    """Return the files of a dataset.

    Args:
        surveyed: What was read of them.
        paths: Their paths below the root, in the same order.
        commits: Which commit has added a file, by path.
    """
    target = surveyed.target
    names = [part.name for part in target.partition_columns]
    writers: dict[str, int] = {}
    footers = target.footers
    values: dict[int, list[str | None]] = {}
    found = file_names(paths)
    for directory, texts in zip(found["directory"], target.partition_texts, strict=True):
        values.setdefault(directory, [texts.get(name) for name in names])
    return {
        **found,
        "partitions": [values[number] for number in range(len(found["directories"]))],
        "rows": [None if footer.error else footer.rows for footer in footers],
        "bytes": [footer.file.size for footer in footers],
        "groups": [None if footer.error else len(footer.row_groups) for footer in footers],
        "commit": [commits.get(path) for path in paths],
        "writer": [
            writers.setdefault(footer.created_by, len(writers)) if footer.created_by else None
            for footer in footers
        ],
        "writers": list(writers),
        "errors": {
            str(number): footer.error for number, footer in enumerate(footers) if footer.error
        },
    }
