# Two commands: `make demo` and `make test`. Both need Python 3.11+, make and a package index, nothing else.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip --disable-pip-version-check
# Processes that share the tests, a file at a time; each computes on one core (tests/conftest.py).
WORKERS ?= 2
# What `make test` installs on top of the run time; EXTRAS=dev leaves out torch, Ray and MkDocs (their tests then skip, and say so).
EXTRAS ?= dev,docs,bench,ray,openvino,station,video,postgres,opcua,parquet

.PHONY: demo test lint format docs attack benchmarks clean

demo: $(VENV)/.run
	$(BIN)/dinosaur demo --out runs/demo

# Compiled files are kept whatever the surroundings say: each of the commands that the tests start would compile anew.
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site, into site/; a broken link or a page without a place in the navigation is an error. The tests build it too.
docs: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Kills, faults, damaged files and stores, crowds; up to 20 minutes (docs/robustness.md). The tests try a few of each.
attack: $(VENV)/.test
	$(BIN)/python scripts/attack.py $(ATTACK)

benchmarks: $(VENV)/.test
	$(BIN)/python -m benchmarks

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "DINOSaur needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet --editable .
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet --editable '.[$(EXTRAS)]'
	touch $(VENV)/.run $@

clean:
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
