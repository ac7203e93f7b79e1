#!/usr/bin/env python3
"""A trax worker with psycopg 3; DATABASE_URL names the database. SIGTERM: finish the job in hand; twice: give it back."""
import json, os, signal, socket, threading, time
import psycopg

DATABASE, LEASE = os.environ["DATABASE_URL"], float(os.environ.get("LEASE", "30"))  # seconds
NAME = f"{socket.gethostname()}:{os.getpid()}"
CLAIM = """select job_id, token::text, task, input
    from trax.claim_next(%s, tasks => %s, lease => make_interval(secs => %s))"""
BEAT = """select held, cancel_requested
    from trax.heartbeat(array[%s::bigint], array[%s::uuid], make_interval(secs => %s))"""
signals, gone = [], threading.Event()  # gone: the job in hand should stop

def count_words(job):
    gone.wait(job.get("seconds", 0))  # cancelled, lease lost, or told to give back: what it returns is not used
    return {"words": len(job["text"].split())}

TASKS = {"count.words": count_words}

def on_signal(number, frame):
    signals.append(number)
    print("stopping: the job in hand", "goes back" if len(signals) > 1 else "may end", flush=True)
    len(signals) > 1 and gone.set()

def heartbeat(job_id, token, done):  # on its own thread and connection, three times a lease
    last = time.monotonic()
    while not done.wait(LEASE / 3):
        try:
            with psycopg.connect(DATABASE, autocommit=True, connect_timeout=2) as db:
                held, cancelled = db.execute(BEAT, (job_id, token, LEASE)).fetchone()
            last = time.monotonic()
        except psycopg.Error:  # nobody answers: the lease is ours until it has run out
            held, cancelled = time.monotonic() - last < LEASE, False
        if cancelled or not held:
            gone.set()

def work(db, job_id, token, task, job):
    len(signals) > 1 or gone.clear()
    done = threading.Event()
    threading.Thread(target=heartbeat, args=(job_id, token, done), daemon=True).start()
    try:
        output = TASKS[task](job)
        end = ("select trax.release(%s, %s::uuid)", (job_id, token)) if gone.is_set() else (
            "select trax.complete(%s, %s::uuid, %s::jsonb)", (job_id, token, json.dumps(output)))
    except Exception as error:
        end = ("select trax.fail(%s, %s::uuid, %s)", (job_id, token, repr(error)))
    db.execute(*end)  # release also acknowledges a cancel; after a lost lease all three change nothing
    done.set()

def main():
    with psycopg.connect(DATABASE, autocommit=True) as db:
        while not signals:
            job = db.execute(CLAIM, (NAME, list(TASKS), LEASE)).fetchone()
            work(db, *job) if job else time.sleep(0.2)

for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, on_signal)
main()
