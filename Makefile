# make run     install, cluster an example, find odd faces, then the paper's tables and figures as one page
# make documents    tables and figures in docs/ and README, from the records in results/
# make studio  install, then open the page on which sets are played with
# make test    install, then format, lint, types, laws, doctests, and every printed command
# make shapes  install, then all tests with every shape and type of the package checked as it runs (half an hour)
# make test-library    install in .venv-library, then the tests of the library alone, for CONSTRAINTS=constraints-oldest.txt too
# make docs    install, then execute the notebooks and write the site to site/; warnings are errors
# make release-check    install, then build the release, install it in empty environments, and follow the README there
# make dist    install, then build sdist and wheel into dist/
# make fuzz    install, then give mutated files to everything that reads files of others (hours; goes on where it was interrupted)
# make faults  install, then plant faults in a copy of the source, one at a time; the tests must notice each (twenty minutes)
# make laws    install, then test the laws of the operators on many random examples (minutes to hours)

PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
PROGRAMS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := .venv/$(PROGRAMS)
LIBRARY := .venv-library/$(PROGRAMS)
TORCH := $(shell sed -n 's/^\(torch==.*\)/\1/p' constraints.txt)
CHECK_SHAPES := --jaxtyping-packages=picaset,beartype.beartype
SHAPES := $(addprefix tests/test_,$(addsuffix .py,cascade evaluation_orders buckets sets soft_kmeans canonicalize batched_em set_norm))
LAWS := $(addprefix tests/test_,$(addsuffix .py,set_laws cascade evaluation_orders buckets sets soft_kmeans canonicalize batched_em amortized_mixture))

LIBRARY_TESTS := $(addprefix tests/test_,$(addsuffix .py,sets errors set_laws cascade buckets soft_kmeans canonicalize large_sets \
  pretrained compatibility weights kernels amortized_mixture set_classifier set_features set_anomaly_detector tables \
  cluster_command classify_command onnx hub training reports studio_application threads))

TESTS_OF_ONE_CORE := test-shapes test-types test-ray test-triton

.PHONY: run studio test test-main $(TESTS_OF_ONE_CORE) shapes test-library docs dist release-check fuzz faults laws documents format clean

run: .venv/installed
	mkdir -p report
	$(BIN)/picaset cluster --example --set island --compare --plot report/islands.png
	$(BIN)/picaset faces --out report
	$(BIN)/picaset reproduce --profile quick

studio: .venv/installed
	$(BIN)/picaset studio

# The tests of one core run one after the other beside the main ones, which leave a core idle at times.
test: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --jobs 2 test-main $(TESTS_OF_ONE_CORE)

test-main:
	$(BIN)/pytest -q -n 2 --dist worksteal -m 'not ray'

test-types:
	$(BIN)/pyright

test-shapes:
	PICASET_HYPOTHESIS=shapes $(BIN)/pytest -q $(CHECK_SHAPES) -k 'literal_equation or not set_laws' tests/test_set_laws.py $(SHAPES)

test-ray:
	$(BIN)/pytest -q -m ray tests/test_ray.py

test-triton:
	TRITON_INTERPRET=1 $(BIN)/pytest -q -m triton tests/test_triton_attention.py

shapes: .venv/installed
	$(BIN)/pytest -q -n 2 -m 'not ray' $(CHECK_SHAPES)

# Warnings of other versions of the dependencies are no errors here.
test-library:
	$(PYTHON) -m venv --clear .venv-library
	$(LIBRARY)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(LIBRARY)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable '.[tests]'
	$(LIBRARY)/python -m pytest -q -n 2 -o filterwarnings= $(LIBRARY_TESTS)

docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: .venv/installed
	$(BIN)/python -m build --no-isolation

release-check: .venv/installed
	$(BIN)/python -m tests.release_check $(if $(TAG),--tag $(TAG)) $(if $(OUT),--out $(OUT))

fuzz: .venv/installed
	$(BIN)/python -m tests.fuzz

faults: .venv/installed
	$(BIN)/python -m tests.planted_faults

laws: .venv/installed
	PICASET_HYPOTHESIS=laws $(BIN)/pytest -q -n 2 -m hypothesis $(CHECK_SHAPES) $(LAWS)
	TRITON_INTERPRET=1 $(BIN)/pytest -q -n 2 -k PicasoPool -W ignore::RuntimeWarning $(addprefix tests/test_,set_laws.py weights.py)

documents: .venv/installed
	$(BIN)/picaset report --runs results/runs --out report
	$(BIN)/picaset faces --out report/figures
	cp report/tables.md docs/tables.md
	$(BIN)/python examples/write_documents.py
	$(BIN)/python examples/choosing_tables.py
	$(BIN)/python -m benchmarks.clusterer_tables
	$(BIN)/python -m benchmarks.performance_tables
	cp report/figures/*.png docs/figures/

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# torch first and alone, by its pin: asked for by another package, pip would take a build with gigabytes of GPU libraries.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("picaset needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11 $(MAKECMDGOALS)" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[development]'
	touch $@

clean:
	rm -rf .venv .venv-library tour report faces site dist
