# On a fresh machine with Python 3.10 or newer and g++, `make demo` and `make test` set up a virtual environment and install everything.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
ISA ?= avx2
REPLAY_BASE ?= HEAD~1
REPLAY ?=
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help install demo test test-rest test-isa test-all quick fuzz replay golden operators node-tests lint bench bench-gpu export clean

help: ## this list
	@echo "make TARGET, where TARGET is one of:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/.installed: setup.cfg pyproject.toml
	@echo "setting up $(VENV): some 120 MB from the package index, a minute or two"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

install: $(BIN)/.installed ## a virtual environment in .venv with aitc and what its tests need

demo: $(BIN)/.installed ## compile a trained model for cpu (and the GPU if there is one), verify it, run it on an image
	$(BIN)/python -m models demo

test: $(BIN)/.installed ## the tests of a change: every kind of test, in minutes (tests/README.md)
	$(PYTEST) -m "not full" tests

test-rest: $(BIN)/.installed ## what `make test` leaves out: more sizes, configurations, models and targets of each kind
	AITC_TEST_FULL=1 $(PYTEST) -m full tests

test-isa: $(BIN)/.installed ## the tests of cpu code (conformance, kernels, models) with another instruction set than the machine's widest: ISA (avx2)
	AITC_TEST_ISA=$(ISA) $(PYTEST) tests/conformance/test_cpu.py tests/conformance/test_cases.py tests/kernels/cpu tests/models/test_tiny_on_cpu.py \
	  tests/models/test_runtime.py tests/models/test_data_decides.py

test-all: test test-rest ## all tests that this machine can run

quick: $(BIN)/.installed ## `make test` without its slow ones
	$(PYTEST) -m "not slow and not full" tests

fuzz: $(BIN)/.installed ## the property tests with fresh random examples (a failure prints how to reproduce it), every form of the node tests
	AITC_TEST_FUZZ=1 $(PYTEST) tests/property tests/conformance/test_variants.py

replay: $(BIN)/.installed ## what the change does to the code generated for models/tiny: against REPLAY_BASE (HEAD~1); REPLAY=--check fails if anything does
	$(BIN)/python tests/replay.py --base $(REPLAY_BASE) $(REPLAY)

golden: $(BIN)/.installed ## rewrite the expected texts of tests/golden: review the difference
	$(BIN)/python -m pytest -q tests/golden --rewrite

operators: $(BIN)/.installed ## the table of operators (docs/operators.md, aitc check) from the registry and the recorded runs
	$(BIN)/python tests/conformance/table.py

node-tests: $(BIN)/.installed ## ONNX's node tests on cpu, and for h200 and mi250 on the emulator, into the table (an hour)
	mkdir -p out
	$(BIN)/python tests/conformance/on_device.py --target cpu --jobs $(JOBS) --seconds 86400 --json out/cpu.json
	$(BIN)/python tests/conformance/on_device.py --target h200 --emulate --jobs $(JOBS) --seconds 86400 --json out/h200.json
	$(BIN)/python tests/conformance/on_device.py --target mi250 --emulate --jobs $(JOBS) --seconds 86400 --json out/mi250.json
	$(BIN)/python tests/conformance/table.py --add out/cpu.json --add out/h200.json --add out/mi250.json

lint: $(BIN)/.installed ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(BIN)/.installed ## latency on this processor beside ONNX Runtime, into bench/results/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[models]'
	$(BIN)/python -m bench.cpu

bench-gpu: $(BIN)/.installed ## latency on this machine's GPU beside PyTorch, into bench/results/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[models]'
	$(BIN)/python -m bench.gpu

export: $(BIN)/.installed ## the example models in full size, into out/models/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[models]'
	$(BIN)/python -m models export all

clean: ## the virtual environment, outputs and caches of tools
	rm -rf $(VENV) out build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
