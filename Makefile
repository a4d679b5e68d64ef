# The front door: `make help` says what there is. Needs Python 3.11 or newer and make; everything else goes into .venv.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Tests start agents and commands by the hundred: each module is compiled once, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RUNS   := $(VENV)/.installed-to-run
CLASSES := .cache/spark-classes.jsa

DATA   ?= ./data
UP     ?=
DIR    ?= ./cluster
AGENTS ?= 3
CLUSTER ?=
SEEDS  ?= 200
PROFILE ?=
KILLS  ?= 50
FRAMES ?= 1000000
FUZZ_SECONDS ?= 60
MINUTES ?= 3
SEED   ?=
REPORT ?= chaos.html
SOAK   ?=
SHARE  ?= 1
# `make soak` and `make chaos` share the names of their variables, not what they are when nobody names them.
SOAK_MINUTES = $(if $(filter file,$(origin MINUTES)),60,$(MINUTES))
SOAK_REPORT  = $(if $(filter file,$(origin REPORT)),soak.html,$(REPORT))
SBOM   ?= sbom.json
JOBS   ?= auto
ARGS   ?=

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[36m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- set up -------------------------------------------------------------------------------------------------------

.PHONY: install
install: $(STAMP) ## make .venv with the locked dependencies and the `streamhouse` command

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found; install one, or say: make PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# uv installs in seconds what takes pip minutes; pip, which knows the mirrors of pip.conf, takes over where uv can't.
# Hashes are checked for every download; the build backend comes from the lock as well, so building fetches nothing.
UV      := $(BIN)/uv
PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := pyproject.toml setup.py $(wildcard src/streamhouse/format/*.c src/streamhouse/format/*.h)

define INSTALL
	@echo "installing the locked packages of $(1) into $(VENV); less than a minute, once"
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r $(1) \
	  || { echo "uv could not install it; trying pip"; $(PIP) --no-compile --require-hashes -r $(1); }
	$(PIP) --no-deps --no-build-isolation -e .
endef

$(UV): requirements/uv.txt | $(BIN)/python
	$(PIP) --require-hashes -r requirements/uv.txt
	@touch $@

# What running needs: the agent, SQL and pipelines on Spark, lake tables, the servers of `make cluster`.
$(RUNS): requirements/run.txt $(SOURCES) | $(UV)
	$(call INSTALL,requirements/run.txt)
	@touch $@

# That and what testing needs. Tests start commands by the hundred: all of it is compiled once, on all processors, and so
# are the project's own modules, which six processes of `make test` would compile at the same time.
$(STAMP): requirements/dev.txt $(SOURCES) | $(UV)
	$(call INSTALL,requirements/dev.txt)
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib || true
	@$(BIN)/python -m compileall -qq -j 0 -x '/test_|/conftest' src tests benchmarks || true
	@touch $@ $(RUNS)

.PHONY: run
run: $(RUNS) ## an agent on 127.0.0.1:9092 (Kafka) and :8080 (HTTP), data in ./data; DATA=… UP='--fsync always'
	@exec $(BIN)/streamhouse up --data $(DATA) $(UP)

.PHONY: cluster
cluster: $(RUNS) ## PostgreSQL, an S3 server and 3 agents, Kafka from port 9092 on, in ./cluster; DIR=… AGENTS=5 CLUSTER='--lease-ttl 3s'
	@exec $(BIN)/streamhouse dev cluster --dir $(DIR) --agents $(AGENTS) --kafka-port 9092 --http-port 8080 $(CLUSTER)

# --- while working ------------------------------------------------------------------------------------------------

.PHONY: fmt
fmt: $(STAMP) ## format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: lint
lint: $(STAMP) ## formatting, lint rules, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

.PHONY: types
types: $(STAMP) ## mypy --strict
	$(LATER) $(BIN)/mypy

# Dozens of Sparks are started by tests: with their classes in an archive, each needs about half the time.
$(CLASSES): $(STAMP) tests/spark/archive.py tests/support/java_options.py
	$(BIN)/python -m tests.spark.archive

# What a run with every change leaves to `make nightly`; with nightly depth it is said otherwise.
MARKS  ?= not java and not chaos and not slow
# Lanes are cut off after 80 minutes, so that one that hangs is seen. With ARGS='-k …' a lane may have nothing to run.
PYTEST  = $(if $(shell command -v timeout),timeout --foreground --signal=INT --kill-after=30 $(LIMIT)) $(BIN)/pytest
LIMIT  ?= $(if $(TEST_DEPTH),4h,80m)
LATER   = $(if $(shell command -v nice),nice -n 5)
PICKED  = $(if $(ARGS),|| [ $$? = 5 ])

.PHONY: test-fast
test-fast: $(STAMP) ## unit tests, without the simulation: under a minute; ARGS='-k wal -x'
	$(PYTEST) --lane unit -n $(JOBS) -m '$(MARKS) and not deep' $(ARGS)

.PHONY: test-unit
test-unit: $(STAMP) ## one of three lanes: tests that need neither a JVM nor a server
	$(LATER) $(PYTEST) --lane unit -n $(JOBS) -m '$(MARKS)' $(ARGS) $(PICKED)

.PHONY: test-spark
test-spark: $(CLASSES) ## one of three lanes: topics in a real Spark on this machine
	$(PYTEST) --lane spark -n 0 -m '$(MARKS)' $(ARGS) $(PICKED)

.PHONY: test-services
test-services: $(STAMP) ## one of three lanes: agents, PostgreSQL, S3 servers, real clients, kills
	$(PYTEST) --lane services -n $(JOBS) -m '$(MARKS)' $(ARGS) $(PICKED)

# The lanes run beside each other: one computes while another waits. Each prints what its tests cost. The archive of
# classes comes before them: all Sparks begin with it, and the lane of Spark, one process, takes longest. So those that
# share their work among all processors give way.
BESIDE = --no-print-directory --keep-going --jobs $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
.PHONY: test
test: $(STAMP) ## everything that must be green: lint, types, and three lanes of tests side by side, without Java of yours
	@$(MAKE) $(BESIDE) lint $(CLASSES); begun=$$?; \
	  $(MAKE) $(BESIDE) test-spark test-unit test-services types && exit $$begun

.PHONY: check
check: test licences audit ## what CI runs, and a look at the dependencies

.PHONY: licences
licences: $(STAMP) ## fail for a dependency whose licence isn't one of those allowed in tools/supply_chain.py
	@$(BIN)/python -m tools.supply_chain licences

.PHONY: audit
audit: $(STAMP) ## known vulnerabilities of the locked dependencies, with pip-audit where it is and reaches its database
	@$(BIN)/python -m tools.supply_chain audit

.PHONY: sbom
sbom: $(STAMP) ## the locked dependencies as a CycloneDX document; SBOM=sbom.json
	@$(BIN)/python -m tools.supply_chain sbom $(SBOM)

.PHONY: nightly
nightly: $(STAMP) ## what takes hours: deep seeds, slow tests, all pages, kills, chaos, an hour of soak, Java; a page at the end; STEPS='simulate fuzz' SHARE=0.1
	$(BIN)/python -W ignore -m tests.support.nightly --share $(SHARE) $(STEPS)

.PHONY: test-compat
test-compat: $(STAMP) ## real Kafka clients against a live agent
	$(BIN)/pytest -m compat $(ARGS)

.PHONY: test-slow
test-slow: $(STAMP) ## what takes minutes: other Sparks, killed supervisors, all of Nexmark
	$(BIN)/pytest -m slow $(ARGS)

.PHONY: test-java
test-java: $(STAMP) ## Kafka's Java client and command-line tools against a live agent; needs Java 17, and Maven once
	$(BIN)/pytest -m java $(ARGS)

.PHONY: test-store
test-store: $(STAMP) ## a bucket of yours: STREAMHOUSE_TEST_STORE=s3://bucket/prefix and its usual variables; cleans up behind itself
	@test -n "$$STREAMHOUSE_TEST_STORE" || { echo "error: no store is named; set STREAMHOUSE_TEST_STORE=s3://bucket/prefix (or gs://, az://), and credentials and endpoint as for \`streamhouse up --store\` (docs/object-stores.md)"; exit 2; }
	$(BIN)/pytest tests/stores/test_named_store.py --durations=5 $(ARGS)

.PHONY: simulate
simulate: $(STAMP) ## one agent, or a team, on a seeded event loop with faults; SEEDS=200 PROFILE=team-zombies; one again: ARGS='--seed 17 --trace'
	$(BIN)/python -W ignore -m tests.simulation --seeds $(SEEDS) $(if $(PROFILE),--profile $(PROFILE)) $(ARGS)

.PHONY: mutants
mutants: $(STAMP) ## every guard taken out in turn, with a control run of the same seed; finds new seeds, writes the table; ARGS='--budget-s 60 NAME'
	$(BIN)/python -W ignore -m tests.simulation.mutants --write $(ARGS)

.PHONY: crash
crash: $(STAMP) ## kill -9 an agent under load and look for lost records; KILLS=50
	CRASH_KILLS=$(KILLS) $(BIN)/pytest -m crash $(ARGS)

.PHONY: chaos
chaos: $(STAMP) ## real agents, PostgreSQL and S3 under faults, and a page that says the verdict; MINUTES=3 SEED=17 PROFILE=stores REPORT=chaos.html
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) --report $(REPORT) $(if $(SEED),--seed $(SEED)) $(if $(PROFILE),--profile $(PROFILE)) $(ARGS)

.PHONY: soak
soak: $(STAMP) ## an hour of churn at a bounded rate: memory, handles, rows, objects stay flat; MINUTES=60 SOAK=--spark REPORT=soak.html
	$(BIN)/python -W ignore -m tests.soak --minutes $(SOAK_MINUTES) --report $(SOAK_REPORT) $(SOAK) $(ARGS)

.PHONY: view-queries
view-queries: $(CLASSES) ## random views over random records in a real Spark, compared with the batch query; SEEDS=200; one again: ARGS='--seed 17'
	$(BIN)/python -W ignore -m tests.spark.view_queries --seeds $(SEEDS) $(ARGS)

.PHONY: fuzz
fuzz: $(STAMP) ## mutated frames of every API through a live agent; FRAMES=1000000
	$(BIN)/python -m tests.fuzz --frames $(FRAMES) $(ARGS)

.PHONY: fuzz-decoders
fuzz-decoders: $(STAMP) ## everything that reads bytes of clients and stores, with bytes chosen by coverage; FUZZ_SECONDS=60 each; Linux
	$(BIN)/python -W ignore -m tests.fuzz.guided --seconds $(FUZZ_SECONDS) $(ARGS)

.PHONY: fuzz-native
fuzz-native: $(STAMP) ## the C extensions under AddressSanitizer and UndefinedBehaviorSanitizer, in a build of their own
	$(BIN)/python -W ignore -m tests.fuzz.sanitized $(ARGS)

.PHONY: bench
bench: $(STAMP) ## throughput and latency, as a table and a plot, in benchmarks/results
	$(BIN)/python -m benchmarks $(ARGS)

.PHONY: bench-full
bench-full: $(STAMP) ## all measures, about an hour, into docs/benchmarks.md; refuses on a dirty tree or a crowded machine
	$(BIN)/python -m benchmarks --full --publish $(ARGS)

.PHONY: bench-compare
bench-compare: $(STAMP) ## the working tree beside another commit, in turns, with confidence; BASE=main ARGS='--load "1 KB, 16"'
	$(BIN)/python -m benchmarks.compare $(or $(BASE),main) $(ARGS)

.PHONY: bench-cluster
bench-cluster: $(STAMP) ## failover, hand-over, rates and upkeep of a cluster, as tables, in benchmarks/results/cluster
	$(BIN)/python -m benchmarks.cluster $(ARGS)

.PHONY: bench-spark
bench-spark: $(STAMP) ## Spark's reads of a topic beside Parquet and Spark's Kafka connector, as tables, in benchmarks/results/spark
	$(BIN)/python -m benchmarks.spark_read $(ARGS)

.PHONY: bench-spark-write
bench-spark-write: $(STAMP) ## Spark's writes to a topic beside Parquet and Spark's Kafka connector, in benchmarks/results/spark-write
	$(BIN)/python -m benchmarks.spark_write $(ARGS)

.PHONY: bench-nexmark
bench-nexmark: $(STAMP) ## Nexmark's queries as pipelines: events a second per core, micro-batches, delay, in benchmarks/results/nexmark
	$(BIN)/python -m benchmarks.nexmark $(ARGS)

.PHONY: bench-maintenance
bench-maintenance: $(STAMP) ## what merging costs, and what cold readers and the metadata store gain by it
	$(BIN)/python -m benchmarks.maintenance $(ARGS)

.PHONY: bench-compaction
bench-compaction: $(STAMP) ## key compaction on Spark, checked against what was sent; ARGS='--updates 10000000 --keys 1000000'
	$(BIN)/python -m benchmarks.key_compaction $(ARGS)

.PHONY: bench-transactions
bench-transactions: $(STAMP) ## transactions a second and how long each takes, on one agent, on a cluster and on Kafka; ARGS='--seconds 2 --repeat 1'
	$(BIN)/python -m benchmarks.transactions $(ARGS)

.PHONY: bench-replay
bench-replay: $(STAMP) ## copying a topic and restoring it from Parquet, beside Spark's sink; ARGS='--records 2000000'
	$(BIN)/python -m benchmarks.replay $(ARGS)

# --- what is generated --------------------------------------------------------------------------------------------

.PHONY: messages
messages: $(STAMP) ## regenerate the Kafka message classes from Kafka's definitions, and the gRPC ones from streamhouse.proto
	$(BIN)/python tools/generate_messages.py
	$(BIN)/python -m tools.generate_grpc

.PHONY: docs
docs: $(STAMP) ## regenerate the generated pages of docs/, then build the site that agents serve at /docs and wheels contain
	$(BIN)/python -m tools.protocol_support
	$(BIN)/python -m tools.topic_settings
	$(BIN)/python -m tools.access_table
	$(BIN)/python -m tools.hazards
	$(BIN)/python -m tools.dashboards
	$(BIN)/python -m tools.man_pages
	$(BIN)/python -m tools.docs_site

COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet

.PHONY: lock
lock: $(STAMP) ## resolve the dependencies anew and write requirements/*.txt; ARGS='--upgrade'
	$(COMPILE) pyproject.toml --extra server -o requirements/runtime.txt $(ARGS)
	$(COMPILE) requirements/build.in -o requirements/build.txt $(ARGS)
	$(COMPILE) pyproject.toml requirements/tools.in --extra dev -o requirements/dev.txt $(ARGS)
	$(COMPILE) requirements/uv.in --constraints requirements/dev.txt -o requirements/uv.txt
	$(COMPILE) pyproject.toml requirements/build.in --extra run --constraints requirements/dev.txt -o requirements/run.txt

.PHONY: clean
clean: ## remove .venv and everything that tools left behind (never ./data or ./cluster)
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .cache
	find src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.so' -delete
	rm -rf src/streamhouse/wire/http/site
