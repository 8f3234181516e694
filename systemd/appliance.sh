#!/bin/sh
# The command "appliance" on a box that runs the service: the same program, the service's folders.
export APPLIANCE_DATA="${APPLIANCE_DATA:-/var/lib/appliance}"
export APPLIANCE_MODELS="${APPLIANCE_MODELS:-/var/lib/appliance/models}"
if [ ! -r "$APPLIANCE_DATA" ] && [ "$APPLIANCE_DATA" = /var/lib/appliance ] && [ "$(id -u)" != 0 ]; then
    echo "You may not read $APPLIANCE_DATA yet. Run: sudo usermod -aG appliance $(id -un), then log in again." >&2
fi
exec /opt/appliance/venv/bin/appliance "$@"
