# make            the release programs: .build/release/ward and ward-lint beside it (the same as make build)
# make debug      everything in debug mode, tests included
# make test       sets up the machine, builds with all checks, runs every test (mounts real volumes); prints what each suite used
#                 of its budget (Tests/budgets). make test TEST=WardVolumeTests runs some, in the build of make debug
# make test-io-uring the tests that mount, with FUSE over io_uring: root, Linux 6.14 or later
# make test-scheduler the tests of workers that yield to programs, one by one: a quiet machine
# make outside    builds a package that uses ward's libraries as anybody's would (make test does, too)
# make examples   builds the Swift package in Examples/ and runs its tests (make test does, too)
# make check      formatting, layering (docs/architecture.md), citations, prose (docs/writing.md),
#                 script syntax; builds nothing
# make format     formats the Swift sources in place
# make demo       sets up the machine, builds, and lets ward show itself on a volume of its own
# make bench      speed beside ext4, gocryptfs, securefs, encfs and a passthrough, and memory; rewrites docs/performance.md; root (an
#                 hour). make bench QUICK=1 takes three minutes and only prints; so does AGAINST=path/to/other/ward, which compares
#                 two builds in one run (docs/hacking.md)
# make crash      cuts the power of simulated disks for two minutes, and, as root, of real file systems for four, beside
#                 gocryptfs: make crash MINUTES=30 REAL=20 SECONDS=3600 SEED=7 (docs/verification.md)
# make crash-peers cuts it for gocryptfs, securefs, encfs and cryfs, and for ext4 itself: the table of docs/durability.md
# make model      checks a model of the lock with spin, and that the model finds mistakes made on purpose: two minutes
# make soak       attacks the lock for ten minutes: make soak MINUTES=60 SEED=7 PROCESSES=24 (docs/verification.md)
# make soak-tsan  the same for three minutes with a debug program under ThreadSanitizer
# make fuzz       gives every parser bytes that nobody expected, for a minute each: make fuzz MINUTES=10 PARSER=json
# make test-fuzz  the same for ten seconds each, and every input that once found a fault; a part of .ci/run
# make sanitize   the tests under AddressSanitizer; make sanitize SANITIZER=thread TEST=WardVolumeTests
# make bench-growth what more names, bytes, files and processes cost, up to a million; rewrites its part of docs/performance.md;
#                 root (half an hour). QUICK=1 takes three minutes and only prints
# make bench-admin ls -R, check and class set -R over 100,000 files; root (20 minutes). QUICK=1: a minute, only prints
# make bench-delayed on a store that takes 1 ms and 50 ms for each request; root (40 minutes). QUICK=1: three minutes, only prints
# make bench-profile where ward's processor time goes in the rows of make bench; root (four minutes). QUICK=1: two minutes
# make bench-lock how long locks and unlocks take; rewrites its part of docs/performance.md (5 minutes)
# make bench-swift what the Swift library's calls cost beside Foundation's own, and simulated devices (2 minutes)
# make release-check  everything that has to hold before a release, one after the other: hours (docs/verification.md)
# make backup-check what backups of a file of 1 GiB send, by restic, rclone and rsync (3 minutes)
# make docs       the Swift libraries' documentation, as a web site in .build-docs (DocC)
# make install    installs the built programs and their shell completions under PREFIX (and DESTDIR)
# make uninstall  takes them away again
# make clean      removes everything that was built or fetched
#
# Settings: PREFIX=/usr/local, DESTDIR=, SWIFT=swift, TEST= (a filter: make test TEST=WardVolumeTests),
# BENCH= (arguments of benchmarks/bench: make bench BENCH='--size 256M --files 2000'), MEMORY=, GROWTH=, ADMIN=,
# DELAYED=, PROFILE=, LOCK= (the same for benchmarks/memory and so on), MINUTES=, SEED=, PROCESSES= (of the soaks), PARSER= (of the fuzzer: fuzz/run --list), SANITIZER=address,
# REAL= (real power cuts for each disk and workload), SECONDS= (for each of their two runs, fewer cuts where time runs out).
# On a new machine start with `make demo`. Everything made lies in .build* and is ignored by git.

SWIFT   ?= swift
PREFIX  ?= /usr/local
DESTDIR ?=
TEST    ?=
BENCH   ?=
QUICK   ?=
AGAINST ?=
MEMORY  ?=
GROWTH  ?=
ADMIN   ?=
DELAYED ?=
LOCK    ?=
SEED    ?=
PROCESSES ?=
PARSER  ?=
SANITIZER ?= address

