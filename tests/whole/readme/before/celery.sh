# What the commands for Celery print.
body() { printf '%s' "$1" | base64 -w 0; }
cat > celery.jsonl <<JSON
{"body": "$(body '[[2, 3], {"round": true}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]')", "content-encoding": "utf-8", "content-type": "application/json", "headers": {"lang": "py", "task": "shop.tasks.add", "id": "0b2a", "eta": "2099-01-01T00:00:00+00:00", "expires": "2099-01-02T00:00:00+00:00", "retries": 0}, "properties": {"body_encoding": "base64", "priority": 0, "delivery_info": {"exchange": "", "routing_key": "celery"}, "delivery_tag": "t"}}
{"body": "$(body '[[], {}, {}]')", "content-encoding": "utf-8", "content-type": "application/json", "headers": {"lang": "py", "task": "shop.tasks.sync", "id": "0b2b", "eta": null, "expires": null, "retries": 1}, "properties": {"body_encoding": "base64", "priority": 0, "delivery_info": {"exchange": "", "routing_key": "celery"}, "delivery_tag": "u"}}
JSON
