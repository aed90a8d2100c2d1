# Every target makes the virtual environment that it needs; nothing else has to be installed but Python and make.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/ready
CUDA_BIN := .venv-cuda/bin
CUDA_STAMP := .venv-cuda/ready

# What runs only where Numba-CUDA is installed, and is measured by `make test-cuda`, but for what only the simulator runs.
COMPILED := */numba_cuda/launch.py,*/numba_cuda/words.py

# One malloc setting for every candidate of a benchmark: freed memory is kept, so that no call pays page faults at random.
MEASURED := MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=33554432

# How long `make fuzz` runs, and on what; `make faults` and `make mutants` use one seed, so that a run is repeatable.
MINUTES ?= 10
TARGET ?= alignpack
SEED ?= 1

# Set, as in `make test COVERAGE=1`, it measures coverage and fails below a floor; the tests then take half as long again.
COVERAGE ?=

# A stored result, such as bench/results/cpu.json, that `make bench` fails against when a ratio got worse.
COMPARE ?=

.PHONY: setup demo test test-quick test-cuda test-torch nightly interop check fuzz faults mutants bench bench-growth bench-quick bench-pages wheel clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	# torch by its exact version: a range would make pip look beyond the pinned build.
	$(BIN)/python -m pip install --quiet $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fuzz,demo]' --group dev
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/pack_documents.py

# One process runs all tests but those of the CUDA simulator: Numba simulates CUDA in a process or does not.
ifneq ($(COVERAGE),)
test: $(STAMP)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	NUMBA_ENABLE_CUDASIM=1 $(BIN)/coverage run -m pytest tests/backends/numba_cuda/simulator
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include 'reference/*' --fail-under 97
	$(BIN)/coverage report --include 'optimized/*' --omit '$(COMPILED)' --fail-under 97
	$(BIN)/coverage report --include 'fuzz/*'
else
test: $(STAMP)
	$(BIN)/python -m pytest
	NUMBA_ENABLE_CUDASIM=1 $(BIN)/python -m pytest tests/backends/numba_cuda/simulator
endif

test-quick: $(STAMP)
	$(BIN)/python -m pytest -m "not slow and not nightly"

# The tests on another PyTorch than the pinned one, in an environment of its own without pins: TORCH=torch==2.8.0, or torch for the newest.
TORCH ?= torch==2.8.0
TORCH_BIN := .venv-$(TORCH)/bin

test-torch:
	$(PYTHON) -m venv .venv-$(TORCH)
	$(TORCH_BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(TORCH_BIN)/python -m pip install --quiet "$(TORCH)"
	$(TORCH_BIN)/python -m pip install --quiet --editable '.[fuzz,demo]' --group dev
	$(TORCH_BIN)/python -m pytest

nightly: $(STAMP)
	$(BIN)/python -m pytest -m nightly

# The CUDA kernels compiled for several kinds of GPU; no GPU is needed, but the compiler is, in an environment of its own.
$(CUDA_STAMP): pyproject.toml constraints.txt constraints-cuda.txt
	$(PYTHON) -m venv .venv-cuda
	$(CUDA_BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(CUDA_BIN)/python -m pip install --quiet $$(grep '^torch==' constraints.txt)
	$(CUDA_BIN)/python -m pip install --quiet --constraint constraints.txt --constraint constraints-cuda.txt \
		--editable '.[cuda,fuzz]' --group cuda-tests \
		|| { echo "the CUDA compiler could not be installed, so nothing is known of the kernels" >&2; exit 1; }
	touch $(CUDA_STAMP)

test-cuda: $(CUDA_STAMP)
	COVERAGE_FILE=.coverage-cuda $(CUDA_BIN)/coverage run -m pytest tests/backends/numba_cuda/compiled
	COVERAGE_FILE=.coverage-cuda $(CUDA_BIN)/coverage report --include '$(COMPILED)' --fail-under 85

# alignpack beside NeMo AutoModel, which pins other packages apart: an environment of its own, tests that the others do not collect.
NEMO_BIN := .venv-nemo/bin

.venv-nemo/ready: pyproject.toml constraints.txt constraints-nemo.txt
	$(PYTHON) -m venv .venv-nemo
	$(NEMO_BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(NEMO_BIN)/python -m pip install --quiet $$(grep '^torch==' constraints.txt)
	$(NEMO_BIN)/python -m pip install --quiet --constraint constraints.txt --constraint constraints-nemo.txt \
		--editable '.[fuzz]' --group nemo-tests
	# What it asks for pulls in GPU packages; the packing, the model and its context parallelism need what is above.
	$(NEMO_BIN)/python -m pip install --quiet --no-deps --constraint constraints-nemo.txt nemo-automodel
	touch .venv-nemo/ready

interop: .venv-nemo/ready
	$(NEMO_BIN)/python -m pytest -o addopts="--import-mode=importlib -ra" -o filterwarnings= tests/interop/nemo

check: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

fuzz: $(STAMP)
	$(BIN)/alignpack-fuzz --target $(TARGET) --minutes $(MINUTES) --report fuzz-report.json

faults: $(STAMP)
	$(BIN)/python -m tests.faults --seed $(SEED)

# Changes MODULE in a clone of what is committed, in MUTANTS places, and prints the changes that no test notices.
MUTANTS ?= 25

.venv-mutants/ready:
	$(PYTHON) -m venv .venv-mutants
	.venv-mutants/bin/python -m pip install --quiet "cosmic-ray>=8.7"
	touch .venv-mutants/ready

mutants: $(STAMP) .venv-mutants/ready
	.venv-mutants/bin/python tests/mutants.py $(MODULE) --mutants $(MUTANTS) --seed $(SEED)

bench: $(STAMP)
	$(MEASURED) $(BIN)/python -m pytest bench --benchmark-enable --benchmark-only $(if $(COMPARE),--compare $(COMPARE))

bench-growth: $(STAMP)
	$(MEASURED) $(BIN)/python -m pytest bench/bench_growth.py --benchmark-enable --benchmark-only

bench-quick: $(STAMP)
	$(BIN)/python -m pytest bench

bench-pages: $(STAMP)
	$(BIN)/python -m bench.pages

wheel: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation
	$(BIN)/python .ci/check_wheel.py dist/*.whl

clean:
	rm -rf .venv .venv-cuda .venv-mutants .venv-nemo dist build fuzz-report.json gpu-check .alignpack-fuzz .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