# Builds in one directory share these flags: with others everything would be built once more. BoringSSL takes a good part of the
# tests' time where it is not optimised. The checks of Swift code stay as they are. The index is there for XCTest, which looks for
# its tests in it, and needs nothing of other modules.
DEBUG_FLAGS := -Xcc -O2 -Xswiftc -index-ignore-system-modules -Xswiftc -index-ignore-clang-modules
# The build of `make test`, in a directory of its own: not optimised, with all checks of a debug build. Two differences save time.
# A module is compiled as a whole, and a program does not examine all of its commands' declarations at each start (0088). One job
# writes a module's interface and its code: with two jobs the declarations of each module would be checked twice.
TEST_FLAGS := -c release --scratch-path .build-tests -Xswiftc -Onone -Xswiftc -enable-testing -Xswiftc -DCHECKED \
    -Xswiftc -no-emit-module-separately-wmo $(DEBUG_FLAGS)
# Swift Testing walks the stack at each throw unless it is told not to (scripts/run-suites does the same).
export SWT_SWIFT_ERROR_BACKTRACING_ENABLED ?= 0

RELEASE := $(SWIFT) build -c release --static-swift-stdlib --product ward
PROGRAM := .build/release/ward
# `ward lint` runs it, from where `ward` lies.
LINT_RELEASE := $(RELEASE)-lint
LINT_PROGRAM := $(PROGRAM)-lint
NEEDS_ROOT = test "$$(id -u)" -eq 0 || { echo "make: this needs root, for a loop device: sudo make $@" >&2; exit 1; }
SWIFT_SOURCES := Package.swift $(wildcard Sources Tests Examples/RunTracker benchmarks/dataprotection fuzz)
SHELL_SCRIPTS := contrib/mount.fuse.ward scripts/setup scripts/sanitize scripts/over-io-uring scripts/leaving-nothing scripts/backup-check .ci/run Tests/GoldenVolumes/make benchmarks/dataprotection/run
PYTHON_SCRIPTS := scripts/check-layering scripts/check-claims scripts/check-prose scripts/check-lengths scripts/check-model scripts/run-suites soak/run fuzz/run fuzz/make-corpus \
    $(wildcard crash/run crash/*.py) $(addprefix benchmarks/,bench growth admin delayed memory lock profile simulator) $(wildcard benchmarks/*.py) \
    Tests/Vectors/generate contrib/ward-reader/test contrib/ward-reader/ward-reader $(wildcard contrib/ward-reader/*/*.py)
CRASH = $(if $(SEED),--seed $(SEED))
SOAK = $(if $(SEED),--seed $(SEED)) $(if $(PROCESSES),--processes $(PROCESSES))

bin := $(addprefix $(DESTDIR)$(PREFIX)/bin/,ward ward-lint)
completions := $(addprefix $(DESTDIR)$(PREFIX)/share/, \
    bash-completion/completions/ward zsh/site-functions/_ward fish/vendor_completions.d/ward.fish)
# mount(8) looks for it in /sbin alone. Left out where ward is installed for one user.
helper := $(if $(filter /usr /usr/local,$(PREFIX)),$(DESTDIR)/sbin/mount.fuse.ward)

# Two builds at once would wait for each other's lock on .build, and two cores are busy with one.
.NOTPARALLEL:
# Each has defaults of its own.
soak: MINUTES ?= 10
soak-tsan: MINUTES ?= 3
fuzz: MINUTES ?= 1
crash: MINUTES ?= 2
crash: REAL ?= 3
crash: SECONDS ?= 150
crash-peers: REAL ?= 5
.PHONY: build debug test test-fuzz test-io-uring test-scheduler examples outside check format demo bench model \
    bench-swift crash crash-peers soak soak-tsan fuzz sanitize docs \
    bench-lock bench-growth bench-admin bench-delayed bench-profile backup-check release-check install uninstall clean

build:
	@scripts/setup build
	$(RELEASE)
	$(LINT_RELEASE)

debug:
	@scripts/setup test
	$(SWIFT) build --build-tests $(DEBUG_FLAGS)

test:
	@scripts/setup test
ifdef TEST
	$(SWIFT) build --build-tests $(DEBUG_FLAGS)
	$(SWIFT) test --skip-build --filter '$(TEST)'
