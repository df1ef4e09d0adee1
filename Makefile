# virtscale: every target does its own set-up (Python >= 3.11 with venv, and make; nothing global).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
TESTBED := virtscale-testbed
STUDY_STAGES := preflight,golden-image,deploy,boot,report,clean
LOCK := pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet --output-file requirements.lock
# Of the extra's packages those that requirements.lock does not have.
DASK := $(VENV)/.dask
DASK_LOCK := pip compile pyproject.toml --extra dask --constraint requirements.lock --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet
ONLY_NEW := awk 'NR == FNR {known[$$1]; next} /^[a-z]/ {mine = !($$1 in known)} mine' requirements.lock -
INSTALL_DASK := pip install --quiet --no-deps --require-hashes --requirement requirements-dask.lock
# uv and pip read the same command; uv is ten times as fast, and pip knows each mirror that a machine is set up for.
# Both compile what they install: where Python may not write bytecode later, each start would take seconds more.
INSTALL := pip install --quiet --require-hashes --requirement requirements.lock
# make test JOBS=0 runs them in one process; PYTEST_ARGS='-k deploy' chooses.
JOBS ?= 2
PYTEST_ARGS ?=
# make prove-compare PROOF_ARGS='--store FOLDER' keeps its runs there and goes on with them when it was stopped.
PROOF_ARGS ?=
# make bench-ssh END_POINTS='1000 30' is a smaller one: how many, over how many seconds.
END_POINTS ?= 6000 60

# Without byte code each process compiles Prefect again, for seconds; it goes into $(VENV) and into __pycache__.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export VIRTUAL_ENV := $(CURDIR)/$(VENV)

.PHONY: help setup setup-dask demo demo-api test test-api check lint types contracts reference docs fmt bench bench-api bench-served bench-ssh \
	fidelity prove-api prove-compare prove-faults prove-kills prove-parsers prefect-up prefect-down \
	test-prefect prove-prefect bench-webhook prove-webhook lock testbed-build testbed-up testbed-down rgw-install rgw-up \
	rgw-down test-rgw prove-rgw bench-store distclean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## make the virtual environment (.venv) from requirements.lock

$(READY): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "virtscale needs Python 3.11 or newer: no '$(PYTHON)' found (make PYTHON=... names another)" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "virtscale needs Python 3.11 or newer: '$(PYTHON)' is $$($(PYTHON) -V 2>&1) (make PYTHON=... names another)" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "virtscale needs Python's venv and ensurepip: '$(PYTHON)' lacks them (Debian: apt install python3-venv)" >&2; exit 2; }
	@echo "set-up: $(VENV) from requirements.lock, once"
	@$(PYTHON) -m venv $(VENV)
	@awk '/^[a-z]/ {mine = /^uv==/} mine' requirements.lock > $(VENV)/uv.lock
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement $(VENV)/uv.lock
	@$(BIN)/uv $(INSTALL) --compile-bytecode || { echo "set-up: uv could not, so pip does it (minutes)"; $(BIN)/python -m $(INSTALL); }
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q flows tasks infra
	@touch $@

setup-dask: $(DASK) ## add Dask to it, from requirements-dask.lock (virtscale run --workers dask)

$(DASK): $(READY) requirements-dask.lock
	@$(BIN)/uv $(INSTALL_DASK) --compile-bytecode || $(BIN)/python -m $(INSTALL_DASK)
	@touch $@

demo: $(READY) ## the study's deploys and boot storms on the virtual cluster, with a report
	@$(BIN)/virtscale run --profile study --stages $(STUDY_STAGES)

test: $(READY) ## all tests that need nothing but this checkout
	@$(BIN)/python -m pytest -q --numprocesses $(JOBS) --dist loadfile $(PYTEST_ARGS)

check: lint types contracts reference test ## lint, types, import contracts, generated reference, tests

lint: $(READY) ## ruff
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .

types: $(READY) ## mypy --strict
	@$(BIN)/mypy --no-error-summary

contracts: $(READY) ## which folder may import which
	@$(BIN)/lint-imports --no-logo

reference: $(READY) ## docs/reference is what the code says
	@[ ! -f flows/reference.py ] || $(BIN)/python -m flows.reference --check

docs: $(READY) ## write docs/reference, docs/conformance.md and the roles' files from the code
	@[ ! -f flows/reference.py ] || $(BIN)/python -m flows.reference
	@$(BIN)/python -m tests.conformance_page

fmt: $(READY) ## format, and fix what ruff can fix
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format --quiet .

bench: $(READY) ## measure virtscale itself
	@$(BIN)/python -m tests.benchmarks.bench

bench-api: testbed-build ## measure the adapter against a minimal client, on a real API server of its own
	@$(BIN)/python -m tests.benchmarks.bench_api

bench-served: $(READY) ## 6,000 VMs boot on the served cluster, ten watchers on it: received to noted, and CPU of its API part
	@$(BIN)/python -m tests.benchmarks.bench_served

bench-ssh: $(READY) ## the SSH prober against 6,000 end points on 127.0.0.0/8 coming up over 60 s
	@$(BIN)/python -m tests.benchmarks.bench_ssh $(END_POINTS)

