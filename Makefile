# Every command a developer needs. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory

BIN := .venv/bin
PYTHON := $(BIN)/python
INSTALLED := .venv/.installed
DUCKDB1 := .venv-duckdb1
SPARK41 := .venv-spark41
INTEGRATIONS := dbt dagster airflow
PEERS := .venv-peers
# Options of the benchmarks against peers, as in: make bench-peers ARGS='--resume --only one-row'
ARGS ?=

.PHONY: help setup java demo test test-smoke test-fast test-duckdb1 test-spark41 test-package test-newcomer test-pythons test-like-macos test-spark-s3 test-integrations lint format hooks types docs bench bench-quick bench-peers bench-spark torture torture-feeds torture-pipelines torture-stores torture-streams frontend browser stores minio azurite fake-gcs hdfs hadoop-aws clean

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) java ## Make .venv and see that Java is there (done by the other commands, too)

$(INSTALLED): pyproject.toml constraints.txt scripts/setup.sh
	@bash scripts/setup.sh
	@touch $@

java:
	@bash scripts/java.sh

demo: setup ## Let a stream merge a day of orders, kill it, and compare the result with a model
	@$(PYTHON) examples/demo.py

test: setup ## Run every test, with branch coverage and its floors
	@bash scripts/browser.sh --browser --if-possible
	@$(PYTHON) -m scripts.run_tests

test-smoke: $(INSTALLED) ## Run one case of each rule on PyArrow, planning and the command line: under a minute
	$(BIN)/pytest -q --engine pyarrow --first-case tests/datasets/test_pyarrow.py \
	    tests/core/planning/test_plan.py tests/core/planning/test_pruning.py tests/cli/test_commands.py

test-fast: $(INSTALLED) ## Run the tests that take little time and no Java
	$(BIN)/pytest -m "not slow and not spark"

test-duckdb1: $(DUCKDB1)/.installed java ## Run the tests of DuckDB on the last DuckDB 1.x, in its own environment
	@$(DUCKDB1)/bin/python -c 'import duckdb; v = duckdb.__version__; print("DuckDB", v); assert v.startswith("1.")'
	$(DUCKDB1)/bin/python -m pytest tests/datasets/test_duckdb.py tests/test_utils/test_duckdb.py

# That Spark leaves its own sockets to the garbage collector.
test-spark41: $(SPARK41)/.installed java ## Run the tests of Spark on the oldest Spark that is supported, in its own environment
	@$(SPARK41)/bin/python -c 'import pyspark; v = pyspark.__version__; print("Spark", v); assert v.startswith("4.1.")'
	$(SPARK41)/bin/python -m pytest -W 'ignore:unclosed <socket:ResourceWarning' \
	    tests/datasets/test_spark.py tests/datasets/test_spark_engine.py tests/datasets/test_spark_reading.py \
	    tests/datasets/test_spark_data_source.py tests/datasets/test_spark_sinks.py

test-spark-s3: setup minio hadoop-aws ## Merge on MinIO with Spark, with and without hadoop-aws on its class path
	FSSPECKIT_TORTURE=1 $(BIN)/pytest tests/datasets/test_spark_hadoop_aws.py $(ARGS)

$(DUCKDB1)/.installed: REPLACED := s/^duckdb==.*/duckdb<2/
$(SPARK41)/.installed: REPLACED := s/^pyspark==.*/pyspark<4.2/
$(DUCKDB1)/.installed $(SPARK41)/.installed: $(INSTALLED)
	@$(PYTHON) -m venv $(@D)
	@sed '$(REPLACED)' constraints.txt > $(@D)/constraints.txt
	@echo 'setup: installing into $(@D) (a few minutes the first time)' >&2
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint $(@D)/constraints.txt --editable '.[dev]'
	@touch $@

test-package: $(INSTALLED) ## Build wheel and sdist, install each from the index, use them, resolve every extra: minutes
	@$(PYTHON) -m scripts.package_check

test-newcomer: $(INSTALLED) ## Run the five commands of the README in a fresh environment, and time each
	@$(PYTHON) -m scripts.newcomer

test-pythons: $(INSTALLED) ## Run the fast tests on Python 3.11 to 3.14, as far as they are here (PYTHONS=/path/to/python:…)
	@$(PYTHON) -m scripts.pythons $(ARGS)

test-like-macos: $(INSTALLED) ## Run the tests of storage and PyArrow without what Linux has and macOS has not
	$(BIN)/pytest -p tests.like_macos -m "not spark and not slow" tests/storage tests/datasets/test_pyarrow.py

test-integrations: $(INTEGRATIONS:%=.venv-%/.installed) ## Run the tests of dbt, Dagster and Airflow, each in its own environment: two minutes
	@for tool in $(INTEGRATIONS); do \
	    echo "test-integrations: $$tool"; \
	    .venv-$$tool/bin/python -m pytest tests/integrations/test_$$tool.py; \
	done

$(INTEGRATIONS:%=.venv-%/.installed): .venv-%/.installed: $(INSTALLED) tests/integrations/constraints/%.txt
	@$(PYTHON) -m venv $(@D)
	@echo 'setup: installing into $(@D) (a minute the first time)' >&2
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint tests/integrations/constraints/$*.txt --editable '.[$*]' \
	    duckdb hypothesis pandas pytest pytest-randomly
	@touch $@

