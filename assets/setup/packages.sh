#!/bin/sh
# Install the Debian packages that a make target needs: says what is missing, then installs it.
#
# Usage: packages.sh demo|test|lint|boot
#   demo   Python 3.10 or newer with venv, and a C++ compiler (llama-cpp-python is built here)
#   test   demo, plus what builds the native half and the tools the tests drive
#   lint   test, plus clang-tidy
#   boot   test, plus what makes and boots a disk
set -eu

want=${1:-demo}
missing=

need() { # need COMMAND PACKAGE: the package is missing when the command is
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

need python3 python3
if command -v python3 >/dev/null 2>&1; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
        echo "Python 3.10 or newer is needed; this system has $(python3 --version)." >&2
        echo "Use Debian 12, Ubuntu 22.04 or newer." >&2
        exit 1
    }
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
else
    missing="$missing python3-venv"
fi
need g++ g++
need cc gcc
need make make
if [ "$want" != demo ]; then
    need git git
    need cmake cmake
    need ninja ninja-build
    need ip iproute2
    need strace strace
    need tmux tmux
    need pkill procps
    need chromium chromium
fi
if [ "$want" = lint ]; then
    need clang-tidy clang-tidy
fi
if [ "$want" = boot ]; then
    need debootstrap debootstrap
    need qemu-system-x86_64 qemu-system-x86
    need mke2fs e2fsprogs
fi

[ -n "$missing" ] || exit 0

# shellcheck disable=SC2086 # the list is split into words on purpose
echo "Missing on this system:$missing"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "There is no apt-get here. Install these with your package manager and run make again." >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1; then
    as_root="sudo"
else
    echo "Installing them needs root. Run: apt-get install$missing" >&2
    exit 1
fi
echo "Installing them with apt-get ..."
$as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
