"""What a merge can be asked for, and what it answers."""

from __future__ import annotations

from typing import Any

import pytest

from fsspeckit.core.merge import (
    MergeFileMetadata,
    MergeResult,
    MergeStrategy,
    validate_rewrite_mode_compatibility,
)
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.testing.model import STRATEGIES


def test_the_five_strategies_are_those_of_the_model() -> None:
    assert {strategy.value for strategy in MergeStrategy} == set(STRATEGIES)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_a_strategy_is_found_by_name_and_is_its_name(name: str) -> None:
    strategy = MergeStrategy.of(name)
    assert strategy == name
    assert str(strategy) == f"{strategy}" == name
    assert MergeStrategy.of(strategy) is strategy


@pytest.mark.parametrize("value", ["UPSERT", "merge", "", None, 1, ["upsert"]])
def test_an_unknown_strategy_is_refused_in_words_a_caller_can_use(value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        MergeStrategy.of(value)
    assert str(caught.value) == (
        "strategy must be one of 'insert', 'update', 'upsert', 'full_merge', 'deduplicate', "
        "'delete', "
        f"got {value!r}."
    )


@pytest.mark.parametrize("strategy", ["insert", "update", "upsert"])
@pytest.mark.parametrize("rewrite_mode", ["full", "incremental"])
def test_rewrite_modes_of_the_three_strategies(strategy: str, rewrite_mode: str) -> None:
    validate_rewrite_mode_compatibility(strategy, rewrite_mode)
    validate_rewrite_mode_compatibility(MergeStrategy(strategy), rewrite_mode)


@pytest.mark.parametrize("strategy", ["full_merge", "deduplicate"])
def test_incremental_rewrite_is_refused_naming_the_strategy(strategy: str) -> None:
    validate_rewrite_mode_compatibility(strategy, "full")
    for given in (strategy, MergeStrategy(strategy)):
        with pytest.raises(ValueError, match=f"not supported for the strategy '{strategy}'") as e:
            validate_rewrite_mode_compatibility(given, "incremental")
        assert isinstance(e.value, InvalidArgumentError)
        assert "Hint:" in str(e.value)


@pytest.mark.parametrize("rewrite_mode", ["partial", "", None, "FULL"])
def test_an_unknown_rewrite_mode_is_refused(rewrite_mode: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="rewrite_mode must be one of 'full', 'increm"):
        validate_rewrite_mode_compatibility("upsert", rewrite_mode)


def test_an_unknown_strategy_is_reported_before_the_rewrite_mode() -> None:
    with pytest.raises(InvalidArgumentError, match="strategy must be one of"):
        validate_rewrite_mode_compatibility("nope", "nope")


def test_results_have_metrics_of_their_own() -> None:
    def result() -> MergeResult:
        files = [MergeFileMetadata("a.parquet", 3, "inserted")]
        return MergeResult("upsert", 1, 2, 3, 1, 0, 0, files, [], ["a.parquet"], [])

    one, other = result(), result()
    one.metrics["seconds"] = 1.0
    assert other.metrics == {}
    assert one.files[0].size_bytes is None