fidelity: $(READY) ## published figures against measured ones, full sizes (writes docs/fidelity.md)
	@$(BIN)/python -m tests.benchmarks.fidelity

testbed-build: $(READY) ## build the servers of the testbed (once: minutes, then cached)
	@$(BIN)/python -m infra.testbed build

testbed-up: $(READY) ## build (cached) and start a real API server on this machine
	@$(BIN)/python -m infra.testbed up

testbed-down: $(READY) ## stop that API server and forget its data
	@$(BIN)/python -m infra.testbed down --wipe

demo-api: testbed-up ## profile smoke against that API server, the virtual controllers acting through it
	@export KUBECONFIG=$(CURDIR)/.testbed/kubeconfig; \
	$(BIN)/virtscale cluster control $(TESTBED) > .testbed/controllers.log 2>&1 & controllers=$$!; \
	trap "kill -INT $$controllers 2>/dev/null || true; wait $$controllers 2>/dev/null || true" EXIT; \
	for try in $$(seq 120); do grep -q '^controllers ready' .testbed/controllers.log && break; kill -0 $$controllers || exit 1; sleep 0.5; done; \
	$(BIN)/virtscale run --profile smoke --cluster $(TESTBED) --stages $(STUDY_STAGES)

# Two processes, each with API servers of its own: tests mostly wait. In the order of their names the long ones begin first.
test-api: testbed-build ## the tests that need that API server (they start one of their own)
	@$(BIN)/python -m pytest -q -m api --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder tests/real tests/served $(PYTEST_ARGS)

prove-api: testbed-build ## faults, brakes, memory and whole runs on a real API server of its own; goes on where it was stopped (writes docs/api-proof.md)
	@$(BIN)/python -m tests.benchmarks.prove_api $(PROOF_ARGS)

prove-compare: $(READY) ## 200 equal pairs of runs raise no false alarms, a 10 % slower restore is found (writes docs/compare-proof.md)
	@$(BIN)/python -m tests.benchmarks.prove_compare $(PROOF_ARGS)

prove-faults: $(READY) ## the study with every fault at once and with none, each record beside the truth (writes docs/faults-proof.md)
	@$(BIN)/python -m tests.benchmarks.prove_faults

prove-kills: $(READY) ## 20 runs killed with -9 and resumed equal an undisturbed one
	@$(BIN)/python -m tests.benchmarks.prove_kills

prove-parsers: $(READY) ## 10,000 times damaged, each tool's output is refused or still right
	@$(BIN)/python -m tests.benchmarks.prove_parsers

prefect-up: $(READY) ## Prefect in operation: database, server, worker, webhook receiver, deployments
	@$(BIN)/virtscale prefect up

prefect-down: $(READY) ## stop them; runs, schedules and results are kept
	@$(BIN)/virtscale prefect down

test-prefect: $(DASK) ## Prefect with PostgreSQL, server and worker: deployments, retry, one run per cluster, shards on Dask
	@$(BIN)/python -m pytest -q -m "prefect and slow" --numprocesses $(JOBS) --dist loadfile tests/integration $(PYTEST_ARGS)

prove-prefect: $(READY) ## kills of run, worker, server and database; the UI in a browser (Debian: chromium) (writes docs/operations.md)
	@$(BIN)/python -m tests.benchmarks.prove_prefect

bench-webhook: $(READY) ## how long the receiver takes for an accepted request
	@$(BIN)/python -m tests.benchmarks.bench_webhook

prove-webhook: $(READY) ## 2,000 hostile requests start nothing
	@VIRTSCALE_TEST_HOSTILE=2000 $(BIN)/python -m pytest -q -m prefect tests/integration/test_webhook.py $(PYTEST_ARGS)

rgw-install: $(READY) ## install Debian's Ceph packages where they are missing (root)
	@$(BIN)/python -m infra.rgw install

rgw-up: rgw-install ## start a real Ceph RGW (S3) on this machine
	@$(BIN)/python -m infra.rgw up

rgw-down: $(READY) ## stop that RGW and forget its data
	@$(BIN)/python -m infra.rgw down --wipe

test-rgw: rgw-install ## the tests that need a real RGW (they start one of their own)
	@$(BIN)/python -m pytest -q -m rgw $(PYTEST_ARGS)

prove-rgw: rgw-install ## races, 50 kills, outages, a full OSD, overhead, many runs on a real RGW (writes docs/rgw.md)
	@$(BIN)/python -m tests.benchmarks.prove_rgw

bench-store: rgw-install ## what results cost on a real RGW: requests, bytes, wall time against plain boto3
	@$(BIN)/python -m tests.benchmarks.bench_s3

lock: $(READY) ## resolve pyproject.toml again into requirements.lock and requirements-dask.lock
	@$(BIN)/uv $(LOCK) --upgrade
	@$(BIN)/uv $(DASK_LOCK) | $(ONLY_NEW) > requirements-dask.lock

distclean: ## remove the virtual environment and every cache
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
