#!/usr/bin/env bash
# The tasks of README.md, as the program of `trax worker --exec`; a failure writes its reason to
# standard error.
[ "$TRAX_TASK" != conformance.steps ] || exec python3 tests/conformance/steps.py
input=$(cat)
note() { echo "$1 $TRAX_JOB_ID $TRAX_ATTEMPT $(date +%s%3N)${2-}" >>"$CONFORMANCE_LOG"; }
number() { sed -nE 's/.*"'"$1"'": *([0-9]+) *[,}].*/\1/p' <<<"$input"; }

if [ "$TRAX_TASK" = conformance.typed ]; then
    count=$(number count)
    [ -n "$count" ] || { echo "the input has no whole number \"count\"" >&2; exit 65; }
fi
trap 'kill $(jobs -p) 2>/dev/null; note end " stopped"; exit 143' TERM
note begin
case $TRAX_TASK in
    conformance.echo) echo "$input" ;;
    conformance.wait)
        ms=$(number ms)
        sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))" & wait $!
        echo "$input" ;;
    conformance.fail | conformance.fail_permanently) echo "$input" | python3 -c 'import json, sys; print(json.load(sys.stdin)["error"])' >&2 ;;
    conformance.retry_in) echo "{\"retry_in\": $(number seconds)}" ;;
    conformance.snooze) echo "{\"snooze\": $(number seconds)}" ;;
    conformance.large) printf '"%s"' "$(head -c "$(number bytes)" /dev/zero | tr '\0' x)" ;;
    conformance.typed) echo "{\"count\": $((count + 1))}" ;;
esac
note end " done"
case $TRAX_TASK in
    conformance.fail) exit 1 ;;
    conformance.fail_permanently) exit 65 ;;
    conformance.retry_in | conformance.snooze) exit 75 ;;
esac
