# The tasks of README.md, in place of the example's own.
def note(kind, job, how=""):
    line = f"{kind} {job.id} {job.attempt} {time.time_ns() // 1_000_000}{how}\n".encode()
    log = os.open(os.environ["CONFORMANCE_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(log, line)
    os.close(log)

def wait(given, job):
    stopped = job.gone.wait(given["ms"] / 1000)
    return given, " stopped" if stopped else " done"

def failing(error, **what):
    error = ValueError(error)
    error.__dict__.update(what)
    raise error

def snooze(given, job):
    raise Snooze(given["seconds"])

def typed(given, job):
    return {"count": given["count"] + 1}

def logged(task):
    def run(given, job):
        if task is typed and not isinstance(given["count"], int):
            raise TypeError("count is no whole number")
        note("begin", job)
        how = " done"
        try:
            output = task(given, job)
            output, how = output if task is wait else (output, how)
            return output
        finally:
            note("end", job, how)
    return run

TASKS = {
    "conformance." + name: logged(task) for name, task in {
        "echo": lambda given, job: given,
        "wait": wait,
        "fail": lambda given, job: failing(given["error"]),
        "fail_permanently": lambda given, job: failing(given["error"], permanent=True),
        "retry_in": lambda given, job: failing("not now", retry_in=given["seconds"]),
        "snooze": snooze,
        "large": lambda given, job: "x" * given["bytes"],
        "typed": typed,
    }.items()
}
