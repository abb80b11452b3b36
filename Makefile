# Two commands on a fresh clone (Python >= 3.11, a C++ compiler, make): `make demo` and `make test`.
# PYTHON picks the interpreter, JAX the version of jax, JAXSPARSE_CUDA=AUTO|ON|OFF the CUDA kernels (cmake/decide.py), WHEEL
# a wheel that is there already. The environment under build/ follows them: after a change it is made anew.
PYTHON ?= python3
JAX ?= jax>=0.10.2
VENV ?= build/venv
JOBS ?= 2
TESTS ?= tests
REPORT ?= build/$(notdir $(VENV)).xml
WHEEL ?=
SHARE ?= 1
SEED ?= 0
FOLDERS := jaxsparse cuda cpu cmake CMakeLists.txt pyproject.toml
SOURCES := $(shell git ls-files $(FOLDERS) 2>/dev/null | grep . || find $(FOLDERS) -type f -not -name '*.pyc' -not -name '*.so' 2>/dev/null)

# A pipe fails when any part of it does. Of the wheel's build one sees what cmake and ninja say of their progress.
SHELL := bash
.SHELLFLAGS := -o pipefail -c
PROGRESS := -e 's/^\( *\(\[[0-9]*\/[0-9]*\]\|-- \|\*\*\* \).\{0,140\}\).*/\1/p' -e '/error:\|FAILED:\|jaxsparse: /Ip'

export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: test skips demo check docs dev native wheel aarch64 stand-in asan ubsan tsan fuzz soak test-gpu gpu-check clean FORCE

# The wheel is built in its own environment, installed in a clean one, and tested from outside of the tree. worksteal: a
# worker keeps to its half of the tests, in order, so that what several tests of a file compile is compiled once. REPORT:
# a JUnit file of what passed and what was skipped, for `make skips`. SHARE: of the tests, 0 to 1, drawn with SEED.
test: $(VENV)/installed
	mkdir -p build/outside && cd build/outside && $(abspath $(VENV))/bin/python -m pytest \
	  -c $(CURDIR)/pyproject.toml --rootdir $(CURDIR) -n $(JOBS) --dist worksteal --junitxml $(abspath $(REPORT)) \
	  --share $(SHARE) --share-seed $(SEED) \
	  $(addprefix $(CURDIR)/,$(TESTS))

# A test that each of these runs has and skipped tests nothing, unless it needs what no machine of ours for CI has (a GPU,
# data files), is run by `make check`, or is a case that an implementation does not have.
REPORTS ?= build/venv.xml build/newest.xml
ELSEWHERE = GPU|CUDA|cuda|mma.sync|Hopper|compute capability|torch|JAXSPARSE_DATA|no mypy|no pyright
NO_CASE = the reference|one kernel for all calls|16 bytes|16-byte|the same network|not on this device
skips:
	$(PYTHON) cmake/report_tests.py $(REPORTS) --but '$(ELSEWHERE)|$(NO_CASE)'

demo: $(VENV)/installed
	$(VENV)/bin/python examples/demo.py

# What the environment was made for. Rewritten only when it changes.
SETTINGS = PYTHON=$(PYTHON) JAX=$(JAX) WHEEL=$(WHEEL) \
  JAXSPARSE_CUDA=$(JAXSPARSE_CUDA) JAXSPARSE_CUDA_ARCHITECTURES=$(JAXSPARSE_CUDA_ARCHITECTURES)
$(VENV).settings: FORCE
	@mkdir -p $(@D)
	@echo '$(SETTINGS)' | cmp -s - $@ || { rm -rf $(VENV) && echo '$(SETTINGS)' > $@; }

$(VENV)/installed: $(SOURCES) $(VENV).settings
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "jaxsparse needs Python >= 3.11: make PYTHON=...")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	@rm -rf $(VENV)/wheel && mkdir -p $(VENV)/wheel
ifeq ($(WHEEL),)
	@echo "building the wheel (minutes); log: build/wheel.log"
	@$(VENV)/bin/python -m pip wheel -v --no-deps --wheel-dir $(VENV)/wheel . 2>&1 | tee build/wheel.log \
	  | sed -un $(PROGRESS) || { tail -n 60 build/wheel.log; echo "the wheel was not built: build/wheel.log" >&2; exit 1; }
else
	cp $(WHEEL) $(VENV)/wheel
