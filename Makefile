# What people do with a clone: `make run`, `make test`, `make demo`, `make bench`. Each sets up what it needs.

CARGO ?= cargo
# What is built lies here: the program, and examples that are measured.
BUILT = target/release
UNDERCROFT = $(BUILT)/undercroft

.PHONY: help help-checks help-measure build examples run demo install package image python test python-test check-slow check-commands simulate-faults simulate-campaign simulate-patches interleavings sanitize fuzz soak effects content-aware hierarchies flash auto auto-picture tuned reproduce bench bench-reading bench-server bench-turns bench-hints bench-policies bench-log bench-flash bench-recording bench-advice advice bench-hierarchies bench-aware bench-python bench-against experiment tpcc report-pictures clean

help:
	@echo "make run                            build, and serve a demo volume (LISTEN=, HTTP=: other addresses)"
	@echo "make demo                           build, and simulate the bundled trace with every policy"
	@echo "make install                        build, and install into PREFIX (/usr/local) below DESTDIR"
	@echo "make package                        build, and make a package for Debian"
	@echo "make python                         the Python package, built into a fresh virtual environment"
	@echo "make image                          build, and make a container image (an OCI archive, for podman load or docker load)"
	@echo "make test                           formatting, lints, and every test"
	@echo "make python-test                    the tests of the Python package alone (make test has them too)"
	@echo "make help-checks                    lists checks that make test leaves out"
	@echo "make help-measure                   lists measurements: what the documents state is made by them"

help-checks:
	@echo "make check-slow                     how much code each operation runs through, against its budget, 10,000 losses of power of a write log, and one below databases (some minutes; WALKS=--write)"
	@echo "make check-commands [ONLY=...]      every command here, at its smallest size (before a release; two hours)"
	@echo "make simulate-faults                the whole server on seeds that nobody has seen (SIMULATE_MINUTES=60)"
	@echo "make simulate-campaign              the whole server on a hundred thousand seeds (some three and a half hours on two quiet processors; SIMULATE_SEEDS=)"
	@echo "make simulate-patches               within how many seeds the simulation finds faults that are put back"
	@echo "make interleavings                  a model checker for the lock, the frame pool and the ring (a minute)"
	@echo "make sanitize                       the tests of unsafe code under AddressSanitizer, ThreadSanitizer and valgrind"
	@echo "make fuzz                           fuzz targets of the protocol, the server and the trace readers (FUZZ_MINUTES=10 each)"
	@echo "make soak                           checked load with kills, faults and reloads (SOAK_MINUTES=30)"

help-measure:
	@echo "make effects                        what cooperation is worth on real traces, into docs/user/cooperation.md"
	@echo "make content-aware                  what content-aware caching is worth, into docs/measurements/content-aware.md"
	@echo "make hierarchies                    schemes that move blocks by hints, into docs/measurements/hierarchies.md"
	@echo "make flash [RECORDED=FILE]          designs of a level on flash over nine streams, into docs/measurements/flash.md (a minute)"
	@echo "make auto                           the policy auto beside every fixed policy, into docs/measurements/auto.md (some minutes; RECORDINGS=: of those)"
	@echo "make auto-picture                   what auto learns below PostgreSQL, into docs/user/pictures/auto.svg (a minute)"
	@echo "make tuned                          the parameters of LFRU and FBR, chosen and judged, into docs/measurements/auto.md (ten minutes)"
	@echo "make reproduce [STUDY=...]          the papers' tables and figures, into docs/measurements/reproduction.md (some minutes)"
	@echo "make bench                          speed and memory against libCacheSim (about two hours; BENCH=--quick: a trial)"
	@echo "make bench-reading                  how fast traces are read and characterised (three minutes)"
	@echo "make bench-server                   speed of the server against nbdkit and qemu-nbd (about ten minutes)"
	@echo "make bench-turns                    what a client gets beside floods of dear requests and of hints, and beside bursts of writes (a quarter of an hour)"
	@echo "make bench-hints                    what hints cost a server (about a minute)"
	@echo "make bench-policies                 what a policy costs a server beside MQ (a minute; POLICIES=)"
	@echo "make bench-log                      what a write log is worth to a client that flushes (a quarter of an hour)"
	@echo "make bench-flash                    what a level on flash takes of memory, how soon it is there after a restart, and how fast it answers (ten minutes, 33 GB of disk; BENCH=--quick: a trial)"
	@echo "make bench-recording                what recording its requests costs a server (two minutes)"
	@echo "make bench-advice                   what the adviser costs a server (two minutes)"
	@echo "make advice                         how far the adviser's figures are from full simulations, into docs/measurements/advice.md (some minutes)"
	@echo "make bench-hierarchies              what schemes cost beside LRU over the same levels (some minutes)"
	@echo "make bench-aware                    what content awareness costs a server (about ten minutes)"
	@echo "make bench-python                   what a call from Python costs beside the program (two minutes)"
	@echo "make bench-against BEFORE=PROGRAM   what became slower since another build (ten minutes; QUICK=1: two)"
	@echo "make report-pictures                pictures of pages of results, into docs/user/pictures (chromium)"
	@echo "make experiment [FILE=...]          TPC-C of a real database on a volume, as a small file says (root; six minutes)"
	@echo "make tpcc                           ten rounds of TPC-C, into docs/measurements/databases.md (root; six hours; it goes on where it was)"

