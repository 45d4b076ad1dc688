# telereduce: every command that the README names.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
LOGS    := target/logs
# rdma-sys generates its types with libclang 14.
export LIBCLANG_PATH ?= /usr/lib/llvm-14/lib

.PHONY: help deps build programs nccl demo test test-native test-lab litmus matrix lint bench soak lab install uninstall clean

help:
	@echo "make demo       build everything, boot the laboratory, watch a real RDMA program in trtop"
	@echo "make test       every test, in the laboratory too"
	@echo "make build      target/release/libtelereduce.so, target/release/trtop and target/release/softnic/libibverbs.so.1"
	@echo "make matrix     every kind of verbs program, with and without the library: the README's matrix (15 minutes)"
	@echo "make litmus     the order contract: programs that must see each violation of it (10 minutes); RUN=shim under the library"
	@echo "make bench      what the library costs, in ns, and trtop's own use"
	@echo "make soak       threads that make, use and destroy everything at random, for 10 minutes (SOAK_SECONDS), twice"
	@echo "make lab CMD=.. run a command in the laboratory; without CMD, a shell"
	@echo "make lint       formatting, clippy, shellcheck"
	@echo "make install    into PREFIX ($(PREFIX)), below DESTDIR"
	@echo "make deps       install the system packages that all of this needs"

deps:
	@tools/deps

build: deps
	$(CARGO) build --release --locked -p telereduce-shim -p trtop -p softnic
	$(MAKE) --no-print-directory -s -C tools/softnic

# What only tests and benchmarks need: the null device, and small C programs that run on it.
programs: build
	$(MAKE) --no-print-directory -s -C tools/nullverbs
	$(MAKE) --no-print-directory -s -C tests/programs
	$(MAKE) --no-print-directory -s -C tests/litmus
	$(CARGO) build --release --locked -p telereduce-shim --features fault --target-dir target/fault

demo: build
	@tools/demo/demo

test: programs
	@rm -rf $(LOGS) && mkdir -p $(LOGS)
	@tools/run-tests $(LOGS)

test-native: programs
	@rm -rf $(LOGS) && mkdir -p $(LOGS)
	@tools/run-tests $(LOGS) native

test-lab: programs
	@rm -rf $(LOGS) && mkdir -p $(LOGS)
	@tools/run-tests $(LOGS) lab

litmus: build
	@tests/litmus/run $(or $(RUN),native)

matrix: build
	@tools/deps matrix
	$(MAKE) --no-print-directory -s -C tests/matrix/programs
	@tests/matrix/run

lint: deps
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	shellcheck -x -e SC1091 tools/deps tools/run-tests tools/demo/* tools/bench/* tests/lab/run tests/lab/*.sh tests/litmus/run tests/litmus/soak tests/litmus/softnic tests/matrix/run tests/matrix/pyverbs.sh tools/fleet/check tools/fleet/unpack tools/nccl/run .ci/run
	@tools/fleet/check

bench: programs
	@tools/bench/run

nccl: build
	@tools/nccl/run $(if $(RANKS),--ranks $(RANKS))

soak: programs
	@$(CARGO) run --release --locked --quiet -p telereduce-tests --bin soak

lab: deps
ifeq ($(CMD),)
	@tools/lab/lab shell
else
	@tools/lab/lab run -- bash -c '$(subst ','\'',$(CMD))'
endif

install: build
	install -D -m 755 target/release/libtelereduce.so $(DESTDIR)$(PREFIX)/lib/libtelereduce.so
	install -D -m 755 target/release/trtop $(DESTDIR)$(PREFIX)/bin/trtop

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/lib/libtelereduce.so $(DESTDIR)$(PREFIX)/bin/trtop

clean:
	$(CARGO) clean