endif
	$(VENV)/bin/python -m pip install --quiet --force-reinstall --no-deps $(VENV)/wheel/*.whl
	$(VENV)/bin/python -m pip install --quiet "$(JAX)" "$$(ls $(VENV)/wheel/*.whl)[demo,test]"
	touch $@
	@cd build && $(abspath $(VENV))/bin/python -m jaxsparse.info

# Lint, format, and types: ours, and those that a user's script sees under mypy and pyright. `make dev` brings the tools.
check: dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs $(VENV)/bin/clang-format --dry-run --Werror
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python
	$(VENV)/bin/codespell
	mkdir -p build/outside && cd build/outside && $(abspath $(VENV))/bin/python -m pytest \
	  -q -c $(CURDIR)/pyproject.toml --rootdir $(CURDIR) $(CURDIR)/tests/typing

# The site, in build/site; a broken link is an error.
docs: $(VENV)/installed
	$(VENV)/bin/python -m pip install --quiet "$$(ls $(VENV)/wheel/*.whl)[docs]"
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

dev: $(VENV)/installed
	$(VENV)/bin/python -m pip install --quiet "$$(ls $(VENV)/wheel/*.whl)[dev]"

# The CPU module beside the sources, for work on kernels: after a change, only what it touches is compiled again. The
# environment has what compiles and tests it, with the oldest jax.
NATIVE := build/native
native: $(NATIVE)/installed
	$(NATIVE)/venv/bin/cmake -S . -B $(NATIVE) -G Ninja -DJAXSPARSE_CUDA=OFF \
	  -DPython_EXECUTABLE=$(abspath $(NATIVE))/venv/bin/python -DCMAKE_MAKE_PROGRAM=$(abspath $(NATIVE))/venv/bin/ninja
	$(NATIVE)/venv/bin/cmake --build $(NATIVE) -j $(JOBS)
	$(NATIVE)/venv/bin/cmake --install $(NATIVE) --prefix .
	@echo "now: $(NATIVE)/venv/bin/python -m pytest tests/ops/<op>"

$(NATIVE)/installed: pyproject.toml
	test -x $(NATIVE)/venv/bin/python || $(PYTHON) -m venv $(NATIVE)/venv
	$(NATIVE)/venv/bin/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); e = p["project"]; \
	  print("cmake", "ninja", *p["build-system"]["requires"], *e["dependencies"], *e["optional-dependencies"]["test"], sep="\n")' \
	  > $(NATIVE)/requirements.txt
	$(NATIVE)/venv/bin/python -m pip install --quiet -r $(NATIVE)/requirements.txt
	touch $@

# The wheels for everybody, in dist/: every architecture of the release, manylinux, no compiler needed. WHEELS=abi3: without
# the one for Python 3.11.
WHEELS ?= all
wheel:
	$(PYTHON) cmake/release.py --wheels $(WHEELS)

# The CPU module for aarch64, cross-compiled, and its smoke test under qemu.
aarch64: $(VENV)/installed
	JOBS=$(JOBS) cmake/cross_aarch64.sh

# The CUDA handlers and the host code of the kernels, without a GPU: objects that a build of the CUDA module left under
# build/ are linked with a substitute for NVIDIA's runtime, which checks each call and launches nothing.
stand-in: $(VENV)/installed
	$(VENV)/bin/python tests/ffi/stand_in/build.py build/stand_in
	cd build && $(abspath $(VENV))/bin/python $(CURDIR)/tests/ffi/stand_in/run.py stand_in/_cuda.so --jobs $(JOBS)

# The CPU module with a sanitizer, under build/<name>; SUITE: what runs with it (cmake/sanitize/run.sh has a default).
SUITE ?=
asan ubsan tsan: $(NATIVE)/installed
	JOBS=$(JOBS) cmake/sanitize/run.sh $@ $(SUITE)

# Random problems of every operation against float64: values, gradients, vmap, a mesh, any choice of variants; on a GPU
# where JAX sees one. SEED=new draws a seed. What fails is printed with the line that runs it again.
SECONDS ?= 60
fuzz: $(VENV)/installed
	cd build && $(abspath $(VENV))/bin/python $(CURDIR)/tests/fuzz/run.py --seconds $(SECONDS) --seed $(SEED)

# Long runs: measures memory while programs are compiled, called and dropped, or (JOB=training) while a network trains
# beside its dense form for SECONDS. Exits 1 if memory grows, something is not freed, or the two networks differ.
JOB ?= memory
RECOMPILES ?= 20000
CALLS ?= 2000000
soak: $(VENV)/installed
	cd build && $(abspath $(VENV))/bin/python $(CURDIR)/tests/soak/run.py --job $(JOB) --recompiles $(RECOMPILES) \
	  --calls $(CALLS) --seconds $(SECONDS)

# The tests on a machine with a GPU, and one table of what passed, failed, and was skipped why.
test-gpu: $(VENV)/installed
	mkdir -p build/outside && cd build/outside && { $(abspath $(VENV))/bin/python -m pytest -q -n $(JOBS) \
	  --junitxml $(CURDIR)/build/gpu.xml -c $(CURDIR)/pyproject.toml --rootdir $(CURDIR) $(addprefix $(CURDIR)/,$(TESTS)) || true; }
	$(VENV)/bin/python cmake/report_tests.py build/gpu.xml

# NVIDIA's checkers over small problems of the kernels, called from JAX. TOOLS: which; COUNT: problems of each operation.
# A process for each operation, JOBS at once. Kernels of others are left out, but for initcheck, to which what they wrote
# would be unwritten. Without CUDA graphs, in which memcheck reports XLA's own kernels now and then.
TOOLS ?= memcheck racecheck initcheck synccheck
COUNT ?= 6
gpu-check: $(VENV)/installed
	cd build && $(abspath $(VENV))/bin/python $(CURDIR)/tests/fuzz/gpu_check.py --tools $(TOOLS) --count $(COUNT) \
	  --seed $(SEED) --jobs $(JOBS)

clean:
	rm -rf build dist
