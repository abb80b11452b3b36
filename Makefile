# Two commands on a fresh clone (Python >= 3.11, a C++ compiler, make): `make demo` and `make test`.
# PYTHON picks the interpreter, JAX the version of jax; each pair gets its own environment under build/.
PYTHON ?= python3
JAX ?= jax>=0.10.2
VENV ?= build/venv
JOBS ?= 2
TESTS ?= tests
SOURCES := $(shell git ls-files jaxsparse cuda cpu cmake CMakeLists.txt pyproject.toml 2>/dev/null)

# A pipe fails when any part of it does. Of the wheel's build one sees what cmake and ninja say of their progress.
SHELL := bash
.SHELLFLAGS := -o pipefail -c
PROGRESS := -e 's/^\( *\(\[[0-9]*\/[0-9]*\]\|-- \|\*\*\* \).\{0,100\}\).*/\1/p' -e '/error:\|FAILED:/Ip'

export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: test demo check dev clean

# The wheel is built in its own environment, installed in a clean one, and tested from outside of the tree.
test: $(VENV)/installed
	mkdir -p build/outside && cd build/outside && $(abspath $(VENV))/bin/python -m pytest \
	  -c $(CURDIR)/pyproject.toml --rootdir $(CURDIR) -n $(JOBS) $(addprefix $(CURDIR)/,$(TESTS))

demo: $(VENV)/installed
	$(VENV)/bin/python examples/demo.py

$(VENV)/installed: $(SOURCES)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "jaxsparse needs Python >= 3.11: make PYTHON=...")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	@echo "building the wheel (minutes; with nvcc the CUDA kernels too: JAXSPARSE_CUDA=OFF leaves them out); log: build/wheel.log"
	@rm -rf build/wheel && mkdir -p build
	@$(VENV)/bin/python -m pip wheel -v --no-deps --wheel-dir build/wheel . 2>&1 | tee build/wheel.log \
	  | sed -un $(PROGRESS) || { tail -n 60 build/wheel.log; echo "the wheel was not built: build/wheel.log" >&2; exit 1; }
	$(VENV)/bin/python -m pip install --quiet --force-reinstall --no-deps build/wheel/*.whl
	$(VENV)/bin/python -m pip install --quiet "$(JAX)" "$$(ls build/wheel/*.whl)[demo,test]"
	cd build && $(abspath $(VENV))/bin/python -m jaxsparse.info
	touch $@

# Lint, format and types; `make dev` brings the tools.
check: dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs $(VENV)/bin/clang-format --dry-run --Werror
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python

dev: $(VENV)/installed
	$(VENV)/bin/python -m pip install --quiet clang-format==23.1.5 pre-commit pyright==1.1.414 ruff==0.17.5

clean:
	rm -rf build dist
