# `make` alone explains itself. Everything happens inside .venv; tools/setup.sh makes it.
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help up quick test test-long test-clients bench-clients coverage warm check format docs docs-screens docs-cast wheel bench fresh clean environment dev-environment packages

PY := .venv/bin/python
# More arguments for what the target runs: make up ARGS="--port 5051", make test ARGS="-k ticket -x".
ARGS =
# Where `make wheel` puts what it builds.
DIST = dist
# What `make coverage` runs: TESTS=tests/wire.
TESTS =
# Tests wait for processes more than they compute, so three workers suit two cores; files stay together, and
# tests/conftest.py says which come first.
WORKERS = -n 3 --dist loadfile --no-loadscope-reorder

# $(call quiet,command,advice): output and advice only when the command fails.
quiet = report=$$($(1) 2>&1) || { printf '%s\n' "$$report" "$@: $(2)" >&2; exit 1; }

help:
	@echo 'Bascule: one local daemon through which AI agents act.'
	@echo
	@echo '  make up            install into .venv if needed and run the daemon here; Ctrl-C stops it'
	@echo '  make check         the static checks alone: format, lint, types, imports, generated docs'
	@echo '  make quick         the tests that need no process, display or disk of their own: 36 s'
	@echo '  make test          what CI runs: the static checks, then every test but the long ones'
	@echo '  make test-long     every test with the large counts (an hour, not minutes)'
	@echo '  make test-clients  real Claude Code, Codex and Gemini CLI from npm, scripted model (minutes, 900 MB)'
	@echo '  make coverage      branch coverage by package, the worst first; TESTS=tests/wire runs some of the tests'
	@echo '  make bench-clients what our hooks cost a call in each of them, beside no hook (minutes)'
	@echo '  make fresh         make up, make test and the wheels in a new, minimal Debian that is removed afterwards'
	@echo '  make format        rewrite the sources the way `make check` wants them'
	@echo '  make docs          write the generated reference pages again'
	@echo '  make docs-screens  take the pictures of docs/console.md again, from a scripted day (minutes)'
	@echo '  make docs-cast     play the scene of the README with a daemon and draw it again: docs/img/undo.svg (seconds)'
	@echo '  make wheel         build wheels and sdists of gabp, bascule-mod and bascule into dist/'
	@echo '  make bench         measure; installs what it compares with first'
	@echo '  make clean         remove .venv and caches; your messages and settings stay where they are'
	@echo
	@echo 'ARGS passes more arguments:  make up ARGS="--port 5051"   make test ARGS="-k ticket -x"'
	@echo 'PYTHON chooses the Python:   make up PYTHON=/path/to/python3.12'

# exec: the daemon replaces the shell, so Ctrl-C and SIGTERM reach it and make waits until it has stopped.
up: environment
	@exec .venv/bin/bascule up $(ARGS)

# CPU-bound, so two workers suit two cores. BASCULE_QUICK chooses the files listed in tests/quick.py.
quick: dev-environment
	@BASCULE_QUICK=1 $(PY) -m pytest -q -n 2 --dist loadfile $(ARGS)

test: packages warm check
	@$(PY) -m pytest $(WORKERS) $(ARGS)

# In a new clone each worker would compile all tests for itself: 16 s of CPU. One process does it beside the checks, which
# keep one core busy for longer than it takes; nobody waits for it.
warm: dev-environment
	@$(PY) -m pytest --collect-only -qq >/dev/null 2>&1 &

# BASCULE_LONG raises the counts inside tests; -m overrides the default that leaves `long` tests out.
test-long: packages warm check
	@sh tools/setup.sh packages long
	@BASCULE_LONG=1 $(PY) -m pytest $(WORKERS) -m 'long or not long' $(ARGS)

# Only the loopback is there while they run: no client calls home, and none needs an account.
test-clients: packages dev-environment
	@place=$$(BASCULE_TEST_INSTALL=1 $(PY) tests/npm_tools.py tests/clients/npm_packages.json) && \
	BASCULE_CLIENTS="$$place" sh tools/only_loopback.sh $(PY) -m pytest -m clients tests/clients $(ARGS)

bench-clients: packages dev-environment
	@place=$$(BASCULE_TEST_INSTALL=1 $(PY) tests/npm_tools.py tests/clients/npm_packages.json) && \
	BASCULE_CLIENTS="$$place" sh tools/only_loopback.sh $(PY) tests/clients/measure_calls.py $(ARGS)

# The table is printed also when a test fails: what it measured is still true.
coverage: packages dev-environment
	@rm -rf build/coverage && mkdir -p build/coverage
	@.venv/bin/coverage run -m pytest -q $(WORKERS) $(ARGS) $(TESTS); failed=$$?; \
	.venv/bin/coverage combine --quiet && .venv/bin/coverage json --quiet -o build/coverage/report.json && \
	$(PY) tools/coverage_table.py build/coverage/report.json && exit $$failed

check: dev-environment
	@# Two of the tools say a page when all is well: they are heard only when it is not.
	@$(call quiet,.venv/bin/ruff format --check --output-format concise .,run: make format)
	@.venv/bin/ruff check --quiet .
	@.venv/bin/mypy --no-error-summary
	@$(call quiet,.venv/bin/lint-imports --no-logo,the layers are drawn in docs/architecture.md)
	@$(PY) tools/gen_tools.py --check
	@$(PY) tools/gen_docs.py --check
	@echo 'check: format, lint, types, imports and generated docs are fine'

format: dev-environment
	@.venv/bin/ruff check --silent --exit-zero --fix .
	@.venv/bin/ruff format .

docs: dev-environment
	@$(PY) tools/gen_tools.py
	@$(PY) tools/gen_docs.py

docs-screens: packages dev-environment
	@$(PY) tests/console/screens.py $(ARGS)

docs-cast: dev-environment
	@$(PY) tools/cast.py $(ARGS)

# Without isolation: with the hatchling that pyproject.toml names. gabp first: the others stand on it.
wheel:
	@rm -f '$(DIST)'/*.whl '$(DIST)'/*.tar.gz
	@builder=$$(sh tools/setup.sh builder) && for package in packages/gabp packages/bascule-mod .; do \
		$(call quiet,$$builder/bin/python -m build --no-isolation --outdir '$(DIST)' $$package,$$package could not be built); \
	done
	@ls '$(DIST)'/*.whl '$(DIST)'/*.tar.gz

bench: environment
	@sh tools/setup.sh env bench
	@sh tools/setup.sh packages bench
	@$(PY) bench/pythons.py $(ARGS)

# The system's Python: the point is what happens without our .venv, and root must not make one here.
fresh:
	@sh tools/setup.sh packages fresh
	@python3 tools/fresh.py $(ARGS)

clean:
	@rm -rf .venv .venv-bench .venv-build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage dist build
	@find . -type d -name __pycache__ -prune -exec rm -rf {} +

environment:
	@sh tools/setup.sh env

dev-environment:
	@sh tools/setup.sh env dev

packages:
	@sh tools/setup.sh packages
