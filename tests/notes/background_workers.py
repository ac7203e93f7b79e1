#!/usr/bin/env python3
"""Facts about the launcher and the schedulers, seen on a private server.

Usage: background_workers.py BINDIR [fact ...]     (as root: the servers run as `postgres`)
"""
import os, pwd, shutil, signal, subprocess, sys, tempfile, time

BIN = sys.argv[1]
ONLY = sys.argv[2:]
USER = pwd.getpwnam("postgres")


def run(args, check=True, **kw):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    env.pop("RUST_BACKTRACE", None)
    kw.setdefault("timeout", 120)
    done = subprocess.run(args, user=USER.pw_uid, group=USER.pw_gid, extra_groups=[], env=env, cwd="/tmp",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)
    if check and done.returncode != 0:
        raise AssertionError(f"{args}: {done.returncode}\n{done.stdout}")
    return done.stdout.strip()


class Server:
    port = 54870

    def __init__(self, preload=True, conf="", template=None):
        Server.port += 1
        self.port = Server.port
        self.dir = tempfile.mkdtemp(prefix="trax_worker_")
        os.chown(self.dir, USER.pw_uid, USER.pw_gid)
        self.data, self.log = f"{self.dir}/data", f"{self.dir}/log"
        if template is None:
            run([f"{BIN}/initdb", "-D", self.data, "-A", "trust", "--no-sync", "-U", "postgres"])
        else:
            run([f"{BIN}/pg_basebackup", "-D", self.data, "-R", "-X", "stream", "-c", "fast", "-h", template.dir,
                 "-p", str(template.port), "-U", "postgres"])
        self.set(f"port={self.port}\nlisten_addresses=''\nunix_socket_directories='{self.dir}'\nfsync=off\n"
                 f"log_line_prefix='%m [%p] %b: '\n" + ("shared_preload_libraries='trax'\n" if preload else "") + conf)
        self.start()

    def set(self, text):
        with open(f"{self.data}/postgresql.conf", "a") as f:
            f.write(text + "\n")

    def start(self):
        run([f"{BIN}/pg_ctl", "-D", self.data, "-l", self.log, "-w", "start"])

    def stop(self, mode="fast"):
        run([f"{BIN}/pg_ctl", "-D", self.data, "-m", mode, "-w", "stop"])

    def reload(self):
        run([f"{BIN}/pg_ctl", "-D", self.data, "reload"])

    def sql(self, sql, db="postgres", check=True, user="postgres"):
        sql = [sql] if isinstance(sql, str) else sql
        args = [f"{BIN}/psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-h", self.dir,
                "-p", str(self.port), "-U", user, "-d", db]
        for one in sql:
            args += ["-c", one]
        return run(args, check)

    def session(self, sql, db="postgres"):
        """A session that runs in the background."""
        return subprocess.Popen([f"{BIN}/psql", "-XAtq", "-h", self.dir, "-p", str(self.port), "-U", "postgres", "-d", db,
                                 "-c", sql], user=USER.pw_uid, group=USER.pw_gid, extra_groups=[], cwd="/tmp")

    def pid(self, db, kind="trax scheduler"):
        where = f"datname = '{db}'" if db else "datname is null"
        return self.sql(f"select pid from pg_stat_activity where backend_type = '{kind}' and {where}")

    def logged(self, text):
        with open(self.log) as f:
            return [line for line in f if text in line]

    def wait(self, what, limit, probe):
        begin = time.monotonic()
        while True:
            seen = probe()
            took = time.monotonic() - begin
            if seen:
                print(f"    {what}: {took:.2f} s")
                assert took <= limit + 0.3, f"{what}: took {took:.2f} s, limit {limit} s"
                return seen
            assert took <= limit, f"{what}: not within {limit} s\n{open(self.log).read()[-3000:]}"
            time.sleep(0.02)

    def database(self, name):
        self.sql(f"create database {name}")
        self.sql("create extension trax", name)

    def close(self):
        run([f"{BIN}/pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop"], check=False)
        shutil.rmtree(self.dir)


FACTS = []


