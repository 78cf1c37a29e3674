#!/bin/sh
# A Chromium for the browser tests: taken as it is where there is one, from the system's packages where apt can,
# or else fetched by Playwright.
set -u
here=$(dirname "$0")
python=${1:-python3}
fetched=${PLAYWRIGHT_BROWSERS_PATH:-$HOME/.cache/ms-playwright}
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if [ -n "${CHROMIUM:-}" ] || ls "$fetched"/chromium-*/chrome-linux*/chrome >/dev/null 2>&1; then
    exit 0
fi
echo "installing chromium for the browser tests"
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    "$here/retry.sh" apt-get update -qq
    "$here/retry.sh" apt-get install -y -qq --no-install-recommends chromium >/dev/null && exit 0
fi
"$here/retry.sh" "$python" -m playwright install chromium && exit 0
echo "no chromium here: install it, or set CHROMIUM to a browser; without it browser tests cannot run" >&2
