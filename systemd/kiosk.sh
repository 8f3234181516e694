#!/bin/sh
# Chromium on the kiosk page, for appliance-kiosk.service. URL: $APPLIANCE_KIOSK_URL or the default.
set -eu

browser=
for name in chromium chromium-browser; do
    if command -v "$name" >/dev/null 2>&1; then
        browser=$name
        break
    fi
done
if [ -z "$browser" ]; then
    echo "No Chromium is installed. Run: apt-get install chromium cage" >&2
    exit 1
fi
exec "$browser" \
    --kiosk --app="${APPLIANCE_KIOSK_URL:-http://127.0.0.1:8080/}" \
    --user-data-dir="$HOME/profile" --ozone-platform=wayland \
    --no-first-run --no-default-browser-check --disable-session-crashed-bubble \
    --disable-infobars --disable-translate --disable-sync --disable-component-update \
    --disable-background-networking --disable-pinch --overscroll-history-navigation=0 \
    --password-store=basic --touch-events=enabled
