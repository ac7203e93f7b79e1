"""The campaign's worker in another language: psycopg, one job at a time, the same log as those in Rust.

A line is written by one call, so that a kill leaves whole lines: kind, microseconds, job, attempt, nonce, word."""
import json, os, signal, threading, time
import psycopg

URL, NAME = os.environ["CHAOS_URL"], os.environ["CHAOS_NAME"]
LEASE = 4.0  # seconds
CLAIM = """select job_id, attempt, token::text, input
    from trax.claim_next(%s, tasks => '{work,tick}', lease => make_interval(secs => %s))"""
BEAT = """select held and not cancel_requested
    from trax.heartbeat(array[%s::bigint], array[%s::uuid], make_interval(secs => %s))"""
log = os.open(os.environ["CHAOS_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
ending = threading.Event()


def note(kind, job=0, attempt=0, nonce="-", word="-"):
    os.write(log, f"{kind} {time.time_ns() // 1000} {job} {attempt} {nonce} {word}\n".encode())


def heartbeat(job, token, last, gone, done):
    """Three times a lease, on a connection of its own; when nobody answers the lease is over when it has run out."""
    while not done.wait(LEASE / 3):
        sent = time.monotonic()
        try:
            with psycopg.connect(URL, autocommit=True, connect_timeout=2) as db:
                held = db.execute(BEAT, (job, token, LEASE)).fetchone()[0]
            last = sent if held else last
        except psycopg.Error:
            held = True
        if not held or time.monotonic() - last > LEASE:
            gone.set()


def work(job, attempt, token, given, gone):
    """Returns the word for the log and how the job ends."""
    ours = (job, token)
    if gone.wait(given.get("nap", 20) / 1000) and given.get("how") != "deaf":
        return "stopped", ("select trax.release(%s, %s::uuid)", ours)
    if attempt > given.get("fails", 0):
        nonce = json.dumps(given.get("nonce", "-"))
        return "ok", ("select trax.complete(%s, %s::uuid, %s::jsonb)", (*ours, nonce))
    if given.get("how") == "snooze" and job % 2 == int(time.time()) % 2:
        return "released", ("select trax.release(%s, %s::uuid, '300 ms')", ours)
    permanent = given.get("how") == "permanent"
    return "failed", ("select trax.fail(%s, %s::uuid, 'as the input says', permanent => %s)", (*ours, permanent))


def main():
    note("S")
    with psycopg.connect(URL, autocommit=True, connect_timeout=5) as db:
        while not ending.is_set():
            asked = time.monotonic()
            row = db.execute(CLAIM, (NAME, LEASE)).fetchone()
            # A claim whose answer arrives after its lease has expired is void.
            if not row or time.monotonic() - asked > LEASE:
                time.sleep(0.1)
                continue
            job, attempt, token, given = row
            gone, done = threading.Event(), threading.Event()
            beat = threading.Thread(target=heartbeat, args=(job, token, asked, gone, done), daemon=True)
            note("B", job, attempt, given.get("nonce", "-"))
            beat.start()
            word, (sql, values) = work(job, attempt, token, given, gone)
            note("E", job, attempt, given.get("nonce", "-"), word)
            db.execute(sql, values)
            done.set()


signal.signal(signal.SIGTERM, lambda *_: ending.set())
try:
    main()
except psycopg.Error as error:
    print(error)
