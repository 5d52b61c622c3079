#!/usr/bin/env bash
# Make sure that what the report's page needs is there: Node.js with the packages of frontend/, and,
# with --browser, Chromium for the tests in a browser. Prints nothing when there is nothing to do.
# With --if-possible it says what is missing and goes on; tests that need it are skipped then.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

needed=20
browser=false
must=true
for option in "$@"; do
    case "$option" in
        --browser) browser=true ;;
        --if-possible) must=false ;;
    esac
done

give_up() {
    printf 'browser: %s\n' "$1" >&2
    if [ "$must" = true ]; then
        exit 1
    fi
    exit 0
}

# Package managers name their mirrors at length; the log is shown only when they fail.
run_quietly() {
    local log
    log=$(mktemp)
    "$@" >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        rm -f "$log"
        return 1
    }
    rm -f "$log"
}

node_major() {
    node --version 2>/dev/null | sed -n 's/^v\([0-9][0-9]*\).*/\1/p'
}

find_chromium() {
    local name
    if [ -n "${CHROMIUM:-}" ]; then
        return 0
    fi
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" >/dev/null 2>&1 && return 0
    done
    return 1
}

install_packages() {
    local stamp=frontend/node_modules/.installed
    if [ ! -e "$stamp" ] || [ frontend/package-lock.json -nt "$stamp" ]; then
        printf 'browser: installing the packages of frontend/\n' >&2
        run_quietly npm ci --prefix frontend --ignore-scripts --no-audit --no-fund || return 1
        touch "$stamp"
    fi
}

install_chromium() {
    printf 'browser: Chromium is missing; running: apt-get install chromium (a minute)\n' >&2
    run_quietly apt-get update -qq || true # installing will report what is wrong
    run_quietly env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends chromium
}

major=$(node_major || true)
if [ "${major:-0}" -lt "$needed" ]; then
    give_up "Node.js $needed or newer is missing. Hint: install it and put 'node' on PATH."
fi
install_packages || give_up "Installing the packages of frontend/ failed. Hint: see above."
if [ "$browser" = false ] || find_chromium; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    give_up "Chromium is missing. Hint: install it, and put it on PATH or its path in CHROMIUM."
fi
if [ "$(id -u)" -ne 0 ]; then
    give_up "Chromium is missing. Install it with: sudo apt-get install chromium"
fi
install_chromium || give_up "Installing Chromium failed. Hint: see above."