build:
	@tools/setup.sh build
	$(CARGO) build --release --locked -p undercroft-cli -p undercroft-preload

# Those that something below runs.
examples:
	$(CARGO) build --release --locked -p undercroft-tools -p undercroft-flash -p undercroft-level -p undercroft-nbd \
	    -p undercroft-trace --example coverage --example content_cost --example fill --example floor --example read_speed

run: build
	@tools/serve-demo.sh $(UNDERCROFT)

demo: build
	@tools/demo.sh $(UNDERCROFT)

install: build
	@DESTDIR=$(DESTDIR) PREFIX=$(or $(PREFIX),/usr/local) tools/install.sh $(UNDERCROFT)

package: build
	@tools/package.sh $(UNDERCROFT)

python:
	@tools/setup.sh python
	@tools/python.sh build

image: build
	@/usr/bin/python3 tools/image.py $(UNDERCROFT)

# A test of the program without the laboratory finds it here: cargo has one place for both programs.
WITHOUT_LAB = $(or $(CARGO_TARGET_DIR),target)/debug/without-lab/undercroft

# All crates are chosen for it, and a test, so that the crates below have the same features as for the tests: only
# the program itself is built twice.
test: export UNDERCROFT_WITHOUT_LAB = $(abspath $(WITHOUT_LAB))
# Tests of servers wait for most of their time: two at a time on each processor.
test: export RUST_TEST_THREADS ?= $(shell expr 2 '*' $$(nproc))
test:
	@tools/setup.sh test
	$(CARGO) fmt --all --check
	@find cli crates lab tools -name '*.rs' -not -path '*/target/*' -exec rustfmt --edition 2024 --check {} +
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy -p undercroft-cli --no-default-features --locked -- -D warnings
	$(CARGO) build --workspace --no-default-features --locked --bin undercroft --test c
	@install -D $(or $(CARGO_TARGET_DIR),target)/debug/undercroft $(WITHOUT_LAB)
	@tools/each.sh '$(CARGO) test --workspace --locked --no-fail-fast' 'tools/python.sh test'

python-test:
	@tools/setup.sh python
	@tools/python.sh test

check-slow:
	@CARGO=$(CARGO) python3 tools/walks.py $(WALKS)
	$(CARGO) test --workspace --locked --test stores ten_thousand_cuts -- --ignored --nocapture
	$(CARGO) test --workspace --locked --test server databases::power -- --ignored --nocapture

check-commands: build examples
	@/usr/bin/python3 tools/commands.py $(BUILT) $(ONLY)

simulate-faults:
	$(CARGO) test --workspace --locked --test simulation for_some_time -- --ignored --nocapture

