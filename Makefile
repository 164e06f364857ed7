# Every verb of the project. The set-up behind them runs once, and again when pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := bench/.venv-peers
PIP_INSTALL := -m pip install --quiet
# One process more than there are cores: some tests wait for something.
WORKERS = $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
PYTEST_ARGS ?= -n $(WORKERS) --dist worksteal
BENCH_ARGS ?=
PROVE_ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start the command thousands of times; without bytecode on disk each start compiles everything again.
unexport PYTHONDONTWRITEBYTECODE
# Node comes from the nodejs wheel and pyright from its own wheel, so the type checker downloads nothing when it runs.
export PYRIGHT_PYTHON_GLOBAL_NODE := 0
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

RUNTIME := $(VENV)/.installed-runtime
DEV := $(VENV)/.installed-dev
PEERS_READY := $(PEERS)/.installed
SERVERS := tests/servers/npm
SERVERS_READY := $(SERVERS)/node_modules/.installed
OUTSIDE := $(SERVERS_READY) chromium
# A gate never passes without the servers; whoever only runs tests can do without, and is told what is skipped.
SERVERS_ARE_A_MUST := $(filter true,$(CI))$(filter check prove,$(MAKECMDGOALS))

.DEFAULT_GOAL := help
.PHONY: help demo test prove check format docs bench clean chromium

help: ## list these verbs
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r verb what; do printf '%-14s %s\n' "$$verb" "$$what"; done

demo: $(RUNTIME) ## run a plan, kill it half-way, watch it resume
	@$(BIN)/holdfast demo

test: $(DEV) $(OUTSIDE) ## run all tests (PYTEST_ARGS='-k name' for some)
	@$(BIN)/pytest $(PYTEST_ARGS)

prove: $(DEV) $(OUTSIDE) ## the whole proof: thousands of histories, every crash point, faults of the disk, coverage (an hour)
	@$(BIN)/python proof/run.py $(PROVE_ARGS)

check: $(DEV) $(OUTSIDE) ## the whole gate: format, lint, types, layers, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/pytest $(PYTEST_ARGS)

format: $(DEV) ## format the code and fix what lint can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(DEV) ## write the pages that are generated from the code
	@$(BIN)/python docs/generate.py

bench: $(DEV) $(PEERS_READY) ## measure Holdfast against its peers and bare SQLite
	@$(BIN)/python bench/run.py $(BENCH_ARGS)

clean: ## remove the environments and caches
	rm -rf $(VENV) $(PEERS) $(SERVERS)/node_modules .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.* dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Holdfast needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "$(PYTHON) cannot create an environment: on Debian, apt install python3-venv" >&2; exit 1; }

$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	@echo "setting up $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e .
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	@echo "setting up $(VENV) with what the tests need"
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[dev]'
	@touch $@ $(RUNTIME)

$(SERVERS_READY): $(SERVERS)/package.json $(SERVERS)/package-lock.json
	@echo "setting up the MCP servers that the tests talk to"
	@{ command -v npm >/dev/null || { echo "there is no npm here: on Debian, apt install npm" >&2; false; }; } \
		&& npm ci --loglevel=error --prefix $(SERVERS) >/dev/null && touch $@ \
		|| { echo "the MCP servers could not be installed, for the reason above; the tests that talk to them need Node.js with npm, and" \
		"a package registry that npm can reach$(if $(SERVERS_ARE_A_MUST),,. Without them these tests are skipped)" >&2; \
		[ -z "$(SERVERS_ARE_A_MUST)" ]; }

# Tests drive a real browser. Where nobody may install one, those tests say so and are skipped.
chromium:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null \
		|| { echo "installing chromium, which the tests of the browser drive"; apt-get update -qq && apt-get install -y -qq chromium >/dev/null; }

$(PEERS_READY): bench/peers/requirements.txt
	@echo "setting up $(PEERS) with the systems to compare with"
	@$(PYTHON) -m venv --clear $(PEERS)
	@$(PEERS)/bin/python $(PIP_INSTALL) -r bench/peers/requirements.txt
	@touch $@