def fact(preload=True, conf=""):
    def wrap(f):
        FACTS.append((f, preload, conf))
        return f
    return wrap


@fact()
def a_scheduler_comes_with_the_extension_and_goes_with_it(s):
    s.wait("launcher", 3, lambda: s.pid(None, "trax launcher"))
    s.sql("create database a")
    time.sleep(1)
    s.sql("create extension trax", "a")
    pid = s.wait("after create extension", 2, lambda: s.pid("a"))
    s.sql("drop extension trax", "a")
    s.wait("gone after drop extension", 6, lambda: not s.pid("a"))
    time.sleep(7)
    assert not s.pid("a")
    s.sql(["begin", "create extension trax", "select pg_sleep(3)", "commit"], "a")
    s.wait("after a slow create extension", 2, lambda: s.pid("a"))
    s.sql("drop database a")
    s.database("b")
    s.wait("b", 2, lambda: s.pid("b"))
    for name in ("c", "d"):
        s.sql(f"create database {name} template b")
        s.wait(f"{name} from template", 2, lambda: s.pid(name))
    s.wait("b again", 3, lambda: s.pid("b"))
    for name in ("b", "c", "d"):
        s.sql(f"drop database {name}")
    assert not s.logged("FATAL:  database"), s.logged("FATAL:  database")


@fact()
def a_terminated_scheduler_and_launcher_come_back(s):
    s.database("a")
    for n in range(20):
        pid = s.wait(f"scheduler {n}", 6, lambda: s.pid("a"))
        assert s.sql(f"select pg_terminate_backend({pid}, 5000)") == "t"
    pid = s.wait("scheduler", 6, lambda: s.pid("a"))
    launcher = s.pid(None, "trax launcher")
    assert s.sql(f"select pg_terminate_backend({launcher}, 5000)") == "t"
    s.wait("launcher", 6, lambda: s.pid(None, "trax launcher"))
    time.sleep(1.5)
    assert s.pid("a") == pid, "adopted"
    s.sql(f"select pg_terminate_backend({pid}, 5000)")
    s.wait("scheduler after both", 6, lambda: s.pid("a"))
    # both at once
    s.sql("select pg_terminate_backend(pid) from pg_stat_activity where backend_type like 'trax%'")
    time.sleep(0.2)
    s.wait("launcher", 6, lambda: s.pid(None, "trax launcher"))
    s.wait("scheduler", 6, lambda: s.pid("a"))


