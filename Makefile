# make demo      see it work, on a private throw-away server
# make test      what a change needs: the build with lints, the tests, a minute of faults by a fixed seed
# make ci        make test, and what else is checked before a change lands: tests that repeat others, other features, the
#                majors 16 to 18, faults over three shards, the packages
# make lint      the form and the lints alone
# make proof     the long forms: a minute of load under changing limits, 100,000 jobs past a late one, a million
#                rows where the tests have a tenth, a worker under siege
# make chaos     everything goes wrong by the dice of SEED for SECONDS (120); SHARDS=3 for a router and so many shards;
#                CHAOS_ONLY=Promote,Cut for some kinds only
# make soak      JOBS jobs through one database, a million after the other, beside the faults of SEED; the next run goes on
#                with the database, in target/soak
# make matrix    compiles for, and runs the tests of tests/ on, PostgreSQL 15, 16, 17 and 18, which it fetches; before a release
# make docs      the book of docs/, with search, into target/docs/book; checks its links
# make package   .deb and tarballs for PostgreSQL 15 to 18 and the command, the crate, the sources, the packages for Python
#                and Node, into target/package
# make package-test   tries them in bare roots of Debian 12 and 13
# make install   into the PostgreSQL that PG_CONFIG names
#
# All of them build for, and run on, the PostgreSQL that PG_CONFIG names: make test PG_CONFIG=/path/to/17/bin/pg_config

PG_CONFIG ?= pg_config
export PG_CONFIG
export PGRX_HOME := $(CURDIR)/target/pgrx

.PHONY: demo all test ci proof chaos soak matrix docs package package-test build install needs setup lint

demo: needs
	scripts/demo

# What PGXN's client calls before make install.
all: needs
	DESTDIR=$(CURDIR)/target/all scripts/install

test:
	scripts/test

ci: test
	scripts/ci

matrix: setup
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

proof: setup build
	TRAX_SWEEP_SECONDS=60 TRAX_LATE_JOBS=100000 scripts/cargo test --test trax -- --nocapture limit::sweep whole::late whole::model
	TRAX_ROWS=whole scripts/cargo test --test trax -- --nocapture claim:: cleanup:: limit:: new_job:: whole::plan
	TRAX_FAULTS=whole scripts/cargo test --test trax -- --nocapture worker::fault worker::siege relay::fault

chaos: SECONDS ?= 120
chaos: setup build
	TRAX_BIN=$(CURDIR)/target/debug/trax SEED=$(SEED) SECONDS=$(SECONDS) SHARDS=$(SHARDS) target/debug/chaos

soak: setup install
	scripts/cargo build --bin soak
	JOBS=$(JOBS) SEED=$(SEED) target/debug/soak

# What the tests are run with, in the server of PG_CONFIG.
build: needs
	scripts/cargo build --all-targets
	scripts/install built

install: needs
	scripts/install

lint: needs
	scripts/form
	scripts/cargo build --all-targets

# Only what building and the demo need.
needs:
	@scripts/setup build

setup:
	@scripts/setup
