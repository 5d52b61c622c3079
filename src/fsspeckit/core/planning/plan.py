"""Plans: which files a merge must touch, and why.

A plan is made from paths and footers alone and writes nothing. Its candidates are an upper bound:
the key scan of an engine then confirms which of them are affected.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from fsspeckit.core.arrow_compat import numbered_columns
from fsspeckit.core.keys import as_names, canonical_keys, keys_table
from fsspeckit.core.merge import DEDUPLICATE_TARGET, preposition
from fsspeckit.core.planning.condition_pruning import prune_by_condition
from fsspeckit.core.planning.pruning import Evidence, Verdict, prune
from fsspeckit.core.planning.target import read_target
from fsspeckit.display import (
    MAX_LINES,
    Card,
    Displayed,
    FileGroup,
    Lane,
    Listing,
    Mark,
    Paged,
    counted,
    lanes_by_partition,
    plain,
    size,
    tone_of,
)
from fsspeckit.storage import check_mergeable, list_files, open_root

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fsspeckit.core.conditions import Condition
    from fsspeckit.core.keys import SourceKeys
    from fsspeckit.core.matching import StoredKeyIndex
    from fsspeckit.core.planning.condition_pruning import ConditionVerdict
    from fsspeckit.core.planning.pruning import EvidenceKind, PartitionValues
    from fsspeckit.core.planning.target import Target
    from fsspeckit.core.schema_changes import ColumnChange, Evolution
    from fsspeckit.display import Tone
    from fsspeckit.storage import Snapshot

Decision = Literal["pruned", "guarded", "candidate", "affected"]


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What is planned for one data file."""

    path: str
    """The file, spelled like the path of the dataset."""

    rows: int
    """Its rows."""

    bytes: int
    """Its size."""

    decision: Decision
    """``pruned``: proved to contain no source key. ``guarded``: in a partition the source does not
    write to; scanned for keys that would move, never rewritten. ``candidate``: may contain a source
    key. ``affected``: contains one, or cannot be read."""

    evidence: Evidence
    """What decided."""

    row_groups: tuple[int, ...] = ()
    """The row groups that may contain a source key."""

    row_group_count: int = 0
    """The number of its row groups."""

    partition_values: dict[str, str | None] = field(default_factory=dict)
    """The values of the partition columns, as text from the path."""

    @property
    def reason(self) -> PlanReason:
        """The decision and the kind of its reason, for this file alone."""
        return PlanReason(self.decision, self.evidence.kind, 1, self.rows, self.bytes)

    @property
    def why(self) -> str:
        """What decided, in words."""
        unproved = _UNPROVED.get(self.decision) if self.evidence.kind == "none" else None
        return unproved or str(self.evidence)

    def __str__(self) -> str:
        about = f"{self.rows:,} rows, {self.bytes:,} bytes"
        if self.row_groups:
            about += f"; {len(self.row_groups)} of {self.row_group_count} row groups"
        return f"{self.decision:<9} {self.path} ({about}): {self.why}"


_UNPROVED: dict[Decision, str] = {
    "candidate": "nothing rules the keys out",
    "guarded": "in a partition the source does not write to, where a key may be already",
}


@dataclass(frozen=True, slots=True)
class PlanReason:
    """The files of a plan with the same decision for the same kind of reason, counted."""

    decision: Decision
    """As in :attr:`FilePlan.decision`."""

    evidence: EvidenceKind
    """What decided, as in :attr:`FilePlan.evidence`."""

    files: int
    """The number of files."""

    rows: int
    """Their rows."""

    bytes: int
    """Their size."""

    @property
    def label(self) -> str:
        """The decision and its reason in words."""
        if self.decision == "pruned":
            return "pruned" if self.evidence == "none" else f"pruned by {self.evidence}"
        if self.decision == "affected" and self.evidence == "schema":
            return "affected: columns change"
        if self.decision == "affected" and self.evidence not in ("key scan", "row scan", "none"):
            unreadable = self.evidence == "unreadable"
            return "affected: unreadable" if unreadable else "affected: rows are deleted"
        return self.decision

    @property
    def tone(self) -> Tone:
        """What the files mean, for their colour."""
        if self.decision != "pruned":
            return "changed" if self.decision == "affected" else "open"
        return tone_of(self.evidence)

    def __str__(self) -> str:
        return f"{self.files:,} {self.label} ({self.rows:,} rows, {self.bytes:,} bytes)"


