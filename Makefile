# Everything runs inside .venv, which the first target that needs it creates.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint types check bench clean

# The package alone, which is all that the demo needs; then what tests need. Of aeon they take a data set and its
# reader; the rest of it asks for an older numba than ours.
$(VENV)/package: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
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

# Two workers, each with whole modules, whose fixtures it makes once.
check: $(VENV)/installed
	$(BIN)/pytest -n 2 --dist loadscope --no-loadscope-reorder

test: lint types check

bench: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) out build .pytest_cache .mypy_cache .ruff_cache
	find src -name __pycache__ -type d -prune -exec rm -rf {} +
