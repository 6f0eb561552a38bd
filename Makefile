# make setup: .venv with everything; make demo: the main job; make test: all checks and tests; make quick: a minute of them;
# make docs: the site, in build/site; make test-deploy: the long lane of deployments; make test-ray: the engine on Ray;
# make test-hostile: 1,000 servers that lie; make test-tables: 10,000 odd tables; make fuzz: an hour of fuzzing;
# make bench: all benchmarks beside their peers; make dist: wheel and source archive; make test-wheel: both as a stranger installs
# them; make test-lowest: with the oldest versions it allows; make test-site: all pages in a browser; make coverage: which lines
# tests run; make lint-workflows: .github; make picture: the README's; make lock, make sbom: what silograph depends on.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

FUZZ_SECONDS ?= 3600

.PHONY: setup demo test quick test-deploy test-ray test-hostile test-tables test-wheel test-lowest fuzz docs bench dist lock sbom lint
.PHONY: lint-workflows coverage test-site picture clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "silograph needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv \
		|| { echo "The venv module is missing; install it (Debian: apt-get install python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	@rm -rf demo
	@$(BIN)/silograph sample demo/sites > /dev/null
	@echo "Five sites, learned together without privacy:"
	@$(BIN)/silograph learn demo/sites/*.csv -o demo/open --degree 6
	@echo
	@echo "The same with a total privacy budget for every site:"
	@$(BIN)/silograph learn demo/sites/*.csv -o demo/private --degree 6 --epsilon 2 --delta 1e-6
	@echo
	@echo "Ten regions of clinics learn a model together, with secure sums and a budget for every clinic:"
	@$(BIN)/silograph sample demo/clinics --clinics > /dev/null
	@$(BIN)/silograph run demo/clinics/plan.toml -o demo/models
	@echo
	@echo "Sensors learn a shared start with a budget for every record; new ones make it their own in a few steps:"
	@$(BIN)/silograph sample demo/devices --devices > /dev/null
	@$(BIN)/silograph run demo/devices/plan.toml -o demo/start

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

# For every save: style, types, layers, and a minute of tests.
quick: lint
	$(BIN)/python -m pytest -n 2 -m quick tests

# Every fault that a deployment must survive, with real processes, among them a hundred runs with several faults at once and an
# end at every write; hours on two cores.
test-deploy: setup
	SILOGRAPH_DEPLOY=full $(BIN)/python -m pytest tests/deploy

# Every case of every family on a Ray cluster of this machine, in an environment of its own; ten minutes on two cores.
test-ray: setup
	test -x build/ray/bin/python || $(PYTHON) -m venv build/ray
	build/ray/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray]'
	build/ray/bin/python -m pytest tests/engines/test_on_ray.py

# Random strategies of a server against every method that makes a promise; a few minutes on two cores.
test-hostile: setup
	SILOGRAPH_STRATEGIES=1000 $(BIN)/python -m pytest tests/contracts/test_hostile.py

# Tables in all formats, spoiled or not, through `silograph check`; about ten minutes on two cores.
test-tables: setup
	SILOGRAPH_TABLES=10000 $(BIN)/python -m pytest -n 2 tests/fuzz/test_tables.py

# Fuzzing, guided by coverage, of everything that reads bytes of strangers; build/fuzz has what it finds. FUZZ_SECONDS is the
# time for all targets together.
fuzz: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	cd tests && PYTHONPATH=. OMP_NUM_THREADS=1 ../$(BIN)/python -m fuzz $(FUZZ_SECONDS)

# The documentation; a broken link, name or example is an error. Open build/site/index.html.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The README's picture of a report, as reports look today.
picture: setup
	$(BIN)/python docs/picture.py

# Every page of the site in a browser, wide and narrow, light and dark; some minutes.
test-site: setup
	SILOGRAPH_SITE=full $(BIN)/python -m pytest tests/docs/test_site.py

# Silograph and its peers side by side, each peer in an environment of its own; a page and JSON in build/benchmarks/.
bench: setup
	$(BIN)/python -m benchmarks

# The source archive, and the wheel built from it, in dist/.
dist: setup
	rm -rf dist build/lib
	$(BIN)/python -m build --outdir dist . > /dev/null
	@ls dist

# Both archives in empty environments, far from the repository: the commands of the README, and the quick tests.
test-wheel: dist
	$(BIN)/python tests/release/installed.py dist

# The wheel with the oldest versions that pyproject.toml allows.
test-lowest: dist
	$(BIN)/python tests/release/installed.py dist --lowest

# How much of the package the tests run, line by line; compiled kernels are not seen. A page in build/coverage.
coverage: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov silograph --cov-report term:skip-covered --cov-report html:build/coverage

# Check the workflows against GitHub's own schema, and for ways to let a stranger in.
lint-workflows:
	$(PYTHON) -m venv build/workflows && build/workflows/bin/pip install --quiet check-jsonschema zizmor
	build/workflows/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	build/workflows/bin/zizmor --offline --no-progress --config .github/zizmor.yml .github/workflows

lock: setup
	$(PYTHON) -m venv build/lock && build/lock/bin/pip install --quiet pip-tools
	build/lock/bin/pip-compile --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-trusted-host \
		--no-emit-find-links --strip-extras --no-annotate -c constraints.txt -o build/lock.txt pyproject.toml
	{ sed -n '1,2p' lock.txt; cat build/lock.txt; } > build/lock.new && mv build/lock.new lock.txt

# A list of everything that a plain install installs (CycloneDX), in build/sbom.json.
sbom: setup
	$(PYTHON) -m venv --clear build/sbom && build/sbom/bin/pip install --quiet --require-hashes -r lock.txt
	$(PYTHON) -m venv build/cyclonedx && build/cyclonedx/bin/pip install --quiet cyclonedx-bom
	build/cyclonedx/bin/cyclonedx-py environment build/sbom/bin/python --pyproject pyproject.toml -o build/sbom.json

clean:
	rm -rf .venv demo build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