else
	$(SWIFT) build --build-tests $(TEST_FLAGS)
	PYTHONPATH=.build-cryptography Tests/Vectors/generate --check
	PYTHONPATH=.build-cryptography contrib/ward-reader/test
	$(MAKE) outside
	scripts/leaving-nothing scripts/run-suites --skip 'WardMountTests|DataProtectionTests'
	scripts/run-suites --filter 'WardMountTests|DataProtectionTests'
	$(MAKE) examples
endif

# The same inputs each time. Apart from `make test`, because all parsers are built once more for it. .ci/run has both.
test-fuzz:
	@scripts/setup test
	SWIFT='$(SWIFT)' fuzz/run --seconds 10 --seed 1 --runs 20000

test-io-uring:
	@scripts/setup test
	$(SWIFT) build --build-tests $(TEST_FLAGS)
	scripts/over-io-uring scripts/run-suites --filter $(if $(TEST),'$(TEST)',WardMountTests)

test-scheduler:
	@scripts/setup test
	$(SWIFT) build --build-tests $(DEBUG_FLAGS)
	WARD_TEST_SCHEDULER=1 $(SWIFT) test --skip-build --no-parallel \
	    --filter 'LoneGivingWayTests|GivingWayTests|TransportTests'

# A package that uses ward's libraries, for DataProtectionTests to run. In the same scratch directory it finds what is built.
outside: OUTSIDE := Tests/DataProtectionTests/Outside
outside:
	cp Package.resolved $(OUTSIDE)/
	$(SWIFT) build --build-tests $(TEST_FLAGS) --package-path $(OUTSIDE)

# A package of its own; in the same scratch directory it finds what is built of ward.
examples:
	@scripts/setup test
	$(SWIFT) build --build-tests $(TEST_FLAGS) --package-path Examples/RunTracker
	$(SWIFT) test --skip-build $(TEST_FLAGS) --package-path Examples/RunTracker

check:
	$(SWIFT) format lint --strict --parallel --recursive $(SWIFT_SOURCES)
	scripts/check-layering --self-test
	scripts/check-layering
	scripts/check-claims --self-test
	scripts/check-claims
	scripts/check-lengths --self-test
	scripts/check-lengths
	scripts/check-model --self-test
	scripts/check-model --names
	scripts/check-prose --self-test
	scripts/check-prose
	scripts/run-suites --self-test
	benchmarks/bench --self-test
	for script in $(SHELL_SCRIPTS); do bash -n "$$script" || exit 1; done
	for script in $(PYTHON_SCRIPTS); do \
	    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$$script" || exit 1; \
	done

format:
	$(SWIFT) format --in-place --parallel --recursive $(SWIFT_SOURCES)

demo:
	@scripts/setup demo
	$(RELEASE)
	$(LINT_RELEASE)
	$(PROGRAM) demo

# A loop device and what is mounted on it need root. What was measured short, or of two builds, is not for the documents.
bench:
	@$(NEEDS_ROOT)
	@scripts/setup bench
	$(RELEASE)
ifneq ($(AGAINST),)
	benchmarks/bench --ward $(PROGRAM) --against '$(AGAINST)' $(if $(QUICK),--quick) $(BENCH)
else ifneq ($(QUICK),)
	benchmarks/bench --ward $(PROGRAM) --quick $(BENCH)
else
	benchmarks/bench --ward $(PROGRAM) --json benchmarks/results/bench.json --write docs/performance.md $(BENCH)
	benchmarks/memory --write docs/performance.md $(MEMORY)
endif

# Loop devices and mounts of ext4 need root. Both programs with the same settings: else all is built again for each.
crash:
	@scripts/setup crash
	$(SWIFT) build -c release --static-swift-stdlib --product ward-crash
	$(RELEASE)
	.build/release/ward-crash --seconds $$(($(MINUTES) * 60)) $(if $(SEED),--seed $(SEED))
	@if [ "$$(id -u)" -eq 0 ]; then \
	    crash/run --ward $(PROGRAM) --cuts $(REAL) --seconds $(SECONDS) $(CRASH) && \
	    crash/run --ward $(PROGRAM) --cuts $(REAL) --seconds $(SECONDS) --systems ward,ward512 --stores xfs,btrfs $(CRASH); \
	else \
	    echo "make: the power cuts on real file systems need root and are left out: sudo crash/run" >&2; \
	fi

crash-peers:
	@scripts/setup crash
	crash/run --cuts $(REAL) --systems plain,gocryptfs,securefs,encfs,cryfs $(CRASH)

model:
	@scripts/setup model
	scripts/check-model

