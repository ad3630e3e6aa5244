# make run     install, cluster an example, find odd faces, then the paper's tables and figures as one page
# make documents    tables and figures in docs/, from the records in results/runs
# make studio  install, then open the page on which sets are played with
# make test    install, then format, lint, types, laws, doctests, and every printed command
# make laws    install, then test the laws of the operators on many random examples (minutes to hours)

PYTHON ?= python3
BIN := .venv/bin
TORCH := $(shell sed -n 's/^\(torch==.*\)/\1/p' constraints.txt)
CHECK_SHAPES := --jaxtyping-packages=picaset,beartype.beartype
LAWS := $(addprefix tests/test_,$(addsuffix .py,set_laws cascade evaluation_orders buckets sets soft_kmeans canonicalize batched_em amortized_mixture))

.PHONY: run studio test laws documents format clean

run: .venv/installed
	mkdir -p report
	$(BIN)/picaset cluster --example --set island --compare --plot report/islands.png
	$(BIN)/picaset faces --out report
	$(BIN)/picaset reproduce --profile quick

studio: .venv/installed
	$(BIN)/picaset studio

test: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/pytest -q -n 2 $(CHECK_SHAPES)
	$(BIN)/pytest -q -n 2 -m as_installed

laws: .venv/installed
	PICASET_HYPOTHESIS=laws $(BIN)/pytest -q -n 2 -m hypothesis $(CHECK_SHAPES) $(LAWS)

documents: .venv/installed
	$(BIN)/picaset report --runs results/runs --out report
	$(BIN)/picaset faces --out report/figures
	cp report/tables.md docs/tables.md
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
	rm -rf .venv tour report faces
