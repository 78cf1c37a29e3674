#!/bin/sh
# A Chromium for the browser tests: taken as it is where there is one, from the system's packages where apt can.
set -eu
if [ -n "${CHROMIUM:-}" ] || command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1; then
    exit 0
fi
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "installing chromium for the browser tests"
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends chromium >/dev/null
    exit 0
fi
echo "no chromium here: install it, or set CHROMIUM to a browser; browser tests will be skipped" >&2
