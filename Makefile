# make            the release program: .build/release/ward (the same as make build)
# make debug      everything in debug mode, tests included
# make test       sets up the machine, builds in debug mode, runs every test (mounts real volumes)
# make check      formatting, layering (docs/architecture.md) and script syntax; builds nothing
# make format     formats the Swift sources in place
# make demo       sets up the machine, builds, and lets ward show itself on a volume of its own
# make bench      speed beside gocryptfs and plain tmpfs, and memory; rewrites docs/performance.md (15 minutes)
# make install    installs the built program and its shell completions under PREFIX (and DESTDIR)
# make uninstall  takes them away again
# make clean      removes everything that was built or fetched
#
# Settings: PREFIX=/usr/local, DESTDIR=, SWIFT=swift, TEST= (a filter: make test TEST=WardVolumeTests),
# BENCH= (arguments of benchmarks/compare: make bench BENCH='--size 256M --files 2000'), MEMORY= (the same for
# benchmarks/memory).
# On a new machine start with `make demo`. Everything made lies in .build* and is ignored by git.

SWIFT   ?= swift
PREFIX  ?= /usr/local
DESTDIR ?=
TEST    ?=
BENCH   ?=
MEMORY  ?=

RELEASE := $(SWIFT) build -c release --static-swift-stdlib --product ward
PROGRAM := .build/release/ward
SWIFT_SOURCES := Package.swift $(wildcard Sources Tests)
SHELL_SCRIPTS := scripts/setup .ci/run
PYTHON_SCRIPTS := scripts/check-layering $(wildcard benchmarks/compare benchmarks/memory)

bin := $(DESTDIR)$(PREFIX)/bin/ward
completions := $(addprefix $(DESTDIR)$(PREFIX)/share/, \
    bash-completion/completions/ward zsh/site-functions/_ward fish/vendor_completions.d/ward.fish)

# Two builds at once would wait for each other's lock on .build, and two cores are busy with one.
.NOTPARALLEL:
.PHONY: build debug test check format demo bench install uninstall clean

build:
	@scripts/setup build
	$(RELEASE)

debug:
	@scripts/setup build
	$(SWIFT) build --build-tests

test:
	@scripts/setup test
	$(SWIFT) build --build-tests
ifdef TEST
	$(SWIFT) test --skip-build --filter '$(TEST)'
else
	$(SWIFT) test --skip-build --skip WardMountTests
	$(SWIFT) test --skip-build --filter WardMountTests
endif

check:
	$(SWIFT) format lint --strict --parallel --recursive $(SWIFT_SOURCES)
	scripts/check-layering --self-test
	scripts/check-layering
	for script in $(SHELL_SCRIPTS); do sh -n "$$script" || exit 1; done
	for script in $(PYTHON_SCRIPTS); do \
	    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$$script" || exit 1; \
	done

format:
	$(SWIFT) format --in-place --parallel --recursive $(SWIFT_SOURCES)

demo:
	@scripts/setup demo
	$(RELEASE)
	$(PROGRAM) demo

bench:
	@scripts/setup bench
	$(RELEASE)
	benchmarks/compare --write docs/performance.md $(BENCH)
	benchmarks/memory --write docs/performance.md $(MEMORY)

# Builds nothing, so that `make && sudo make install` leaves no files of root's in .build.
install:
	@test -x $(PROGRAM) || { echo "make: $(PROGRAM) is not there: run make first" >&2; exit 1; }
	install -d $(dir $(bin) $(completions))
	install -m 0755 -s $(PROGRAM) $(bin)
	$(PROGRAM) --generate-completion-script bash >$(word 1,$(completions))
	$(PROGRAM) --generate-completion-script zsh >$(word 2,$(completions))
	$(PROGRAM) --generate-completion-script fish >$(word 3,$(completions))

uninstall:
	rm -f $(bin) $(completions)

clean:
	rm -rf .build .build-*
