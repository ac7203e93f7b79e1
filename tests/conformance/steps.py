"""The task `conformance.steps` of README.md, as a program that calls `trax step`."""

import json
import os
import signal
import subprocess
import sys
import time

JOB, ATTEMPT = os.environ["TRAX_JOB_ID"], int(os.environ["TRAX_ATTEMPT"])
# Writes its line to the log, works without being stopped, and prints a new random text.
WORK = r"""trap '' TERM
echo "step $TRAX_JOB_ID $TRAX_ATTEMPT $(date +%s%3N) $1" >>"$CONFORMANCE_LOG"
sleep "$2"
od -An -N8 -tx8 /dev/urandom | tr -d ' '"""


def end(how):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(os.environ["CONFORMANCE_LOG"], "a") as log:
        log.write(f"end {JOB} {ATTEMPT} {time.time_ns() // 1_000_000} {how}\n")


def stop(*_):
    end("stopped")
    os._exit(143)


def step(name, *arguments):
    """Call `trax step --json`; return its exit code and what it printed."""
    command = [os.environ["TRAX"], "step", name, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    if done.returncode == 74:  # the lease is lost
        stop()
    if done.returncode not in (0, 3):
        sys.exit(done.returncode)
    return done.returncode, done.stdout.decode().removesuffix("\n")


def wait(name, *arguments):
    code, printed = step(name, "--json", *arguments)
    return "timed out" if code == 3 else json.loads(printed)


def run(one):
    what, name = one["do"], one.get("name", "children")
    if ATTEMPT > one.get("until_attempt", ATTEMPT):
        return None
    seconds = str(one.get("ms", 0) / 1000)
    if what == "fail":
        end("done")
        sys.exit(1)
    if what == "step":
        undo = one.get("undo")
        undo = ["--undo", undo["task"], "--undo-input", json.dumps(undo["input"])] if undo else []
        return step(name, *undo, "--", "sh", "-c", WORK, "sh", name, seconds)[1]
    if what == "sleep":
        return wait(name, "--sleep", seconds)
    if what == "signal":
        within = ["--within", seconds] if "ms" in one else []
        return wait(name, "--signal", name, *within)
    if what == "spawn":
        return wait(name, "--spawn", one["task"], "--input", json.dumps(one["input"]))
    return wait(name, "--children")


signal.signal(signal.SIGTERM, stop)
RESULTS = [run(one) for one in json.load(sys.stdin)]
end("done")
print(json.dumps(RESULTS))
