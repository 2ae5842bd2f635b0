# make demo: find a circuit in the embedded model.    make test: run every test.
# make fuzz: 100,000 hostile files for all readers, at most half an hour; FUZZ='--seconds 60' for less.
# make docs: build the documentation into site/.
# All set up .venv first, and only when pyproject.toml or constraints.txt has changed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    ?= results/demo

.PHONY: demo test fuzz docs lint clean

demo: $(VENV)/.installed
	$(BIN)/edgewise run --out $(OUT) --overwrite

test: $(VENV)/.installed-dev
	$(BIN)/ruff check src tests tools benchmarks examples
	$(BIN)/mypy
	$(BIN)/python tests/browser/chromium.py
	$(BIN)/python -m pytest -n 2 --dist loadgroup

fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzz --examples 100000 --seconds 1800 --seed 0 --processes 2 $(FUZZ)

docs: $(VENV)/.installed-docs
	$(BIN)/mkdocs build --strict

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix src tests tools benchmarks examples
	$(BIN)/ruff format src tests tools benchmarks examples

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[ray]' \
	  || echo "ray can't be installed here: its tests will be skipped"
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
