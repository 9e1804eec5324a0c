# Everything runs in .venv, which the first target that needs it makes. Needs only Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

TRAIN ?= .venv-train
TRAIN_TESTS ?= -m "not vllm" tests/reward tests/export/test_training.py tests/export/test_tokenizer.py

.PHONY: demo test test-slow test-all test-train test-vllm test-vllm-all lint format bench docs clean

$(STAMP): pyproject.toml
	@echo "Setting up $(VENV), which takes a minute or two."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)  ## The main job on the embedded model: 10 word problems to training shards
	$(BIN)/python scripts/demo.py

test: $(STAMP)  ## The quick tests
	$(BIN)/python -m pytest -n auto -m "not slow and not vllm and not train"

test-slow: $(STAMP)  ## The slow tests: real models, kill and resume
	$(BIN)/python -m pytest -n auto -m "slow and not vllm and not train"

test-all: test test-slow  ## All tests

$(TRAIN)/.installed: pyproject.toml
	test -x $(TRAIN)/bin/python || $(PYTHON) -m venv $(TRAIN)
	$(TRAIN)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(TRAIN)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[train,server]' pytest pytest-xdist hypothesis
	touch $@

test-train: $(TRAIN)/.installed  ## Reward models are trained, and formats take a step in current trl and transformers (1.9 GB)
	OMP_NUM_THREADS=1 $(TRAIN)/bin/python -m pytest -n auto $(TRAIN_TESTS)

test-vllm:  ## The vllm policy on real vLLM on the CPU, in an environment of its own (3 GB)
	PYTHON=$(PYTHON) bash scripts/test_vllm.sh

test-vllm-all:  ## The same with what takes minutes: kill and resume, a replica that dies, a model that does not fit
	PYTHON=$(PYTHON) bash scripts/test_vllm.sh --all

lint: $(STAMP)  ## Style, types and the import rules of docs/design.md
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## Speed and memory of the engine, the answer checker, the journal; results: docs/performance.md
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/answers.py
	$(BIN)/python benchmarks/journal.py --completions 200000

docs: $(STAMP)  ## The command reference, from --help
	$(BIN)/python scripts/make_command_reference.py

clean:
	rm -rf $(VENV) $(TRAIN) .venv-vllm build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
