# Two commands on a fresh machine: `make demo` does the main job on real data, `make test` checks what a change needs.
# `make test-all` runs the rest: what takes minutes, and what is compared with a real TorchServe. All they need is
# Python 3.11 or newer, and for that comparison Java 11 or newer. `make test-all FULL=1` makes every comparison;
# otherwise it leaves out most slow tests of parts that are unchanged (tests/independent.py has the rule).
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PEER := .venvs/peer
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DIGITS := examples/digits
# Two more than there are cores: many tests wait, for servers, for workers and for handlers that hang.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
PYTEST = $(BIN)/python -m pytest -n $(JOBS)
PEER_BIN = "$(if $(wildcard $(PEER)/bin),$(CURDIR)/$(PEER)/bin,$(MARPACK_PEER))"

.PHONY: demo test test-all slow independent ray fuzz fuzz-pickles coverage lint types layers tests peer toolkit format bench soak release-check docs reference snapshots pictures clean

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

# With Java there is a real TorchServe to compare with, in a venv of its own; without it those tests say so and skip.
test-all: $(VENV)/.dev peer
	$(MAKE) slow
	$(MAKE) ray

# One file's tests stay together: a real TorchServe, started for all of them, is not started by each process.
slow: $(VENV)/.dev
	MARPACK_PEER=$(PEER_BIN) MARPACK_COMPARE=$(if $(FULL),all) $(PYTEST) --dist loadfile -m "(slow or peer) and not ray" $(TESTS)

# All tests that are left out while what they depend on is unchanged: are the recordings of TorchServe true, do the
# hostile files run code, do the examples train to what is committed, does every example work on Ray Serve and in an
# image? Run it after changing these, and commit tests/verified.txt.
independent: $(VENV)/.dev peer
	MARPACK_PEER=$(PEER_BIN) MARPACK_COMPARE=all $(PYTEST) --dist loadfile -m "(peer or independent) and not ray" tests
	MARPACK_COMPARE=all $(BIN)/python -m pytest -m ray tests
	cd tests && ../$(BIN)/python -m independent

# Clusters, one by one and after the rest: Ray gives up if a node is not up within 30 s, as on a busy machine. (5: there
# were no such tests.)
ray: $(VENV)/.dev
	MARPACK_COMPARE=$(if $(FULL),all) $(BIN)/python -m pytest -m ray $(TESTS) || [ $$? = 5 ]

# Bytes from elsewhere, changed at random: so many of each of five kinds. FUZZ=200 make fuzz: fewer.
fuzz: $(VENV)/.dev
	FUZZ=$(or $(FUZZ),20000) $(BIN)/python -m pytest -n $(JOBS) -m slow tests/fuzz

# Compare marpack with Python's unpicklers on a million generated pickles and 10,000 files that wrap pickles.
# ORACLE="--bare 10000 --wrapped 100 --seed 7" make fuzz-pickles: fewer, and others.
fuzz-pickles: $(VENV)/.dev
	cd tests && PYTHONPATH=.. ../$(BIN)/python -m fuzz.run_oracle $(ORACLE)

# Every test, each worker traced: it takes half as long again.
coverage: $(VENV)/.dev peer
	$(BIN)/coverage erase
	MARPACK_PEER=$(PEER_BIN) MARPACK_COMPARE=all $(PYTEST) --dist loadfile -m "" --cov --cov-report= $(TESTS)
	$(BIN)/coverage report

peer: $(VENV)/.dev
	@if command -v java >/dev/null; then $(BIN)/python tests/conformance/make_peer.py $(PEER); \
	elif [ -n "$$MARPACK_REQUIRE_PEER" ]; then echo "Java is needed to compare with a real TorchServe" >&2; exit 1; \
	else echo "no Java here: the comparison with a real TorchServe is skipped"; fi

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

# torch first and by its exact version: a range would fetch gigabytes of CUDA where only the CPU is wanted.
$(VENV)/.runtime: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) torch
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(PIP) -e '.[dev,docs,examples,explain,onnx,serve,grpc]'
	@touch $@
