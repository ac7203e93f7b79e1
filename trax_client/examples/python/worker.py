#!/usr/bin/env python3
"""A trax worker with psycopg 3; DATABASE_URL names the database. SIGTERM: jobs not done within GRACE are released."""
import json, os, signal, socket, threading, time
import psycopg

DATABASE, LEASE, GRACE = os.environ["DATABASE_URL"], float(os.getenv("LEASE", "30")), float(os.getenv("GRACE", "30"))
NAME = os.getenv("WORKER_NAME", f"{socket.gethostname()}:{os.getpid()}")
# input::text: each input is decoded separately, so that a malformed one fails only its own job.
CLAIM = """select job_id, token::text, attempt, task, input::text
    from trax.claim_next(%s, tasks => %s, lease => make_interval(secs => %s))"""
BEAT = """select held, cancel_requested
    from trax.heartbeat(array[%s::bigint], array[%s::uuid], make_interval(secs => %s))"""
COMPLETE = "select trax.complete(%s, %s::uuid, %s::jsonb)"
FAIL = "select trax.fail(%s, %s::uuid, %s, retry_in => make_interval(secs => %s), permanent => %s)"
RELEASE = "select trax.release(%s, %s::uuid, make_interval(secs => %s))"

class Snooze(Exception):  # Snooze(90): in so many seconds, without using up an attempt
    pass

class Job:  # the one in hand
    def __init__(self, job_id, token, attempt, task, text):
        self.id, self.token, self.attempt, self.task, self.text = job_id, token, attempt, task, text
        self.gone, self.done = threading.Event(), threading.Event()  # gone: cancelled, lease lost, grace over

# -- The tasks. An exception is a failure; its retry_in (seconds) and permanent (true) decide about retries.
def count_words(given, job):
    job.gone.wait(given.get("seconds", 0))  # once it is set, what a task returns is not used
    return {"words": len(given["text"].split())}

TASKS = {"count.words": count_words}
# -- End of the tasks.

stopping, db, job = threading.Event(), None, None

def ask(sql, values, over):
    """Return the row of a statement, on a new connection if the last one broke; repeated outcomes change nothing."""
    global db
    while not over():
        try:
            db = db or psycopg.connect(DATABASE, autocommit=True, connect_timeout=2)
            return db.execute(sql, values).fetchone()
        except psycopg.OperationalError:
            if db and not db.closed:
                raise  # the server refuses what it was told
            db = None
            time.sleep(0.2)

def heartbeat(job, last):  # on its own thread and connection, three times a lease
    while not job.done.wait(LEASE / 3):
        sent = time.monotonic()
        try:
            with psycopg.connect(DATABASE, autocommit=True, connect_timeout=2) as own:
                held, cancelled = own.execute(BEAT, (job.id, job.token, LEASE)).fetchone()
            last = sent
        except psycopg.Error:  # nobody answers: the lease is ours until it has run out
            held, cancelled = time.monotonic() - last < LEASE, False
        if cancelled or not held:
            job.gone.set()

def tell(sql, *values):  # after one more lease it is lost
    end = time.monotonic() + LEASE
    ask(sql, (job.id, job.token, *values), lambda: time.monotonic() > end)

def work():
    threading.Thread(target=heartbeat, args=(job, time.monotonic()), daemon=True).start()
    try:
        end = (COMPLETE, json.dumps(TASKS[job.task](json.loads(job.text), job)))
    except Snooze as later:
        end = (RELEASE, later.args[0])
    except Exception as error:
        end = (FAIL, f"{type(error).__name__}: {error}", getattr(error, "retry_in", None), getattr(error, "permanent", False))
    try:
        tell(*((RELEASE, 0) if job.gone.is_set() else end))  # release also acknowledges a cancel
    except psycopg.Error as error:  # too large, say
        tell(FAIL, f"the outcome was refused: {error}", None, True)
    job.done.set()

def on_signal(*_):
    stopping.set()
    grace = threading.Timer(GRACE, lambda: job and job.gone.set())
    grace.daemon = True
    grace.start()

for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, on_signal)
while not stopping.is_set():
    row = ask(CLAIM, (NAME, list(TASKS), LEASE), stopping.is_set)
    job = Job(*row) if row else None
    work() if job else stopping.wait(0.2)
