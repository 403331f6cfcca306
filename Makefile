# Every target except test-gpu sets up what it needs; all you need is make and Python 3.11 or newer.
PYTHON ?= python3
SCALE ?= quick
BIN := .venv/bin
# One process per core, each of about a gigabyte.
TESTS := --numprocesses logical --maxprocesses 8 --dist worksteal

# Tests start many processes, and each would compile the whole project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup table3 report test test-slow test-long test-gpu check format benchmark pictures site

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "error: Python 3.11 or newer is needed; name one: make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

.venv/docs-installed: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

table3: setup
	$(BIN)/python -m ablations run table3 --scale $(SCALE)

report: setup
	$(BIN)/python -m ablations report runs/table3-$(SCALE)

test: setup
	$(BIN)/python -m pytest $(TESTS) -m "not slow and not long"

test-slow: setup
	$(BIN)/python -m pytest $(TESTS) -m slow

# Takes some hours; the tests run one after the other, as some use all cores.
test-long: setup
	$(BIN)/python -m pytest -m long

# Works without a .venv, with any Python that has torch, lightning and pytest.
test-gpu:
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m pytest -c tests/gpu/pytest.ini tests/gpu

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --project pyproject.toml
	$(MAKE) --no-print-directory site

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# This project against plain torch; some minutes each.
benchmark: setup
	for script in train decode; do $(BIN)/python -m bench.$$script || exit; done

# The pictures of README and docs, from committed results; needs Chromium or Chrome.
pictures: setup
	$(BIN)/python -m tests.pictures

# The pages, with everything they link to and the API from docstrings, as a site in build/site.
site: .venv/docs-installed
	mkdir -p build/pages
	ln -sfn $(addprefix $(CURDIR)/,README.md CHANGELOG.md docs transformer experiments ablations) build/pages
	$(BIN)/mkdocs build --quiet