soak:
	@scripts/setup test
	$(RELEASE)
	soak/run --self-test --quiet
	soak/run --ward $(PROGRAM) --minutes $(MINUTES) $(SOAK)

soak-tsan:
	@scripts/setup test
	$(SWIFT) build --sanitize=thread --scratch-path .build-thread --product ward
	soak/run --ward .build-thread/debug/ward --minutes $(MINUTES) $(SOAK)

fuzz:
	@scripts/setup test
	SWIFT='$(SWIFT)' fuzz/run --seconds $$(($(MINUTES) * 60)) --keep $(if $(PARSER),--parser $(PARSER))

sanitize:
	@scripts/setup test
	SWIFT='$(SWIFT)' scripts/sanitize $(SANITIZER) $(if $(TEST),'$(TEST)')

# Warnings of DocC (a link that leads nowhere) are errors. Builds into .build: the manifest is another one meanwhile.
docs:
	@scripts/setup build
	mkdir -p .build-docs
	for target in DataProtectionLinux DataProtectionTesting DataProtectionGRDB; do \
	    WARD_DOCS=1 $(SWIFT) package $(DEBUG_FLAGS) --allow-writing-to-directory .build-docs generate-documentation --target $$target \
	        --warnings-as-errors --output-path .build-docs/$$target || exit 1; \
	done

bench-growth:
	@$(NEEDS_ROOT)
	@scripts/setup bench
	$(RELEASE)
	benchmarks/growth --ward $(PROGRAM) $(if $(QUICK),--quick,--json benchmarks/results/growth.json --write docs/performance.md) $(GROWTH)

bench-admin:
	@$(NEEDS_ROOT)
	@scripts/setup bench
	$(RELEASE)
	benchmarks/admin --ward $(PROGRAM) $(if $(QUICK),--quick,--json benchmarks/results/admin.json --write docs/performance.md) $(ADMIN)

bench-delayed:
	@$(NEEDS_ROOT)
	@scripts/setup bench
	$(RELEASE)
	benchmarks/delayed --ward $(PROGRAM) $(if $(QUICK),--quick,--json benchmarks/results/delayed.json --write docs/performance.md) $(DELAYED)

bench-profile:
	@$(NEEDS_ROOT)
	@scripts/setup bench
	$(RELEASE)
	benchmarks/profile --ward $(PROGRAM) $(if $(QUICK),--quick,--json benchmarks/results/profile.json) $(PROFILE)

bench-lock:
	@scripts/setup bench
	$(RELEASE)
	benchmarks/lock --write docs/performance.md $(LOCK)

backup-check:
	@scripts/setup test
	$(RELEASE)
	scripts/backup-check $(PROGRAM)

# What takes longest comes last: whatever fails, fails early. Each has a scratch directory of its own.
release-check:
	$(MAKE) check
	WARD_TEST_ALL=1 $(MAKE) test
	$(MAKE) test-scheduler
	$(MAKE) test-io-uring
	$(MAKE) model
	$(MAKE) docs
	$(MAKE) demo
	$(MAKE) backup-check
	$(MAKE) fuzz MINUTES=10
	$(MAKE) sanitize SANITIZER=address
	$(MAKE) sanitize SANITIZER=thread
	$(MAKE) crash MINUTES=10 REAL=10 SECONDS=1200
	$(MAKE) soak-tsan MINUTES=10
	$(MAKE) soak MINUTES=60

bench-swift:
	@scripts/setup build
	$(RELEASE)
	benchmarks/dataprotection/run
	benchmarks/simulator --write docs/performance.md

# Builds nothing, so that `make && sudo make install` leaves no files of root's in .build.
install:
	@for program in $(PROGRAM) $(LINT_PROGRAM); do \
	    test -x $$program || { echo "make: $$program is not there: run make first" >&2; exit 1; }; \
	done
	install -d $(sort $(dir $(bin) $(completions) $(helper)))
	install -m 0755 -s $(PROGRAM) $(LINT_PROGRAM) $(dir $(firstword $(bin)))
	$(if $(helper),install -m 0755 contrib/mount.fuse.ward $(helper))
	$(PROGRAM) --generate-completion-script bash >$(word 1,$(completions))
	$(PROGRAM) --generate-completion-script zsh >$(word 2,$(completions))
	$(PROGRAM) --generate-completion-script fish >$(word 3,$(completions))

uninstall:
	rm -f $(bin) $(completions) $(helper)

clean:
	rm -rf .build .build-*