@fact()
def statements_that_need_the_database_alone_work(s):
    s.database("a")
    s.wait("a", 2, lambda: s.pid("a"))
    begin = time.monotonic()
    s.sql("create database b template a")
    print(f"    template: {time.monotonic() - begin:.2f} s")
    s.wait("a", 2, lambda: s.pid("a"))
    s.wait("b", 2, lambda: s.pid("b"))
    s.sql("alter database b rename to c")
    s.wait("c", 2, lambda: s.pid("c"))
    space = f"{s.dir}/space"
    os.mkdir(space)
    os.chown(space, USER.pw_uid, USER.pw_gid)
    s.sql(f"create tablespace sp location '{space}'")
    s.sql("alter database c set tablespace sp")
    s.wait("c", 3, lambda: s.pid("c"))
    print("   ", s.sql("alter database c rename to a", check=False).splitlines()[0])
    s.wait("c", 3, lambda: s.pid("c"))
    # inside a transaction that rolls back
    s.sql(["begin", "alter database c rename to d", "select pg_sleep(2)", "rollback"])
    s.wait("c", 3, lambda: s.pid("c"))
    # the session that holds the database is terminated
    holder = s.session("begin; alter database c rename to d; select pg_sleep(60)")
    s.wait("held", 3, lambda: s.sql("select wait_event from pg_stat_activity where wait_event = 'PgSleep'"))
    assert not s.pid("c")
    s.sql("select pg_terminate_backend(pid, 5000) from pg_stat_activity where wait_event = 'PgSleep'")
    holder.wait(10)
    s.wait("c after the holder's end", 2, lambda: s.pid("c"))
    s.sql("select pg_cancel_backend(pid) from pg_stat_activity where backend_type like 'trax%'")
    s.sql("create role nobody login; create role owner login")
    pid = s.pid("c")
    out = s.sql("drop database c", user="nobody", check=False)
    assert "42501" in out, out
    assert s.pid("c") == pid, "an unprivileged drop must not disturb"
    s.sql("drop database c")
    s.sql("drop database a")
    s.sql("drop database if exists a")
    # while the scheduler is inside a long statement
    s.sql("create database e")
    s.sql("alter database e set trax_stand_in.cycle = 'select pg_sleep(60)'")
    s.sql("create extension trax", "e")
    s.wait("e in a long statement", 3, lambda: s.sql("select wait_event from pg_stat_activity where datname='e' and wait_event='PgSleep'"))
    begin = time.monotonic()
    s.sql("drop database e")
    print(f"    drop during a long statement: {time.monotonic() - begin:.2f} s")
    assert time.monotonic() - begin < 2
    for n in range(10):
        s.database(f"f{n}")
        s.sql(f"drop database f{n}")
    s.database("g")
    for n in range(15):
        s.sql("create database h template g")
        s.sql("drop database h")
        s.sql("create database h template g")
        time.sleep(0.03 * n)
        s.sql("alter database h rename to i")
        s.sql("drop database i")
    s.wait("g", 2, lambda: s.pid("g"))
    print("    FATAL lines:", len(s.logged("FATAL:  database")))
    # a foreign error passes by as it was
    out = s.sql("do $$ begin raise exception 'mine' using errcode = 'MY001', constraint = 'con'; end $$", check=False)
    assert "MY001" in out and "PL/pgSQL function" in out and "con" in out, out


@fact(conf="trax_stand_in.cycle='select pg_sleep(60)'")
def a_fast_shutdown_ends_within_two_seconds(s):
    s.database("a")
    s.wait("in a long statement", 3, lambda: s.sql("select wait_event from pg_stat_activity where datname='a' and wait_event='PgSleep'"))
    begin = time.monotonic()
    s.stop("fast")
    print(f"    fast shutdown: {time.monotonic() - begin:.2f} s")
    assert time.monotonic() - begin < 2
    s.start()
    s.wait("after restart", 3, lambda: s.pid("a"))


@fact()
def settings_are_taken_up(s):
    s.database("a")
    s.wait("a", 2, lambda: s.pid("a"))
    # SIGHUP: the server's file
    s.set("trax_stand_in.cycle = 'do $$ begin raise log ''cycle of the file''; end $$'")
    s.reload()
    s.wait("SIGHUP", 3, lambda: s.logged("cycle of the file"))
    pid = s.pid("a")
    s.sql("alter database a set trax_stand_in.cycle = 'do $$ begin raise log ''cycle of the database''; end $$'")
    s.wait("alter database set", 10, lambda: s.logged("cycle of the database"))
    s.wait("another process", 10, lambda: s.pid("a") not in ("", pid))
    s.sql("alter database a reset trax_stand_in.cycle")
    s.wait("alter database reset", 10, lambda: s.logged("connecting again")[1:])
    s.set("trax.databases = 'b, c'")
    s.reload()
    s.wait("trax.databases without a", 3, lambda: not s.pid("a"))
    out = s.sql("select trax.start_scheduler()", "a", check=False)
    assert "55000" in out, out
    s.set("trax.databases = ''")
    s.reload()
    s.wait("trax.databases empty", 3, lambda: s.pid("a"))
    s.set("trax.enabled = off")
    s.reload()
    s.wait("trax.enabled off", 3, lambda: not s.pid("a"))
    s.set("trax.enabled = on")
    s.reload()
    s.wait("trax.enabled on", 3, lambda: s.pid("a"))
    assert "42602" in s.sql("set trax.nonsense = 1", check=False), s.sql("set trax.nonsense = 1", check=False)
    print("   ", s.sql("select string_agg(name || '=' || current_setting(name), ' ') from pg_settings where name like 'trax.%'"))
    print("   ", s.sql("set trax.retry_backoff = 0.5", check=False).splitlines()[0])


