#!/usr/bin/env bash
# A trax worker with psql 15 alone, and its PGHOST, PGDATABASE... SIGTERM: jobs not done within GRACE are released.
set -uo pipefail
LEASE=${LEASE:-30} GRACE=${GRACE:-30} # seconds
NAME=${WORKER_NAME:-$(hostname):$$}
said=$(mktemp) # what a program printed: bash 5.2 may lose a signal that comes while it reads a $(...) here
stopping='' over='' child=''
trap 'rm -f "$said"; kill $(jobs -p) 2>/dev/null' EXIT
trap '[ "$stopping" ] || { sleep "$GRACE" && kill -USR1 $$; } >/dev/null 2>&1 & stopping=1' TERM INT
trap 'over=1; [ "$child" ] && kill "$child" 2>/dev/null' USR1

# -- The tasks: input on standard input, output on standard output, TERM ends one. The exit code is the outcome: 0, 65 (failed
# for good), 75 (with {"retry_in": SECONDS} or {"snooze": SECONDS} as output), any other (failed, and the output is why).
TASKS=count.words
run_task() {
    local input seconds
    read -rd "" input
    seconds=$(sed -nE 's/.*"seconds": *([0-9.]+).*/\1/p' <<<"$input")
    sleep "${seconds:-0}" & wait $! # wait: bash acts on a signal at once
    sed -E 's/.*"text": *"([^"]*)".*/\1/' <<<"$input" | wc -w | sed 's/.*/{"words": &}/; s/ *\([0-9]\)/ \1/'
}
# -- End of the tasks.

# Statements come on standard input, values as variables, which psql quotes; all users can see arguments: no token there.
sql() {
    TOKEN=${token-} SAID=${output-} psql -XqAt -F ' ' -v ON_ERROR_STOP=1 -v worker="$NAME" -v tasks="$TASKS" -v lease="$LEASE" \
        -v id="${id-}" -c '\getenv token TOKEN' -c '\getenv said SAID' -f -
}

heartbeat() { # three times a lease: ends the task when the job was cancelled or the lease lost
    local last=$SECONDS answer me=$BASHPID
    while sleep "$(awk "BEGIN { print $LEASE / 3 }")"; do
        # The worker was killed, and the next attempt may begin.
        if [ "$(ps -o ppid= -p "$me")" -ne $$ ]; then kill "$1" 2>/dev/null; return; fi
        answer=$(sql <<<"select held and not cancel_requested
            from trax.heartbeat(array[:id], array[:'token'::uuid], make_interval(secs => :lease))") && last=$SECONDS
        # No answer: the lease is held until it expires.
        if [ "$answer" = f ] || [ $((SECONDS - last)) -gt "${LEASE%.*}" ]; then kill "$1" 2>/dev/null; return; fi
    done
}

tell() { # until the server has it, or the lease is lost; told twice, or after a lost lease, it changes nothing
    local until=$((SECONDS + ${LEASE%.*}))
    until sql <<<"select trax.$1" >/dev/null; do
        # 3: the server refuses it, for example as too large
        if [ $? = 3 ] && [ "$1" != "$GONE" ]; then output="the outcome was refused"; tell "$GONE"; return; fi
        [ "$SECONDS" -gt "$until" ] && return
        sleep 0.5
    done
}
FAIL="fail(:id, :'token', :'said')" GONE="fail(:id, :'token', :'said', permanent => true)"

work() {
    local output status heart
    (trap 'kill $(jobs -p) 2>/dev/null; exit 143' TERM; trap '' INT; run_task <<<"$input" >"$said" 2>&1) & child=$!
    (trap - TERM INT EXIT; heartbeat "$child") & heart=$!
    [ "$over" ] && kill "$child" 2>/dev/null # the grace may have been over before there was a child
    while kill -0 "$child" 2>/dev/null; do wait "$child"; done # a signal ends a wait, not the task
    wait "$child"; status=$? child=
    read -rd '' output <"$said"
    case $status in
        0) tell "complete(:id, :'token', :'said')" ;;
        65) tell "$GONE" ;;
        75) if [[ $output == *snooze* ]]; then tell "release(:id, :'token', make_interval(secs => (:'said'::jsonb ->> 'snooze')::int))"
            else tell "fail(:id, :'token', 'not now', retry_in => make_interval(secs => (:'said'::jsonb ->> 'retry_in')::int))"; fi ;;
        143) tell "release(:id, :'token')" ;; # also acknowledges a cancel
        *) tell "$FAIL" ;;
    esac
    kill "$heart" 2>/dev/null
}

while [ ! "$stopping" ]; do
    sql >"$said" <<<"select job_id, token, attempt, task, input::text from trax.claim_next(:'worker',
        tasks => string_to_array(:'tasks', ','), lease => make_interval(secs => :lease))"
    if read -r id token attempt task input <"$said"; then work; else sleep 0.5; fi
done
