#!/bin/sh
# pip install with its chatter in a log and a sign of life on the screen: compiling takes minutes.
#
# Usage: install.sh PIP-INSTALL-ARGUMENTS...   (BIN is the virtual environment's bin folder)
set -eu

log=$BIN/../install.log
"$BIN/python" -m pip install --disable-pip-version-check "$@" >"$log" 2>&1 &
pip=$!
trap 'kill "$pip" 2>/dev/null || true' INT TERM HUP
started=$(date +%s)
shown=0
while kill -0 "$pip" 2>/dev/null; do
    sleep 1
    elapsed=$(($(date +%s) - started))
    if [ $((elapsed / 30)) -gt "$shown" ]; then
        shown=$((elapsed / 30))
        echo "  still installing, $elapsed s so far (details: $log)"
    fi
done
if ! wait "$pip"; then
    echo "Installing failed; the end of $log says:" >&2
    tail -n 25 "$log" >&2
    echo "If the network broke off, run make again: what was fetched is kept." >&2
    exit 1
fi