@fact(conf="trax.tick_interval = '300ms'")
def a_failing_cycle_is_tried_again_after_five_seconds(s):
    s.database("a")
    s.wait("a", 2, lambda: s.pid("a"))
    s.sql("alter database a set trax_stand_in.cycle = 'select 1/0'")
    s.wait("first failure", 10, lambda: s.logged("division by zero"))
    time.sleep(11)
    n = len(s.logged("division by zero"))
    print(f"    failures in 11 s more: {n - 1}")
    assert n == 3, n
    s.sql("alter database a reset trax_stand_in.cycle")
    time.sleep(6)
    n = len(s.logged("division by zero"))
    s.wait("healthy", 5, lambda: s.pid("a"))
    assert len(s.logged("division by zero")) == n


@fact()
def an_idle_scheduler_pins_nothing(s):
    s.database("a")
    s.wait("a", 2, lambda: s.pid("a"))
    time.sleep(1.5)
    seen = s.sql("select backend_type, application_name, state, wait_event, backend_xmin, backend_xid from pg_stat_activity where backend_type like 'trax%'")
    print("    " + seen.replace("\n", "\n    "))
    pinned = 0
    for _ in range(40):
        pinned += s.sql("select count(*) from pg_stat_activity where backend_type like 'trax%' and backend_xmin is not null") != "0"
        time.sleep(0.05)
    print(f"    looks with a snapshot: {pinned} of 40")
    assert pinned <= 4
    before = s.sql("select txid_current()", "a")
    time.sleep(3)
    after = s.sql("select txid_current()", "a")
    assert int(after) - int(before) == 1, (before, after)
    # a version that does not fit
    s.sql("update pg_extension set extversion = '0.0.9' where extname = 'trax'", "a")
    s.wait("says so", 5, lambda: s.logged("the trax scheduler waits"))
    time.sleep(4)
    assert len(s.logged("the trax scheduler waits")) == 1
    assert s.pid("a")


@fact(conf="trax.tick_interval = '10ms'")
def fast_ticks_do_not_grow(s):
    s.database("a")
    pid = s.wait("a", 2, lambda: s.pid("a"))
    rss = lambda: int([line for line in open(f"/proc/{pid}/status") if line.startswith("RssAnon")][0].split()[1])
    cpu = lambda: sum(map(int, open(f"/proc/{pid}/stat").read().split(")")[1].split()[11:13])) * 10
    time.sleep(3)
    before, begin = rss(), cpu()
    time.sleep(10)
    print(f"    10 s of 10 ms ticks: {cpu() - begin} ms CPU, memory {before} to {rss()} kB")
    assert rss() - before < 300


@fact()
def a_promoted_standby_starts_its_schedulers(s):
    s.database("a")
    s.wait("a", 2, lambda: s.pid("a"))
    standby = Server(template=s, preload=False)
    try:
        time.sleep(2)
        assert standby.sql("select count(*) from pg_stat_activity where backend_type like 'trax%'") == "0"
        out = standby.sql("select trax.start_scheduler()", "a", check=False)
        assert "55000" in out, out
        standby.sql("select pg_promote(true)")
        standby.wait("after promotion", 2, lambda: standby.pid("a"))
    finally:
        standby.close()


