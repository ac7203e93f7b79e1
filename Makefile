# make demo      see it work, on a private throw-away server
# make test      everything that is checked
# make proof     the long forms: a minute of load under changing limits, 100,000 jobs past a late one, a worker under siege
# make chaos     everything goes wrong by the dice of SEED for SECONDS (120); CHAOS_ONLY=Promote,Cut for some kinds only
# make matrix    compiles for, and runs the tests of tests/ on, PostgreSQL 16, 17 and 18, which it fetches
# make package   the packages for Python and Node, into target/package
# make install   into the PostgreSQL that PG_CONFIG names
#
# All of them build for, and run on, the PostgreSQL that PG_CONFIG names: make test PG_CONFIG=/path/to/17/bin/pg_config

PG_CONFIG ?= pg_config
export PG_CONFIG
# The feature of trax_pg for that PostgreSQL; asked only after setup, which may have to install it.
PG = pg$(shell $(PG_CONFIG) --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
export PGRX_HOME := $(CURDIR)/target/pgrx

TRAX := target/debug/trax

.PHONY: demo test proof chaos matrix package pgspot install setup lint

demo: install $(TRAX)
	$(TRAX) demo

test: setup lint install pgspot $(TRAX)
	cargo test --package trax_schedule
	cargo test --package trax_pg --lib --no-default-features --features $(PG)
	cargo test --package trax_client --features testkit,tls,opentelemetry
	cargo test --package trax_terminal --package trax_bench --package trax_cli --package trax_pools
	TRAX_BIN=$(CURDIR)/$(TRAX) cargo test --package trax_tests
	$(MAKE) chaos SEED=1 SECONDS=120
	scripts/versions compile 16 17
	scripts/versions test 18

matrix: setup $(TRAX)
	scripts/versions test 16 17 18

package: setup
	scripts/python package
	scripts/node package

pgspot: install
	scripts/pgspot

proof: install
	TRAX_SWEEP_SECONDS=60 TRAX_LATE_JOBS=100000 cargo test --package trax_tests --test trax -- --nocapture limit::sweep whole::late whole::model
	TRAX_FAULTS=whole cargo test --package trax_tests --test trax -- --nocapture worker::fault worker::siege

chaos: SECONDS ?= 120
chaos: install $(TRAX)
	cargo build --package trax_tests --bin chaos
	TRAX_BIN=$(CURDIR)/$(TRAX) SEED=$(SEED) SECONDS=$(SECONDS) target/debug/chaos

install: setup
	scripts/install

lint: setup
	cargo fmt --all --check
	scripts/dependencies
	cargo clippy --workspace --all-targets --no-default-features --features trax_pg/$(PG),trax_client/testkit,trax_client/tls,trax_client/opentelemetry
	cargo clippy --package trax_client --lib --no-default-features

setup:
	@scripts/setup

.PHONY: $(TRAX)
$(TRAX): setup
	cargo build --package trax_cli
