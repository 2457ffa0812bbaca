# Two commands for a newcomer: make quickstart, make test. Needs python3 (with headers), g++ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CLEAN := $(abspath $(VENV)-wheel)
TRITON36 := $(VENV)/triton36
NATIVE := $(shell find csrc -name '*.cpp' -o -name '*.h' -o -name '*.S' -o -name '*.inc' 2>/dev/null)
FORMATTED := $(shell find csrc tests/native -name '*.cpp' -o -name '*.h' 2>/dev/null)
STAMPS := $(VENV)/.stamps
NEXT := $(abspath $(VENV)-next)
TORCH_NEXT ?= 2.14.1
FUZZ_SECONDS ?= 600
MEMCHECKED ?= tests/gpu/test_programs.py tests/gpu/test_constructs.py tests/gpu/test_rows.py
RACECHECKED ?= tests/gpu/test_programs.py
export MAX_JOBS ?= 2
# What `make test` runs: all tests, or some files and folders.
TESTS ?= tests
# Processes that run the tests; a file's tests stay in one of them.
TEST_WORKERS ?= 2
IN_WORKERS := -n $(TEST_WORKERS) --dist loadfile

.PHONY: docs kernels release quickstart test nightly lint format typecheck wheel wheel-twice wheel-test gpu build clean help \
    sanitize fuzz test-torch-next gpu-sanitize

help:
	@echo "make quickstart   make .venv, build, run examples/quickstart.py"
	@echo "make test         run the tests (on the CPU where there is no GPU); TESTS=tests/op for a part"
	@echo "make nightly      the long runs: $(RANDOM_PROGRAMS) random programs from a seed of the day, kills, forks, fuzzing"
	@echo "make lint         ruff, mypy, clang-format"
	@echo "make format       let ruff and clang-format rewrite the sources"
	@echo "make docs         build the site of docs/ in build/site, with all its links checked"
	@echo "make wheel        write one wheel for every Python that is here to dist/, without torch"
	@echo "make release      the wheel with the kernels of tileops.ops (make kernels) inside"
	@echo "make wheel-twice  the same, and again elsewhere: both must have the same bytes"
	@echo "make wheel-test   build the wheel, install it in a clean environment, run the quickstart there"
	@echo "make sanitize     the C++ unit tests of the core under ASan and UBSan"
	@echo "make fuzz         mutated descriptions to the C++ readers for FUZZ_SECONDS (600), envelopes for a sixth"
	@echo "make test-torch-next  the wheel and the CPU tests on torch $(TORCH_NEXT): several gigabytes"
	@echo "make gpu-sanitize on a GPU machine: memcheck and racecheck over a part of tests/gpu"
	@echo "make gpu          on a GPU machine: build with its own $(PYTHON), run $(GPU_PARTS); results in $(GPU_OUT)"

quickstart: build
	$(BIN)/python examples/quickstart.py

test: build $(STAMPS)/triton36
	TILEOPS_OTHER_TRITON=$(abspath $(TRITON36)) $(BIN)/python -m pytest $(TESTS) $(IN_WORKERS) $(PYTEST_ARGS)

# New programs each night; a failure names its seed, which makes the same program anywhere.
RANDOM_PROGRAMS ?= 2000
RANDOM_SEED ?= $(shell date +%Y%m%d)0000
nightly: build $(STAMPS)/triton36
	TILEOPS_NIGHTLY=1 TILEOPS_TEST_SEED=$(RANDOM_SEED) $(MAKE) test
	TILEOPS_RANDOM_PROGRAMS=$(RANDOM_PROGRAMS) TILEOPS_RANDOM_BUNDLES=1000 TILEOPS_RANDOM_SEED=$(RANDOM_SEED) \
	    TILEOPS_OTHER_TRITON=$(abspath $(TRITON36)) $(BIN)/python -m pytest tests/property $(PYTEST_ARGS)
	TILEOPS_REAL_PAIRS=1 $(BIN)/python -m pytest tests/pairs/test_programs.py -k sm_90 $(PYTEST_ARGS)
	TILEOPS_KILLS=200 $(BIN)/python -m pytest tests/cache/test_processes.py $(PYTEST_ARGS)
	TILEOPS_FORKS=1000 $(BIN)/python -m pytest tests/forks $(PYTEST_ARGS)
	TILEOPS_FLEET_CALLS=10000 TILEOPS_FLEET_NODES=64 TILEOPS_MUTATED_ENVELOPES=100000 \
	    $(BIN)/python -m pytest tests/fleet $(PYTEST_ARGS)
	TILEOPS_BUILDS=1 $(BIN)/python -m pytest tests/packages $(PYTEST_ARGS)
	$(MAKE) fuzz

lint: $(STAMPS)/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(FORMATTED)

typecheck: $(STAMPS)/tools
	$(BIN)/mypy

format: $(STAMPS)/tools
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(FORMATTED)

build: $(STAMPS)/built

# The pages of docs/ as a site, in an environment of its own. A link that leads nowhere is an error.
docs: $(STAMPS)/site
	NO_MKDOCS_2_WARNING=1 $(VENV)-site/bin/mkdocs build --quiet --clean --config-file .ci/mkdocs.yml

$(STAMPS)/site: .ci/requirements-docs.txt
	$(PYTHON) -m venv $(VENV)-site
	$(VENV)-site/bin/python -m pip install --quiet --disable-pip-version-check -r .ci/requirements-docs.txt
	mkdir -p $(STAMPS)
	touch $@

