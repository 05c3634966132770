# `make train` does the main job, `make test` runs every check, `make docs` builds the site.  All make .venv first.
# `ROLLAX_THOROUGH=1 make test` runs more cases of the tests, as .ci/run does; `make test WORKERS=16` suits more cores.
# `make browser` gives the tests of reports a Chromium, where Debian's packages can be installed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TOOLS := .venv/.tools
WORKERS ?= 2

.PHONY: install train test lint docs api browser clean

install: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $(STAMP)

# Everything that tests, lint and the site need: all extras, with PyTorch and Ray.
$(TOOLS): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $(STAMP) $(TOOLS)

train: install
	$(BIN)/rollax train

lint: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/ty check

test: $(TOOLS) lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

docs: $(TOOLS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # not --quiet: then warnings would not count

# The lists of names in docs/api.md, from the code.
api: $(TOOLS)
	$(BIN)/python tools/api_page.py

browser:
	command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null)

clean:
	rm -rf .venv runs build dist
