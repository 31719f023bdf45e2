# Woolly in two commands: `make run` and `make test`. Everything they make lies in .venv and build; `make clean` removes it.

VENV    ?= .venv
MODEL   ?= smollm2
PROMPT  ?= What is gravity? Answer in two sentences.
OPTIONS ?= --temperature 0
N       ?= 100000
SEED    ?= 1
export PYTHON VENV MODEL PROMPT LOCKED

BIN     := $(VENV)/bin
STAMP   := $(VENV)/.built$(if $(PYTHON),-$(notdir $(PYTHON)))
# The tests of what reads strangers' bytes: they must reach every branch of it (pyproject.toml names the files).
COVERED := tests/gguf tests/text/test_worker.py
NATIVE  := $(shell find woolly/device/cpu -name '*.cpp' -o -name '*.h' -o -name '*.inl')

help:
	@echo 'make run     set up, then answer a question; PROMPT="..." MODEL=... OPTIONS="..." ask another'
	@echo 'make test    set up, then check style and types and run all tests, a part of them under the sanitizers'
	@echo 'make fuzz    read N=$(N) mutated files from ten seeds, load a twentieth of them, and encode as many texts'
	@echo 'make soak    the tests that take long: many more rounds, and limits as they are shipped'
	@echo 'make arm     the tests of the native core once more, compiled for ARM and run under an emulator'
	@echo 'make wheel   build a wheel into dist, which installs without a compiler; make try-wheel does so, and asks it'
	@echo 'make build   set up only: a virtual environment in $(VENV) with the package compiled into it'
	@echo 'make dev     the same, for all instruction sets, with the tools for changing Woolly: pytest, ruff, mypy'
	@echo 'make lock    write requirements.lock anew: one version of every package, with the hashes of its files'
	@echo 'make clean   remove everything that make has made'
	@echo 'LOCKED=1 installs the files of requirements.lock and no others, instead of the newest versions that will do.'
	@echo 'PYTHON=... and CXX=... choose another Python (3.11 or newer) and another compiler (C++20).'

run: build
	@$(BIN)/python -m woolly run "$$MODEL" "$$PROMPT" $(OPTIONS) </dev/null

build: $(STAMP)

$(STAMP): pyproject.toml CMakeLists.txt tools/setup.sh $(NATIVE)
	@sh tools/setup.sh build
	@touch $@

dev: $(VENV)/.dev

$(VENV)/.dev: $(STAMP)
	@sh tools/setup.sh dev
	@touch $@

test: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo 'mypy --strict, beside the tests of what reads strangers'"'"' bytes'
	@$(BIN)/mypy --strict >build/mypy.log 2>&1 & types=$$!; \
	$(BIN)/coverage run -m pytest $(COVERED) && $(BIN)/coverage report; tests=$$?; \
	wait $$types; types=$$?; cat build/mypy.log; [ $$tests -eq 0 ] && [ $$types -eq 0 ]
	@echo 'pytest, and what time it leaves goes into compiling the native core with the sanitizers (build/san.log)'
	@nice -n 10 sh tools/setup.sh san >build/san.log 2>&1 & \
	$(BIN)/python -m pytest -n 4 --dist loadfile $(addprefix --ignore=,$(COVERED)); tests=$$?; \
	wait; exit $$tests
	@sh tools/sanitize.sh

fuzz: dev
	$(BIN)/python -m tests.fuzz.run --count $(N) --seed $(SEED)
	$(BIN)/python -m tests.fuzz.run --count $$(($(N) / 20)) --seed $(SEED) --what model
	$(BIN)/python -m tests.fuzz.texts strings "$$MODEL" --count $(N) --seed $(SEED)
	$(BIN)/python -m tests.fuzz.texts long "$$MODEL"

soak: dev
	$(BIN)/python -m pytest -m soak --timeout 3600
	$(BIN)/python -m pytest -m 'hypothesis and not soak' --hypothesis-profile soak --timeout 3600

arm: dev
	@sh tools/arm.sh

lock: build
	@sh tools/lock.sh

wheel: build
	@sh tools/wheel.sh

try-wheel: wheel
	@sh tools/try_wheel.sh

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find woolly tests -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help run build dev test fuzz soak arm lock wheel try-wheel clean
