# Everything runs inside .venv, which the first target that needs it creates.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-all lint types kernels check check-slow campaigns docs dist lock bench evidence clean

# The package with the command, which is all that the demo needs, without bytecode: Python makes it of what it imports. Then
# what tests need. Of aeon they take a data set and its reader; the rest of it asks for an older numba than ours.
$(VENV)/package: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e '.[run]'
	touch $@

$(VENV)/installed: $(VENV)/package
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps 'aeon>=1.0'
	touch $@

demo: $(VENV)/package
	$(BIN)/shoal demo --out out/demo

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed
	$(BIN)/mypy

# Compiled once, while types are checked.
kernels: $(VENV)/package
	$(BIN)/python -c "from shoal.numerics.warmup import compile_kernels; compile_kernels(print)"

# Each worker has whole modules, whose fixtures it makes once; a third works while others wait for a process or a page.
SPREAD := -n 3 --dist loadscope --no-loadscope-reorder

check: $(VENV)/installed
	$(BIN)/pytest $(SPREAD)

check-slow: $(VENV)/installed
	$(BIN)/pytest $(SPREAD) -m "slow and not campaign"

# Thousands of mutants, kills, trials and proofs: an hour or more.
campaigns: $(VENV)/installed
	$(BIN)/pytest $(SPREAD) -m campaign

# What a contributor runs: lint, types and the fast tests.
test: lint
	$(MAKE) -j 2 types kernels
	$(MAKE) check

# Everything: browsers, PostgreSQL, Ray, kills and long campaigns too.
test-all: test
	$(MAKE) check-slow
	$(MAKE) campaigns

# The pages of docs/ as a site; open out/site/index.html.
docs: $(VENV)/package
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/python docs/book.py

# Wheel and source archive, the same bytes from the same commit, wherever and whenever they are built.
dist: $(VENV)/package
	$(BIN)/pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

# Versions and hashes of one environment for all contributors; write them anew after a change of pyproject.toml.
lock: $(VENV)/package
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile pyproject.toml --extra test --universal --python-version 3.11 --generate-hashes --quiet --upgrade \
	    --custom-compile-command "make lock" --output-file requirements.lock

bench: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m benchmarks

# What our figures rest on, made again from the real homes in ../shared/data (skipped, saying so, without them): some
# twenty minutes. Forecasts are kept in out/forecasts. Private-PGM is measured where SHOAL_MBI_PYTHON names a Python that has mbi.
evidence: $(VENV)/installed
	$(BIN)/python -m evidence reproduce synthetic
	$(BIN)/python -m evidence reproduce meters
	$(BIN)/python -m evidence measure paper
	$(BIN)/python -m evidence measure prices --keep out/forecasts
	$(BIN)/python -m evidence measure blends --keep out/forecasts
	$(BIN)/python -m evidence measure year --keep out/forecasts
	$(BIN)/python -m evidence measure rivals --keep out/forecasts
	$(BIN)/python -m evidence measure reidentify --keep out/forecasts
	$(BIN)/python -m evidence measure three --keep out/forecasts
	$(BIN)/python -m evidence measure rule
	$(BIN)/python -m evidence measure rule_year
	$(BIN)/python -m evidence measure small
	$(BIN)/python -m evidence measure opening --keep out/forecasts
	$(BIN)/python -m evidence page

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache
	find src -name __pycache__ -type d -prune -exec rm -rf {} +
