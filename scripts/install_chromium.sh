#!/usr/bin/env bash
# Debian's Chromium for the browser tests of tests/view, where there is none yet. Needs root and apt.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then
        exit 0
    fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no Chromium, and it can only be installed by root with apt-get" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt="timeout 240 apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=30" # what hangs must not hang the tests
$apt update >/dev/null || true # an older list may do
$apt install -y --no-install-recommends chromium fonts-dejavu-core fonts-noto-color-emoji >/dev/null
command -v chromium >/dev/null