lint: $(INSTALLED) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(INSTALLED) ## Mend what lint can mend by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

hooks: $(INSTALLED) ## Check style and formatting before each commit, with pre-commit
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check 'pre-commit>=4,<5'
	@$(BIN)/pre-commit install

types: $(INSTALLED) ## Check types, strictly
	$(BIN)/mypy

docs: $(INSTALLED) ## Build the documentation into site/
	@$(PYTHON) -m scripts.module_table
	@$(PYTHON) -m scripts.trace_merge --write > /dev/null
	@$(PYTHON) -m scripts.guarantees_table
	@$(PYTHON) -m scripts.cli_reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

frontend: ## Check and build the page of reports, which is committed (needs Node)
	@bash scripts/browser.sh
	cd frontend && npm run --silent check && npm run --silent build

browser: ## Install what tests in a browser need: packages of npm, and Chromium
	@bash scripts/browser.sh --browser

bench: setup $(PEERS)/.installed $(PEERS)-spark/.installed ## Measure every page of docs/benchmarks/ again: one hour; call it again to continue
	@$(PYTHON) -m benchmarks.every_page $(ARGS)

bench-quick: $(INSTALLED) $(PEERS)/.installed ## Print how far local peers are from us, in under ten minutes; writes no page
	@$(PYTHON) -m benchmarks.peers --quick $(ARGS)

bench-peers: $(INSTALLED) $(PEERS)/.installed ## Run the same merges on every local peer, in an environment of its own
	@$(PYTHON) -m benchmarks.peers $(ARGS)

bench-spark: setup $(PEERS)-spark/.installed ## Run the same merges on every peer on Spark, with jars fetched by mvn
	@$(PYTHON) -m benchmarks.peers --spark $(ARGS)

# What cannot be installed is reported by the benchmark, not here.
$(PEERS)/.installed: benchmarks/peers/environments.py
	@$(PYTHON) -m benchmarks.peers.environments local
	@touch $@

$(PEERS)-spark/.installed: benchmarks/peers/environments.py
	@$(PYTHON) -m benchmarks.peers.environments spark
	@touch $@

torture-feeds: setup ## Apply random change feeds that are killed and repeated, and race them, on every engine; prints figures
	FSSPECKIT_TORTURE=1 $(BIN)/pytest -rP -k 'sequences_of_feeds or four_jobs' tests/datasets/test_pyarrow.py \
	    tests/datasets/test_duckdb.py tests/datasets/test_spark.py tests/datasets/test_transactions.py

torture-pipelines: setup ## Run a generated declarative pipeline, kill it, and run it again: ten minutes
	FSSPECKIT_TORTURE=1 $(BIN)/pytest tests/datasets/test_declarative_pipelines.py

torture-streams: setup ## Kill a streaming query 30 times in each of four settings, with both sinks: an hour; writes figures
	FSSPECKIT_TORTURE=1 $(BIN)/pytest -rP -p no:randomly tests/datasets/test_spark_streams_killed.py $(ARGS)

# One store or one table at a time: make torture-stores ARGS='--keep-cells -k minio', and so on.
torture-stores: NOT_ON_HDFS = $(foreach test,a_process_that_is_killed_while_it_merges two_processes_that_merge_into_the_same_files,--deselect 'tests/storage/test_killed_merges.py::test_$(test)[hdfs]')
torture-stores: $(INSTALLED) minio azurite fake-gcs ## Let object stores fail in every way, kill writers and race them on each: an hour; writes figures
	FSSPECKIT_TORTURE=1 $(BIN)/pytest -rP -p no:randomly tests/storage/test_store_readers.py tests/storage/test_store_faults.py tests/storage/test_killed_merges.py $(NOT_ON_HDFS) $(ARGS)

torture: setup stores ## Kill writers at every step, for minutes rather than seconds, on object stores, too
	FSSPECKIT_TORTURE=1 $(BIN)/pytest tests/storage
	FSSPECKIT_TORTURE=1 $(BIN)/pytest tests/datasets/test_pyarrow.py tests/datasets/test_duckdb.py -k 'moto or minio or azurite or fake-gcs or sequences'

stores: minio azurite fake-gcs hdfs ## Build or fetch the stores below for the tests, once, into a cache outside of the checkout

minio: $(INSTALLED) ## Build MinIO, a store like S3 (needs Go)
	@$(PYTHON) -m scripts.stores minio

azurite: $(INSTALLED) ## Fetch Azurite, a store like Azure Blob Storage (needs Node)
	@$(PYTHON) -m scripts.stores azurite

fake-gcs: $(INSTALLED) ## Build fake-gcs-server, a store like Google Cloud Storage (needs Go)
	@$(PYTHON) -m scripts.stores fake-gcs

hdfs: $(INSTALLED) ## Fetch HDFS, a small cluster in one process (needs Maven and Java)
	@$(PYTHON) -m scripts.stores hdfs

hadoop-aws: $(INSTALLED) ## Fetch the jars with which Spark itself reads S3 (needs Maven, 0.7 GB)
	@$(PYTHON) -m scripts.stores hadoop-aws

clean: ## Remove everything that the commands above made
	rm -rf .venv $(DUCKDB1) $(SPARK41) $(INTEGRATIONS:%=.venv-%) .venv-python3.* $(PEERS) $(PEERS)-spark $(PEERS)-hudi site build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse artifacts frontend/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
