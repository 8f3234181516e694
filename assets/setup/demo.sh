#!/bin/sh
# What `make demo` shows once everything is installed: the real daemon on a folder of its own reads
# the sample documents, answers a Chinese and an English question with citations, then offers chat.
# BIN is the virtual environment's bin folder, DATA the demo's data folder.
set -eu

here=$(dirname "$0")
app="$BIN/appliance"
samples=$here/../samples
log=$DATA/daemon.log
ready=$DATA/run/demo-ready.json

mkdir -p "$DATA/inbox" "$DATA/run"

"$app" models pull --starter

# A daemon of an earlier demo may still run (a killed terminal); it is the same one we would start.
if ! "$app" status --data "$DATA" >/dev/null 2>&1; then
    rm -f "$ready"
    "$app" serve --data "$DATA" --port 0 --ready-file "$ready" >"$log" 2>&1 &
    daemon=$!
    trap 'kill "$daemon" 2>/dev/null || true; wait "$daemon" 2>/dev/null || true' EXIT INT TERM HUP
    tries=0
    while [ ! -s "$ready" ]; do
        if ! kill -0 "$daemon" 2>/dev/null; then
            echo "The daemon stopped at once; its log says:" >&2
            tail -n 5 "$log" >&2
            exit 1
        fi
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || { echo "The daemon is not ready after a minute; see $log" >&2; exit 1; }
        sleep 0.1
    done
fi

echo
echo "Dropping the sample documents into $DATA/inbox ..."
for file in "$samples"/documents/*; do
    cp -n "$file" "$DATA/inbox/" 2>/dev/null || true
done
"$app" kb wait --data "$DATA" --timeout 600
"$app" kb list --data "$DATA"

while IFS= read -r question; do
    [ -n "$question" ] || continue
    printf '\n>>> %s\n' "$question"
    "$app" ask --data "$DATA" "$question"
done <"$samples/questions.txt"

if [ -t 0 ] && [ -t 1 ]; then
    printf '\nNow it is your turn. Drop files into %s/inbox, ask below; Ctrl-D leaves.\n' "$DATA"
    "$app" chat --data "$DATA"
else
    printf '\nRun "make demo" in a terminal to chat, or: %s ask --data %s "..."\n' "$app" "$DATA"
fi
