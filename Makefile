# make demo      see it work, on a private throw-away server
# make test      everything that is checked
# make proof     the long forms: a minute of load under changing limits, 100,000 jobs past a late one, a worker under siege
# make chaos     everything goes wrong by the dice of SEED for SECONDS (120); SHARDS=3 for a router and so many shards;
#                CHAOS_ONLY=Promote,Cut for some kinds only
# make matrix    compiles for, and runs the tests of tests/ on, PostgreSQL 15, 16, 17 and 18, which it fetches
# make docs      the book of docs/, with search, into target/docs/book; checks its links
# make package   .deb and tarballs for PostgreSQL 15 to 18 and the command, the crate, the sources, the packages for Python
#                and Node, into target/package
# make package-test   tries them in bare roots of Debian 12 and 13
# make install   into the PostgreSQL that PG_CONFIG names
#
# All of them build for, and run on, the PostgreSQL that PG_CONFIG names: make test PG_CONFIG=/path/to/17/bin/pg_config

PG_CONFIG ?= pg_config
export PG_CONFIG
# The feature of trax_pg for that PostgreSQL; asked only after setup, which may have to install it.
PG = pg$(shell $(PG_CONFIG) --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
export PGRX_HOME := $(CURDIR)/target/pgrx

TRAX := target/debug/trax

.PHONY: demo all test proof chaos matrix docs package package-test pgspot install needs setup lint

demo: needs
	scripts/demo

# What PGXN's client calls before make install.
all: needs
	DESTDIR=$(CURDIR)/target/all scripts/install

test: setup lint install pgspot $(TRAX)
	cargo test --package trax_schedule
	cargo test --package trax_pg --lib --no-default-features --features $(PG)
	cargo test --package trax_client --features testkit,tls,opentelemetry
	cargo test --package trax_terminal --package trax_bench --package trax_web --package trax_cli --package trax_pools
	TRAX_BIN=$(CURDIR)/$(TRAX) cargo test --package trax_tests
	$(MAKE) chaos SEED=1 SECONDS=120
	$(MAKE) chaos SEED=1 SECONDS=45 SHARDS=3
	scripts/versions compile 16 17
	scripts/versions test 18
	COMMAND_PROFILE=debug scripts/debian $(PG:pg%=%)
	scripts/package-test 12

matrix: setup $(TRAX)
	scripts/versions test 15 16 17 18

docs:
	scripts/docs

package: setup
	scripts/debian 15 16 17 18
	scripts/source
	scripts/python package
	scripts/node package
	cd target/package && find debian python node *.zip *.crate -type f | sort | xargs sha256sum > SHA256SUMS

package-test: package
	scripts/old-package
	scripts/package-test 12 13

pgspot: setup install
	scripts/pgspot

proof: setup install
	TRAX_SWEEP_SECONDS=60 TRAX_LATE_JOBS=100000 cargo test --package trax_tests --test trax -- --nocapture limit::sweep whole::late whole::model
	TRAX_FAULTS=whole cargo test --package trax_tests --test trax -- --nocapture worker::fault worker::siege relay::fault

chaos: SECONDS ?= 120
chaos: setup install $(TRAX)
	cargo build --package trax_tests --bin chaos
	TRAX_BIN=$(CURDIR)/$(TRAX) SEED=$(SEED) SECONDS=$(SECONDS) SHARDS=$(SHARDS) target/debug/chaos

install: needs
	scripts/install

lint: setup
	cargo fmt --all --check
	scripts/dependencies
	cargo clippy --workspace --all-targets --no-default-features --features trax_pg/$(PG),trax_client/testkit,trax_client/tls,trax_client/opentelemetry
	cargo clippy --package trax_client --lib --no-default-features

# Only what building and the demo need.
needs:
	@scripts/setup build

setup:
	@scripts/setup

.PHONY: $(TRAX)
$(TRAX): needs
	cargo build --package trax_cli