# One wheel for each Python in PYTHONS: interpreters, or folders of headers; without them for every
# supported one that is here. It needs neither torch nor Triton: setuptools and pybind11 of $(PYTHON)
# where it has them (.ci/can_build.py), else an environment with those two alone.
PYTHONS ?=
CAN_BUILD := $(PYTHON) .ci/can_build.py
wheel:
	rm -rf dist
	set -e; python=$(PYTHON); \
	    if ! $(CAN_BUILD); then \
	        python=$(VENV)-build/bin/python; $(PYTHON) -m venv $(VENV)-build; \
	        $$python -m pip install --quiet --disable-pip-version-check "setuptools>=77" "pybind11>=2.13"; \
	    fi; \
	    $$python -m distribution.build_wheel --out dist $(PYTHONS)

# Two builds from two folders must have the same bytes.
wheel-twice: wheel
	VENV=$(VENV) .ci/wheel_twice $(PYTHON) $(PYTHONS)

# The operators of tileops.ops for common sizes, compiled for each target without a GPU: an hour on
# two cores. KERNELS=--sizes 4096 --targets cuda:sm_90 for a part. `make wheel` needs none of it.
KERNELS ?=
kernels: build
	rm -rf build/kernels
	$(BIN)/python .ci/kernels.py build/kernels $(KERNELS)

release: wheel kernels
	set -e; for wheel in dist/*.whl; do $(BIN)/python .ci/add_kernels.py $$wheel build/kernels; done

# Nothing of this folder may be seen: another environment, another working directory, only the wheel.
# Where $(PYTHON) has torch and Triton, that environment sees its packages and needs no network.
# Only for this Python: the compiler's time is the test's.
wheel-test:
	$(MAKE) --no-print-directory wheel PYTHONS="$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	rm -rf $(CLEAN)
	set -e; if $(CAN_BUILD) --test; then \
	    $(PYTHON) -m venv --without-pip $(CLEAN); \
	    $(PYTHON) -m pip --python $(CLEAN)/bin/python install --quiet --disable-pip-version-check \
	        --no-deps --no-index dist/*.whl; \
	    $(PYTHON) .ci/can_build.py --packages >$$(ls -d $(CLEAN)/lib/python*/site-packages)/zz_python.pth; \
	else \
	    $(PYTHON) -m venv $(CLEAN); \
	    $(CLEAN)/bin/python -m pip install --quiet --disable-pip-version-check \
	        "$$(grep '^torch==' requirements-dev.txt)" dist/*.whl; \
	fi
	set -e; audited=$$(mktemp -d); if [ -x $(BIN)/auditwheel ]; then \
	    PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --only-plat -w $$audited dist/*.whl \
	        --plat manylinux_2_28_$$(uname -m) --exclude libtorch_cpu.so; \
	    ls $$audited; \
	fi; rm -rf $$audited
	set -e; elsewhere=$$(mktemp -d); cp examples/quickstart.py $$elsewhere; cd $$elsewhere; \
	    export TILEOPS_CACHE_DIR=$$elsewhere/cache; $(CLEAN)/bin/python quickstart.py; \
	    $(CLEAN)/bin/python -m tileops env; rm -rf $$elsewhere

# Uses this machine's own Python, torch and Triton; installs nothing and needs no network.
# GPU_PARTS: tests random sanitize host pairs, or some of them; logs and results go to GPU_OUT.
GPU_PARTS ?= tests host
GPU_OUT ?= build/gpu
gpu:
	PYTHON=$(PYTHON) .ci/gpu $(GPU_OUT) $(GPU_PARTS)

sanitize: $(STAMPS)/tools
	$(BIN)/python -m tests.native.build unit

fuzz: $(STAMPS)/tools
	$(BIN)/python -m tests.native.build fuzz --seconds $(FUZZ_SECONDS) \
	    $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))
	$(BIN)/python -m tests.fleet.fuzz --seconds $$(($(FUZZ_SECONDS) / 6)) \
	    $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

# The wheel as it is, built against the torch of requirements-dev.txt, on a later torch. The tests
# run from a copy without the package, so that they import the installed one.
test-torch-next: wheel
	rm -rf $(NEXT)
	$(PYTHON) -m venv $(NEXT)
	$(NEXT)/bin/python -m pip install --quiet --disable-pip-version-check \
	    "torch==$(TORCH_NEXT)" dist/*.whl "pytest>=8" "hypothesis>=6.100" "numpy>=1.26"
	mkdir $(NEXT)/tree
	cp -r tests csrc docs examples benchmarks pyproject.toml Makefile $(NEXT)/tree
	cd $(NEXT)/tree && $(NEXT)/bin/python -m pytest tests/runtime tests/op tests/jit tests/cpu \
	    tests/programs tests/bundle $(PYTEST_ARGS)

gpu-sanitize:
	$(PYTHON) -m tests.gpu.sanitizing memcheck $(MEMCHECKED)
	$(PYTHON) -m tests.gpu.sanitizing racecheck $(RACECHECKED)

clean:
	rm -rf build dist *.egg-info tileops/*.so $(STAMPS)/built

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/tools: requirements-dev.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@mkdir -p $(STAMPS) && touch $@

# The isolated folder in which the tests compile under the oldest Triton.
$(STAMPS)/triton36: | $(STAMPS)/tools
	rm -rf $(TRITON36)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    --target $(TRITON36) "triton==3.6.*"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/built: $(STAMPS)/tools setup.py pyproject.toml $(NATIVE)
	-$(BIN)/python -m pip uninstall --quiet --yes tileops 2>/dev/null  # the former name
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	    --editable .
	@mkdir -p $(STAMPS) && touch $@