@fact(preload=False)
def without_preloading_a_scheduler_can_be_started_by_hand(s):
    s.database("a")
    s.sql("create role plain login; grant usage on schema trax to plain; grant execute on function trax.start_scheduler() to plain", "a")
    out = s.sql("select trax.start_scheduler()", "a", user="plain")
    assert out == "started", out
    pid = s.pid("a")
    assert pid
    assert s.sql("select trax.start_scheduler()", "a") == "already running"
    s.sql(f"select pg_terminate_backend({pid}, 5000)")
    s.wait("after termination", 6, lambda: s.pid("a"))
    s.sql("alter database a set trax_stand_in.cycle = 'do $$ begin raise log ''cycle of the database''; end $$'")
    s.wait("alter database set", 10, lambda: s.logged("cycle of the database"))
    s.sql("drop extension trax", "a")
    s.wait("gone", 6, lambda: not s.pid("a"))
    time.sleep(6)
    assert not s.pid("a")
    # in one transaction with the extension
    s.sql(["begin", "create extension trax", "select trax.start_scheduler()", "commit"], "a")
    s.wait("there", 1, lambda: s.pid("a"))
    time.sleep(1.5)
    assert s.pid("a")
    # two callers at once
    s.sql("select pg_terminate_backend(pid, 5000) from pg_stat_activity where backend_type = 'trax scheduler'")
    callers = [s.session("select trax.start_scheduler()", "a") for _ in range(4)]
    for caller in callers:
        assert caller.wait(20) == 0
    time.sleep(3)
    assert s.sql("select count(*) from pg_stat_activity where backend_type = 'trax scheduler'") == "1"


@fact(conf="max_worker_processes = 8\nmax_connections = 60")
def too_few_worker_slots_neither_spin_nor_spam(s):
    s.database("t")
    s.sql("update pg_database set datallowconn = true where datname = 't'")
    for n in range(59):
        s.sql(f"create database d{n} template t strategy file_copy")
    time.sleep(12)
    running = int(s.sql("select count(*) from pg_stat_activity where backend_type = 'trax scheduler'"))
    cpu = lambda: sum(int(open(f"/proc/{p}/stat").read().split(")")[1].split()[11]) + int(open(f"/proc/{p}/stat").read().split(")")[1].split()[12])
                      for p in [s.pid(None, "trax launcher")])
    size, begin, forks = os.path.getsize(s.log), cpu(), s.sql("select count(*) from pg_stat_activity")
    time.sleep(10)
    print(f"    schedulers: {running}; launcher CPU in 10 s: {(cpu() - begin) * 10} ms; log grew by {os.path.getsize(s.log) - size} bytes")
    print("    " + "    ".join(s.logged("cannot start the schedulers")), end="")
    assert len(s.logged("cannot start the schedulers")) == 1
    assert running >= 6
    assert os.path.getsize(s.log) - size < 300
    pid = s.sql("select min(pid) from pg_stat_activity where backend_type = 'trax scheduler'")
    s.sql(f"select pg_terminate_backend({pid}, 5000)")
    s.wait("another one takes the slot", 6, lambda: s.sql("select count(*) from pg_stat_activity where backend_type = 'trax scheduler'") == str(running))
    s.sql("drop database d7")


@fact()
def a_killed_backend_brings_everything_back(s):
    s.database("a")
    pid = s.wait("a", 2, lambda: s.pid("a"))
    os.kill(int(pid), signal.SIGKILL)
    time.sleep(0.5)
    s.wait("after the crash", 8, lambda: "FATAL" not in s.sql("select 1", check=False) and s.sql("select 1", check=False) == "1" and s.pid("a"))
    workers = s.sql("select pid from pg_stat_activity where backend_type like 'trax%'").split()
    assert len(workers) == 2
    postmaster = int(open(f"{s.data}/postmaster.pid").readline())
    os.kill(postmaster, signal.SIGKILL)
    for pid in workers:
        s.wait("worker gone", 2, lambda: not os.path.exists(f"/proc/{pid}") or " Z " in open(f"/proc/{pid}/stat").read())
    s.wait("reaped", 30, lambda: not os.path.exists(f"/proc/{postmaster}"))
    os.remove(f"{s.data}/postmaster.pid")
    s.start()
    s.wait("after restart", 8, lambda: s.pid("a"))


failed = 0
for f, preload, conf in FACTS:
    if ONLY and not any(one in f.__name__ for one in ONLY):
        continue
    print(f.__name__.replace("_", " "), flush=True)
    server = Server(preload=preload, conf=conf)
    try:
        f(server)
        print("  holds", flush=True)
    except Exception as error:
        failed += 1
        print(f"  FAILED: {type(error).__name__} {error}\n{open(server.log).read()[-2500:]}", flush=True)
    finally:
        server.close()
sys.exit(failed != 0)
