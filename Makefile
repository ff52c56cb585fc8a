# Two commands on a fresh machine: `make demo` does the main job on real data, `make test` checks what a change needs.
# `make landing` also runs representatives of the slow tests and of those that need another program, such as a real
# TorchServe, a browser or a Ray cluster; `make test-all` runs all tests. They need Python 3.11 or newer, and for a
# TorchServe Java 11 or newer.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PEER := .venvs/peer
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Ten times as fast as pip. It reads no configuration of pip: where it finds no package index, pip installs.
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt
EXTRAS := dev,docs,examples,explain,onnx,serve,grpc
DIGITS := examples/digits
# Two more than there are cores: many tests wait, for servers, for workers and for handlers that hang.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
PYTEST = $(BIN)/python -m pytest -n $(JOBS)
# Tests that share a server or a cluster run one after another in one process: tests/conftest.py divides the tests.
GROUPED = $(PYTEST) --dist loadscope --no-loadscope-reorder

# Ray's tests run alone and in a process of their own: Ray gives up if the machine is busy, and adopts the processes of
# other tests.
RAY := tests/scoring/test_on_ray.py tests/exporting/test_ray_serve_live.py
EVERY = $(GROUPED) --durations=20 -m "$(1)" $(RAY:%=--ignore=%) && $(BIN)/python -m pytest -m "$(1)" $(RAY)

.PHONY: demo test landing test-all fuzz fuzz-pickles coverage lint types layers tests peer toolkit format bench soak release-check docs reference snapshots pictures clean

demo: $(VENV)/.runtime
	cd $(DIGITS) && $(CURDIR)/$(BIN)/marpack build
	cd $(DIGITS) && $(CURDIR)/$(BIN)/marpack inspect digits.mar
	cd $(DIGITS) && $(CURDIR)/$(BIN)/marpack run digits.mar --input samples/

# The first three need one core, which the tests, many of which wait, leave to them.
test: $(VENV)/.dev
	@$(MAKE) --jobs --output-sync=line lint types layers tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports --no-cache

tests: $(VENV)/.dev
	$(PYTEST) --dist worksteal $(TESTS)

# What every change of the main branch needs.
landing: $(VENV)/.dev peer
	$(call EVERY,not slow)

test-all: $(VENV)/.dev peer
	$(call EVERY,)

# Bytes from elsewhere, changed at random: so many of each of five kinds. FUZZ=200 make fuzz: fewer.
fuzz: $(VENV)/.dev
	FUZZ=$(or $(FUZZ),20000) $(PYTEST) -m slow tests/fuzz

# Compare marpack with Python's unpicklers on a million generated pickles and 10,000 files that wrap pickles.
# ORACLE="--bare 10000 --wrapped 100 --seed 7" make fuzz-pickles: fewer, and others.
fuzz-pickles: $(VENV)/.dev
	cd tests && PYTHONPATH=.. ../$(BIN)/python -m fuzz.run_oracle $(ORACLE)

# Every test, each worker traced: it takes half as long again.
coverage: $(VENV)/.dev peer
	$(BIN)/coverage erase
	$(GROUPED) -m "" --cov --cov-report= $(RAY:%=--ignore=%)
	$(BIN)/python -m pytest -m "" --cov --cov-append --cov-report= $(RAY)
	$(BIN)/coverage report

# A real TorchServe, in a venv of its own, if there is Java. Without it, the tests that compare with it are skipped.
peer: $(VENV)/.runtime
	@if command -v java >/dev/null; then $(BIN)/python tests/conformance/make_peer.py $(PEER); \
	elif [ -n "$$MARPACK_REQUIRE_PEER" ]; then echo "Java is needed to compare with a real TorchServe" >&2; exit 1; \
	else echo "Java is not installed: the comparison with a real TorchServe is skipped"; fi

# AWS's inference toolkit, for the comparison in tests/worker/handlers/test_sagemaker.py. It uses torch of this venv.
toolkit: $(VENV)/.dev
	$(PYTHON) -m venv .venvs/sagemaker
	.venvs/sagemaker/bin/pip install --quiet --no-deps sagemaker-inference==1.10.1 sagemaker-pytorch-inference==2.0.25 six scipy
	$(BIN)/python -c "import site; print(*site.getsitepackages())" > "$$(.venvs/sagemaker/bin/python -c 'import site; print(*site.getsitepackages())')/torch.pth"

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

# A served model under load for so many minutes: nothing fails, nothing grows. SOAK=2 make soak: fewer. ABUSE=1: with
# killed workers, clients that cancel and slow connections.
soak: $(VENV)/.dev
	$(BIN)/python -m benchmarks.serve --part soak --minutes $(or $(SOAK),10) $(if $(ABUSE),--abuse)

# What a release has to show. RELEASE=--without-address make release-check: while the repository has no address.
release-check: $(VENV)/.dev
	$(BIN)/python -m tools.release $(RELEASE)

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict

# What the docs are printed from the code: run after changing a message, a help text or the API.
reference: $(VENV)/.dev
	$(BIN)/python -m tools.reference

# What each command prints, in tests/snapshots: run after changing a message, and look at the difference.
snapshots: $(VENV)/.dev
	SNAPSHOTS=write $(BIN)/python -m pytest -q tests/cli/test_snapshots.py

pictures: $(VENV)/.dev
	$(BIN)/python -m tools.pictures

clean:
	rm -rf $(VENV) .venvs .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first and by its exact version: a range would fetch gigabytes of CUDA where only the CPU is wanted. Workers write
# no bytecode: it is compiled here, of what they import.
$(VENV)/.runtime: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) torch uv
	$(UV) --compile-bytecode -e . || $(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(UV) -e '.[$(EXTRAS)]' || $(PIP) -e '.[$(EXTRAS)]'
	@touch $@