@dataclass(frozen=True)
class MergePlan(Paged, Displayed):
    """What a merge would do, file by file, and why.

    ``str()`` stays short: of a large plan, files with the same reason share a line.
    :meth:`explain` has a line for each file.
    """

    path: str
    """The dataset, as the caller spelled it."""

    strategy: str
    """The strategy."""

    key_columns: tuple[str, ...]
    """The key columns."""

    partition_columns: tuple[str, ...]
    """The partition columns of the dataset."""

    source_rows: int
    """Source rows that take part."""

    files: tuple[FilePlan, ...]
    """Every data file, with what is planned for it and why."""

    trusted_partitions: bool = False
    """Whether files of other partitions were left out without proof, at the caller's request."""

    snapshot: Snapshot | None = None
    """The state of the dataset the plan was made on."""

    notes: tuple[str, ...] = ()
    """What else to know before it is executed, such as a transaction that is committed."""

    moves_rows: bool = False
    """Whether rows go to the partition of their source row, at the caller's request."""

    where: str | None = None
    """The condition whose rows are deleted, if it is not keys that decide."""

    schema_changes: tuple[ColumnChange, ...] = ()
    """What becomes of the columns of the dataset."""

    origin: Any = field(default=None, repr=False, compare=False)
    """What execution needs, its source and options; None for a plan that cannot be executed."""

    @property
    def target_rows(self) -> int:
        """The rows of all files."""
        return sum(file.rows for file in self.files)

    def with_decision(self, decision: Decision) -> tuple[FilePlan, ...]:
        """Return the files with this decision."""
        return tuple(file for file in self.files if file.decision == decision)

    def confirmed(self, scanned: Mapping[str, Collection[int]]) -> MergePlan:
        """Return the plan after a key scan, or after the rows were compared with a condition.

        Args:
            scanned: For each candidate or guarded file by path, the row groups that contain a key,
                a selected row, or a duplicate that goes.
        """
        wanted = "source key" if self.where is None else "row that is selected"
        if self.strategy == DEDUPLICATE_TARGET:
            wanted = "row that goes"
        proof = Evidence("key scan" if self.where is None else "row scan")
        files = (_confirmed(file, scanned, proof, wanted) for file in self.files)
        return replace(self, files=tuple(files))

    def deleting(self) -> MergePlan:
        """Return the plan for a merge that deletes: every file with rows is affected."""
        files = (replace(file, decision="affected") if file.rows else file for file in self.files)
        return replace(self, files=tuple(files))

    def evolving(self, evolution: Evolution, wanted: Collection[str]) -> MergePlan:
        """Return the plan for a merge that also changes the schema.

        Args:
            evolution: The columns that all files get.
            wanted: The files, by path, that do not have them.
        """
        proof = Evidence("schema", detail=str(evolution))
        files = (
            replace(file, decision="affected", evidence=proof)
            if file.path in wanted and file.decision != "affected"
            else file
            for file in self.files
        )
        return replace(self, files=tuple(files), schema_changes=evolution.changes)

    def summary(self) -> tuple[PlanReason, ...]:
        """Return the files by decision and kind of evidence, those to be rewritten first.

        Examples:
            >>> import pyarrow as pa
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io = PyarrowDatasetIO()
            >>> rows = pa.table({"id": range(8)})
            >>> _ = io.write_dataset(rows, "memory://doc-summary", max_rows_per_file=2)
            >>> plan = io.plan_merge(rows.slice(5, 1), "memory://doc-summary", "update", ["id"])
            >>> [(reason.files, reason.label) for reason in plan.summary()]
            [(1, 'affected'), (3, 'pruned by statistics')]
        """
        return _reasons(self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as values that ``json`` can write, without its source and snapshot.

        Examples:
            >>> import pyarrow as pa
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> rows = pa.table({"id": [1, 2]})
            >>> plan = PyarrowDatasetIO().plan_merge(rows, "memory://doc-dict", "upsert", "id")
            >>> plan.to_dict()["key_columns"], plan.to_dict()["affected_files"]
            (['id'], 0)
        """
        affected = self.with_decision("affected")
        return {
            "path": self.path,
            "strategy": self.strategy,
            "key_columns": list(self.key_columns),
            "where": self.where,
            "partition_columns": list(self.partition_columns),
            "source_rows": self.source_rows,
            "target_rows": self.target_rows,
            "target_bytes": sum(file.bytes for file in self.files),
            "affected_files": len(affected),
            "affected_bytes": sum(file.bytes for file in affected),
            "trusted_partitions": self.trusted_partitions,
            "schema_changes": plain(self.schema_changes),
            "notes": list(self.notes),
            "files": plain(self.files),
        }

    def explain(self) -> str:
        """Return the whole plan as text, with a line for each file."""
        return "\n".join([*self._head(), *map(self._line, self.files)])

    def __str__(self) -> str:
        if len(self.files) <= MAX_LINES:
            return self.explain()
        ordered = self._ordered()
        rest = _reasons(ordered[MAX_LINES:])
        lines = [*self._head(), *map(self._line, ordered[:MAX_LINES])]
        return "\n".join([*lines, *(f"  and {reason}" for reason in rest)])

    def _head(self) -> list[str]:
        counts = Counter(file.decision for file in self.files)
        decided = ", ".join(f"{counts[name]:,} {name}" for name in _DECISIONS if counts[name])
        lines = [self._title(), f"{counted(len(self.files), 'file')}: {decided or 'none'}"]
        return [*lines, *self._all_notes()]

    def _all_notes(self) -> tuple[str, ...]:
        changes = tuple(f"column {change}" for change in self.schema_changes)
        return ((_TRUSTED,) if self.trusted_partitions else ()) + changes + self.notes

    def _title(self) -> str:
        if self.strategy == DEDUPLICATE_TARGET:
            return f"deduplicate {self.path!r} by {', '.join(self.key_columns) or 'every column'}"
        if self.where is not None:
            return f"{self.strategy} from {self.path!r} where {self.where}"
        if self.strategy == EVOLVE:
            return f"{self.strategy} {self.path!r}"
        keys = ", ".join(self.key_columns)
        rows = counted(self.source_rows, "row")
        where = f"{preposition(self.strategy)} {self.path!r}"
        return f"{self.strategy} of {rows} {where} by {keys}"

    def _line(self, file: FilePlan) -> str:
        return f"  {replace(file, path=self._short(file))}"

    def _short(self, file: FilePlan) -> str:
        return file.path.removeprefix(self.path.rstrip("/") + "/")

    def _ordered(self) -> list[FilePlan]:
        """Return the files, those to be rewritten first."""
        return sorted(self.files, key=lambda file: _DECISIONS.index(file.decision))

    def _card(self) -> Card:
        def line(file: FilePlan) -> tuple[str, ...]:
            groups = f"{len(file.row_groups)} of {file.row_group_count}"
            rows, bytes_ = f"{file.rows:,}", size(file.bytes)
            return self._short(file), file.decision, rows, bytes_, groups, file.why

        columns = ("file", "decision", "rows", "size", "row groups", "why")
        return Card(
            self._title(),
            tuple(FileGroup(r.label, r.tone, r.files, r.bytes) for r in self.summary()),
            Listing.of(columns, self._ordered(), line),
            self._all_notes(),
        )

    def _lanes(self) -> tuple[Lane, ...]:
        return lanes_by_partition(
            Mark(self._short(file), file.reason.tone, file.bytes, label=file.reason.label)
            for file in self.files
        )


EVOLVE = "evolve"
"""The strategy of a plan that changes the schema and no row."""

_TRUSTED = "other partitions were not checked: trust_partitions=True"
_DECISIONS: tuple[Decision, ...] = ("affected", "candidate", "guarded", "pruned")


def _reasons(files: Sequence[FilePlan]) -> tuple[PlanReason, ...]:
    found: dict[tuple[Decision, EvidenceKind], list[FilePlan]] = {}
    for file in files:
        found.setdefault((file.decision, file.evidence.kind), []).append(file)
    reasons = [
        PlanReason(*key, len(some), sum(f.rows for f in some), sum(f.bytes for f in some))
        for key, some in found.items()
    ]
    return tuple(
        sorted(reasons, key=lambda one: (_DECISIONS.index(one.decision), -one.files, one.evidence))
    )


def _confirmed(
    file: FilePlan, scanned: Mapping[str, Collection[int]], proof: Evidence, wanted: str
) -> FilePlan:
    if file.path not in scanned:
        return file
    groups = tuple(sorted(scanned[file.path]))
    if groups:
        return replace(file, decision="affected", row_groups=groups, evidence=proof)
    nothing = replace(proof, detail=f"no {wanted} found")
    return replace(file, decision="pruned", row_groups=(), evidence=nothing)


def plan_files(
    target: Target,
    source: SourceKeys,
    strategy: str,
    *,
    trust_partitions: bool = False,
    moves_rows: bool = False,
    snapshot: Snapshot | None = None,
    index: StoredKeyIndex | None = None,
) -> MergePlan:
    """Decide about every file of a target.

    With ``trust_partitions``, the caller promises that no key is in another partition than the
    source says, and other partitions are not guarded. If it ``moves_rows`` they are not guarded
    either: their files may be rewritten.
    """
    columns = list(target.key_columns)
    if trust_partitions:
        # A key is then searched only in its own partition.
        columns += [part for part in target.partition_columns if part not in columns]
    verdicts = prune(
        target.root,
        target.footers,
        source.keys,
        columns,
        target.partitions,
        is_complete=source.is_complete,
        index=index,
    )
    no_file = [False] * len(target.footers)
    elsewhere = no_file if moves_rows else _in_other_partitions(target, source)
    return MergePlan(
        target.root.to_user_path(target.root.path),
        strategy,
        tuple(column.name for column in target.key_columns),
        tuple(column.name for column in target.partition_columns),
        source.count,
        tuple(
            _decide(target, number, verdict, elsewhere[number])
            for number, verdict in enumerate(verdicts)
        ),
        trust_partitions and not target.key_holds_partitions,
        snapshot,
        moves_rows=moves_rows,
    )


def plan_evolution(target: Target, evolution: Evolution, snapshot: Snapshot) -> MergePlan:
    """Decide which files must be rewritten so that all have the columns of an evolution."""
    has_them = Verdict((), Evidence("schema", detail="it has these columns already"))
    draft = MergePlan(
        target.root.to_user_path(target.root.path),
        EVOLVE,
        (),
        tuple(column.name for column in target.partition_columns),
        0,
        tuple(_decide(target, n, has_them, elsewhere=False) for n in range(len(target.footers))),
        snapshot=snapshot,
    )
    wanted = (f.file.path for f in target.footers if evolution.is_needed(f.schema))
    return draft.evolving(evolution, set(map(target.root.to_user_path, wanted)))


def plan_condition(
    target: Target, condition: Condition, snapshot: Snapshot
) -> tuple[MergePlan, list[ConditionVerdict]]:
    """Decide which files may have rows that a condition selects, and in which row groups."""
    verdicts = prune_by_condition(target.root, target.footers, condition, target.partitions)
    in_paths = {*condition.columns} <= {*target.partitions}
    proof = Evidence("partition" if in_paths else "statistics", condition.columns)
    plan = MergePlan(
        target.root.to_user_path(target.root.path),
        "delete",
        (),
        tuple(column.name for column in target.partition_columns),
        0,
        tuple(
            _decide(target, number, _as_verdict(verdict, proof), elsewhere=False)
            for number, verdict in enumerate(verdicts)
        ),
        snapshot=snapshot,
        where=str(condition),
    )
    return plan, verdicts


def plan_duplicates(
    target: Target, key_columns: Sequence[str], snapshot: Snapshot | None
) -> MergePlan:
    """Return a plan in which every file with rows may have a duplicate: only their keys tell."""
    found = [
        Verdict((), Evidence("unreadable", detail=footer.error))
        if footer.error is not None
        else Verdict(tuple(range(len(footer.row_groups))), Evidence("none"))
        for footer in target.footers
    ]
    return MergePlan(
        target.root.to_user_path(target.root.path),
        DEDUPLICATE_TARGET,
        tuple(key_columns),
        tuple(column.name for column in target.partition_columns),
        0,
        tuple(_decide(target, number, one, elsewhere=False) for number, one in enumerate(found)),
        snapshot=snapshot,
    )


def _as_verdict(found: ConditionVerdict, proof: Evidence) -> Verdict:
    if found.error is not None:
        return Verdict((), Evidence("unreadable", detail=found.error))
    groups = tuple(sorted((*found.candidates, *found.complete)))
    return Verdict(groups, Evidence("none") if groups else proof)


def _decide(target: Target, number: int, verdict: Verdict, elsewhere: bool) -> FilePlan:
    footer = target.footers[number]
    decision: Decision = "candidate"
    if footer.error is not None:
        decision = "affected"
    elif not verdict.row_groups:
        decision = "pruned"
    elif elsewhere:
        decision = "guarded"
    return FilePlan(
        target.root.to_user_path(footer.file.path),
        footer.rows,
        footer.file.size,
        decision,
        verdict.evidence,
        verdict.row_groups,
        len(footer.row_groups),
        target.partition_texts[number],
    )


def _in_other_partitions(target: Target, source: SourceKeys) -> list[bool]:
    """Return for each file whether the source has no row for its partition; False if unknown."""
    parts = target.partition_columns
    if not parts:
        return [False] * len(target.footers)
    found = numbered_columns(source.keys.select([part.name for part in parts]))
    written = found.group_by(found.column_names).aggregate([]).select(found.column_names)
    wanted = set(zip(*(column.to_pylist() for column in written.columns), strict=True))
    values = [part.canonical(target.partitions[part.name].values).to_pylist() for part in parts]
    known = [target.partitions[part.name].known for part in parts]
    return [
        all(flags) and tuple(value) not in wanted
        for value, flags in zip(zip(*values, strict=True), zip(*known, strict=True), strict=True)
    ]


@dataclass
class IncrementalRewritePlan:
    """Which files an incremental rewrite would touch."""

    affected_files: list[str]
    """Files that may contain a source key, or about which nothing is known."""

    unaffected_files: list[str]
    """Files that are proved to contain none; they are preserved."""

    new_files: list[str]
    """Files for inserts; a plan writes nothing, so there are none yet."""

    affected_rows: int
    """The rows of the affected files, as far as their footers can be read."""


def plan_incremental_rewrite(
    dataset_path: str,
    source_keys: Sequence[Any],
    key_columns: str | Sequence[str],
    filesystem: Any = None,
    partition_schema: pa.Schema | None = None,
) -> IncrementalRewritePlan:
    """Plan a rewrite from paths and footers, without reading or writing data.

    Args:
        dataset_path: The dataset's directory, path or URL.
        source_keys: Scalars for one key column, tuples for several, or an Arrow array or table.
        key_columns: The key columns.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the path.
        partition_schema: The types of the partition columns; by default those of the keys.

    Raises:
        UnsupportedLayoutError: If the directory is a table of another format.
        SchemaMismatchError: If the keys cannot be compared with the target's.
    """
    key_columns = as_names(key_columns)
    given = keys_table(source_keys, key_columns)
    root = open_root(dataset_path, filesystem)
    listing = list_files(root)
    check_mergeable(listing, root)
    fields = {field.name: field for field in (*given.schema, *(partition_schema or ()))}
    target = read_target(root, listing.files, key_columns, pa.schema(list(fields.values())))
    keys = canonical_keys(given, target.key_columns)
    verdicts = prune(root, target.footers, keys, target.key_columns, _only_in_paths(target))
    affected = [
        bool(verdict.row_groups) or footer.error is not None
        for verdict, footer in zip(verdicts, target.footers, strict=True)
    ]
    paths = [root.to_user_path(footer.file.path) for footer in target.footers]
    return IncrementalRewritePlan(
        [path for path, hit in zip(paths, affected, strict=True) if hit],
        [path for path, hit in zip(paths, affected, strict=True) if not hit],
        [],
        sum(footer.rows for footer, hit in zip(target.footers, affected, strict=True) if hit),
    )


def _only_in_paths(target: Target) -> dict[str, PartitionValues]:
    """Return the partition columns that no file stores: a file may disagree with its path."""
    stored = {name for footer in target.footers for name in footer.leaves}
    return {name: found for name, found in target.partitions.items() if name not in stored}
