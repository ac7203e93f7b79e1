"""The access levels of functions, for the advice when a right is missing."""

from __future__ import annotations

import re

_FUNCTION = re.compile(r"trax\.(\w+)")
_LEVELS = {
    "reader": (
        *("await_job", "await_jobs", "get_jobs"),
        *("read_graph", "read_needs", "read_steps"),
    ),
    "producer": (
        *("cancel", "change_job", "enqueue", "enqueue_graph", "enqueue_many"),
        *("enqueue_sql", "fork", "open_batch", "seal_batch", "send_signal"),
    ),
}
"""The lowest level that may call each function; the others need `worker`."""
CALLS = frozenset(one for functions in _LEVELS.values() for one in functions)
"""The functions that a client calls."""
OF_CONTEXT = frozenset(["spawn"])
"""The functions that a handler calls as methods of its context."""


def advice(statement: str) -> str:
    """Return what an admin types for a role that may not call the function of a statement."""
    found = _FUNCTION.search(statement)
    function = found[1] if found else ""
    level = next((one for one, functions in _LEVELS.items() if function in functions), "worker")
    return (
        f"As an admin of trax, type: select trax.grant_access('ROLE', '{level}'); this replaces "
        "another level of the role, and its limits to tasks and groups: name these again; to keep "
        "two levels, grant one of them to a role that it is a member of"
    )