simulate-campaign:
	SIMULATE_SEEDS=$${SIMULATE_SEEDS:-100000} $(CARGO) test --workspace --locked --test simulation a_thousand_seeds -- --nocapture

simulate-patches:
	@CARGO=$(CARGO) tools/simulation/patches.sh

interleavings:
	cd tools/interleavings && $(CARGO) run --release

sanitize:
	@tools/sanitize.sh

fuzz:
	@tools/fuzz.sh

soak:
	@CARGO=$(CARGO) tools/soak.sh

effects: build
	@python3 tools/effects.py $(UNDERCROFT)

content-aware: build examples
	@python3 tools/content_aware.py $(UNDERCROFT) $(AWARE)

hierarchies: build
	@python3 tools/hierarchies.py $(UNDERCROFT) $(HIERARCHIES)

flash: build
	@python3 tools/flash.py $(UNDERCROFT) $(RECORDED)

auto: build
	@python3 tools/auto.py $(UNDERCROFT) $(RECORDINGS)

auto-picture:
	@tools/setup.sh test
	@/usr/bin/python3 tools/auto.py --picture

tuned: build
	@python3 tools/tuned.py $(UNDERCROFT)

reproduce: build
	@tools/setup.sh test
	@/usr/bin/python3 tools/reproduce $(UNDERCROFT) $(STUDY)

bench: build
	@tools/bench/run.sh $(UNDERCROFT) $(BENCH)

bench-reading: build examples
	@python3 tools/bench/reading.py $(UNDERCROFT) $(BUILT)/examples/read_speed $(BENCH)

bench-server: build examples
	@tools/bench/server.sh $(UNDERCROFT) $(BUILT)/examples/floor $(BENCH)

bench-turns: build
	@python3 tools/bench/turns.py $(UNDERCROFT) $(BENCH)
	@python3 tools/bench/bursts.py $(UNDERCROFT) $(BENCH)
	@python3 tools/bench/hint_flood.py $(UNDERCROFT) $(BENCH)

bench-hints: build
	@python3 tools/bench/hints.py $(UNDERCROFT) $(BENCH)

bench-policies: build
	@python3 tools/bench/policies.py $(UNDERCROFT) $(POLICIES) $(BENCH)

bench-log: build
	@python3 tools/bench/write_log.py $(UNDERCROFT) $(BENCH)

bench-flash: build examples
	cd tools/bench/foyer && $(CARGO) build --release --locked --target-dir $(abspath $(dir $(BUILT)))
	@python3 tools/bench/flash.py $(UNDERCROFT) $(BENCH)

bench-recording: build
	@python3 tools/bench/recording.py $(UNDERCROFT) $(BENCH)

bench-advice: build
	@python3 tools/bench/advice.py $(UNDERCROFT) $(BENCH)

advice: examples
	@python3 tools/advice.py $(BUILT)/examples/coverage $(or $(UNDERCROFT_TRACES),../shared/traces) $(ADVICE)

bench-hierarchies: build
	@python3 tools/bench/hierarchies.py $(UNDERCROFT) $(BENCH)

bench-aware: build
	@python3 tools/bench/aware.py $(UNDERCROFT) $(or $(UNDERCROFT_TRACES),../shared/traces)/arc/OLTP.lis.zst $(BENCH)

bench-python: build python
	@target/python/build/bin/python tools/bench/python.py $(UNDERCROFT) $(BENCH)

bench-against: build
	@python3 tools/bench/against.py $(or $(BEFORE),$(error BEFORE= names the other program)) $(UNDERCROFT) \
	    $(if $(QUICK),--quick) $(BENCH)

experiment: build
	@tools/setup.sh test
	@/usr/bin/python3 tools/experiment $(or $(FILE),tools/experiment/example.toml) --undercroft $(UNDERCROFT) $(EXPERIMENT)

tpcc: FILE = tools/experiment/tpcc-*.toml
tpcc: experiment

report-pictures: build
	@tools/report/pictures.sh $(UNDERCROFT)

clean:
	$(CARGO) clean
