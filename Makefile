# make demo: everything on a real model; make plain, test, lint, types, layers: what CI runs.
PYTHON ?= python3
VENV ?= .venv
OUT ?= out
BIN = $(VENV)/bin

.PHONY: demo plain test lint types layers built fuzz coverage releases ray bench cuda install

demo: $(VENV)/.runtime
	$(BIN)/qevict-diag reproduce --out $(OUT)/

# The commands in an environment without extras; give it a VENV of its own.
plain: $(VENV)/.runtime
	$(BIN)/python tests/plain_install.py

# One thread in each of two processes: threads that wait for each other are slow where processes share cores.
test: install
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: built
	cd build/types && $(abspath $(BIN))/mypy --config-file $(CURDIR)/pyproject.toml -p qevict_diag

# Who may import whom: .importlinter.
layers: built
	cd build/types && $(abspath $(BIN))/lint-imports $(CURDIR)/.importlinter

# The folders become one package only when installed, so that is what types and layers look at.
built: install
	rm -rf build/types
	$(BIN)/pip install --quiet --no-deps --target build/types .

# Long runs: ten thousand mutated traces; how often intervals cover the truth; the recorder under four releases of
# transformers, every command under the lowest bounds, the suite under other Pythons; costs as ratios.
fuzz: install
	$(BIN)/python tests/fuzz_trace.py 10000

coverage: install
	$(BIN)/python tests/interval_coverage.py 20000

releases: install
	$(BIN)/nox

ray: install
	$(BIN)/pip install --quiet '.[ray]'
	$(BIN)/pytest -m ray

bench: install
	$(BIN)/python benchmarks/recording.py
	$(BIN)/python benchmarks/replay.py --reference --long

# For the day a GPU is at hand, eight minutes at most; DRY=--dry tries the script on the CPU.
cuda: install
	$(BIN)/python benchmarks/gpu.py --json $(OUT)/cuda.json $(DRY)

install: $(VENV)/.installed

$(VENV)/.installed: $(VENV)/.runtime
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,dev]'
	touch $@

# What a user has: no extras.
$(VENV)/.runtime: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@
