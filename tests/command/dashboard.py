"""Reads a dashboard by Grafana's own types and says what they do not know: a line for each, none when all is known."""

import json
import sys

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard


def lost(before, after, path):
    """Where two documents differ, as far as the first one goes."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from lost(value, after.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (value, known) in enumerate(zip(before, after)):
            yield from lost(value, known, f"{path}[{index}]")
    elif before != after:
        yield f"{path}: {json.dumps(before)}, read as {json.dumps(after)}"


plugins.register_default_plugins()
with open(sys.argv[1]) as file:
    dashboard = json.load(file)
read = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(dashboard)))
print(*lost(dashboard, read, "dashboard"), sep="\n")
