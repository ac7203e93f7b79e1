#!/usr/bin/env bash
# A trax worker with psql 15 alone, and its PGHOST, PGDATABASE... SIGTERM: finish the job in hand; twice: give it back.
set -uo pipefail
LEASE=${LEASE:-30} # seconds
NAME=$(hostname):$$
TASK=count.words
said=$(mktemp) # what a program printed: bash 5.2 may lose a signal that comes while it reads a $(...) here
signals=0 child=
trap 'rm -f "$said"' EXIT
trap 'signals=$((signals + 1)); echo "stopping, signal $signals" >&2; [ "$signals" -gt 1 ] && [ -n "$child" ] && kill "$child" 2>/dev/null' TERM INT

# Statements come on standard input, values as variables, which psql quotes; all users can see arguments: no token there.
sql() {
    TOKEN=${token-} SAID=${output-} psql -XqAt -F ' ' -v ON_ERROR_STOP=1 -v worker="$NAME" -v task="$TASK" -v lease="$LEASE" \
        -v id="${id-}" -c '\getenv token TOKEN' -c '\getenv said SAID' -f -
}

count_words() { # input on standard input, output on standard output; ended by TERM
    local input seconds
    read -rd "" input
    seconds=$(sed -nE 's/.*"seconds": *([0-9.]+).*/\1/p' <<<"$input")
    sleep "${seconds:-0}" & wait $! # wait: bash acts on a signal at once
    sed -E 's/.*"text": *"([^"]*)".*/\1/' <<<"$input" | wc -w | sed 's/.*/{"words": &}/; s/ *\([0-9]\)/ \1/'
}

heartbeat() { # three times a lease: ends the task when the job was cancelled or the lease lost
    local last=$SECONDS answer me=$BASHPID
    while sleep "$(awk "BEGIN { print $LEASE / 3 }")"; do
        # The worker was killed: the next attempt may begin.
        if [ "$(ps -o ppid= -p "$me")" -ne $$ ]; then kill "$1" 2>/dev/null; return; fi
        answer=$(sql <<<"select held and not cancel_requested
            from trax.heartbeat(array[:id], array[:'token'::uuid], make_interval(secs => :lease))") && last=$SECONDS
        # Nobody answers: the lease is ours until it has run out.
        if [ "$answer" = f ] || [ $((SECONDS - last)) -gt "${LEASE%.*}" ]; then kill "$1" 2>/dev/null; return; fi
    done
}

work() {
    local output status heart
    (trap 'kill $(jobs -p) 2>/dev/null; exit 143' TERM; trap '' INT; count_words <<<"$input" >"$said" 2>&1) & child=$!
    (trap - TERM INT; heartbeat "$child") & heart=$!
    [ "$signals" -gt 1 ] && kill "$child" 2>/dev/null # the second signal may have come before there was a child
    while kill -0 "$child" 2>/dev/null; do wait "$child"; done # a signal ends a wait, not the task
    wait "$child"; status=$? child=
    read -rd '' output <"$said"
    case $status in
        # release also acknowledges a cancel; after a lost lease each of these changes nothing
        0) sql <<<"select trax.complete(:id, :'token', :'said')" ;;
        143) sql <<<"select trax.release(:id, :'token')" ;;
        *) output="exit code $status: $output"; sql <<<"select trax.fail(:id, :'token', :'said')" ;;
    esac >/dev/null
    kill "$heart" 2>/dev/null
}

while [ "$signals" = 0 ]; do
    sql >"$said" <<<"select job_id, token, input::text from trax.claim_next(:'worker', tasks => array[:'task'],
        lease => make_interval(secs => :lease))"
    if read -r id token input <"$said"; then work; else sleep 0.2; fi
done
