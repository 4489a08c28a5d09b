# make demo    the main job: build an image, launch two ranks, train      make test    one real test of each capability (9 minutes)
# make check   lint, types, prose, unit tests (a minute)                  make bench   the figures of docs/reference/figures.md
# make soak    all variants, loops and pages of the manual (three hours)  make setup   what all of them need
# make dist    wheel and source archive, checked                          make bundle  one file with its own Python
# make gpu     a test of this machine's GPUs          make gpu-kit what it needs on a machine without a network
# make pythons unit tests and demo with each Python from 3.11 to 3.14    make docs    the documentation website, in site/
SHELL = /bin/sh
VENV ?= .venv
PY = "$(VENV)/bin/python"
UV = $(PY) -m uv
PYTHON ?= python3
STAMP = $(VENV)/.ready
CHECK_STAMP = $(VENV)/.check
SITE_STAMP = $(VENV)/.docs
SHIPPED = src/argosy/core/scripts/*.sh src/argosy/jobs/live/data/*.sh src/argosy/runtimes/scripts/*.sh src/argosy/launch/launchers/data/*.sh src/argosy/launch/script/data/*.sh
# Failed tests run once more, alone: on a busy machine a real cluster may miss a deadline. Two failures count.
EACH = --no-loadscope-reorder -m "not soak" tests/lab tests/docs tests/examples tests/real tests/contract tests/bench
AGAIN = echo "once more, alone, what failed:"; $(PY) -m pytest -q -n 1 --dist loadgroup --last-failed --last-failed-no-failures none

# Without byte code, each program that a test starts compiles all of its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo check static unit test prepare soak bench gpu gpu-kit pythons dist bundle docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml tools/setup
	sh tools/setup "$(PYTHON)" "$(VENV)"
	@touch "$@" "$(CHECK_STAMP)"

# lint and unit tests start few programs, so that they run without root on machines that have no lab
$(CHECK_STAMP): pyproject.toml tools/setup
	sh tools/setup "$(PYTHON)" "$(VENV)" check
	@touch "$@"

demo: $(STAMP)
	@$(PY) examples/demo.py

check: $(CHECK_STAMP)
	@$(MAKE) --no-print-directory -j2 unit static

static: $(CHECK_STAMP)
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(PY) tools/check_prose.py
	$(PY) -c "from importlinter.cli import lint_imports_command as run; run()"
	PATH="$(VENV)/bin:$$PATH" shfmt -i 4 -ci -sr -d $(SHIPPED)
	shellcheck $(SHIPPED)
	shellcheck -x tools/setup tools/pythons .ci/run lab/rootfs lab/in lab/cluster lab/lib/*.sh lab/lib/in-* lab/lib/fabric lab/lib/node-*
	shellcheck src/argosy/builder/*/*.sh src/argosy/*/scripts/*.sh
	shellcheck -s sh -e SC1091,SC2016,SC2034,SC2154 src/argosy/wrap/templates/*.sh
	shellcheck -s sh -e SC2154 src/argosy/bench/data/settings.sh
	shellcheck -e SC1091 src/argosy/cli/templates/tykky.sh src/argosy/cli/templates/completion.bash
	shellcheck -x -P packaging/bundle packaging/modulefiles packaging/bundle/build packaging/bundle/*.sh

unit: $(CHECK_STAMP)
	$(PY) -m pytest -q -n auto tests/unit

test: $(STAMP) $(CHECK_STAMP)
	@$(MAKE) --no-print-directory -j3 unit static prepare
	$(PY) -m pytest -q -n 4 --dist loadgroup $(EACH) || { $(AGAIN) $(EACH); }

prepare: $(STAMP)
	@$(PY) -m tests.prepare

soak: $(STAMP) $(SITE_STAMP)
	ARGOSY_SOAK=1 $(PY) -m pytest -q tests

bench: $(STAMP)
	$(PY) -m bench

# A machine with GPUs may have no network: without a virtual environment, the kit has what is needed.
gpu:
	@if [ -x $(PY) ]; then set -- $(PY); else set -- "$(PYTHON)"; fi; \
	"$$@" -m gpu --torch-image "$(TORCH_IMAGE)"

gpu-kit: $(STAMP)
	@$(PY) -m gpu.kit

pythons:
	@sh tools/pythons

dist: $(STAMP)
	rm -f dist/argosy-*.whl dist/argosy-*.tar.gz
	$(UV) build -q --out-dir dist
	$(UV) tool run -q twine check --strict dist/argosy-*.whl dist/argosy-*.tar.gz
	@cd dist && sha256sum argosy-*.whl argosy-*.tar.gz

docs: $(SITE_STAMP)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --clean
	@echo "open site/index.html"

$(SITE_STAMP): $(STAMP)
	$(PY) -m pip install -q --disable-pip-version-check -e '.[docs]'
	@touch "$@"

bundle:
	@packaging/bundle/build

clean:
	rm -rf "$(VENV)" .mypy_cache .ruff_cache .pytest_cache
