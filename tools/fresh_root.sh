#!/bin/sh
# Prove the README's two commands on a new, minimal Debian: debootstrap a root, clone the repository
# into it, install what the README's prerequisites line names, run `make run` and `make test`.
#
#   tools/fresh_root.sh [--keep] [--no-test] [--suite bookworm]
#
# Runs as root. The machine's own apt and pip settings and its certificates go along, so that it
# works behind a proxy or a mirror; nothing else of the machine does. Everything happens in mount
# and process namespaces of its own: nothing stays mounted or running. Prints how long it took.
set -eu

SUITE=bookworm
KEEP=no
TEST=yes
while [ $# -gt 0 ]; do
    case "$1" in
        --keep) KEEP=yes ;;
        --no-test) TEST=no ;;
        --suite) SUITE=$2; shift ;;
        *) echo "unknown option $1" >&2; exit 64 ;;
    esac
    shift
done

HERE=$(cd "$(dirname "$0")/.." && pwd)

if [ "${FRESH_ROOT_INSIDE:-}" != yes ]; then
    [ "$(id -u)" = 0 ] || { echo "this needs root (debootstrap, chroot)" >&2; exit 77; }
    command -v debootstrap >/dev/null || {
        echo "please run: apt-get install --no-install-recommends debootstrap" >&2
        exit 69
    }
    ROOT=$(mktemp -d "${TMPDIR:-/tmp}/leveret-root.XXXXXX")
    chmod 755 "$ROOT"
    status=0
    if [ "$TEST" = no ]; then set -- --no-test; else set --; fi
    FRESH_ROOT_INSIDE=yes FRESH_ROOT="$ROOT" \
        unshare --mount --propagation private --pid --fork --kill-child \
        sh "$0" "$@" --suite "$SUITE" || status=$?
    if [ "$KEEP" = yes ]; then
        echo "kept: $ROOT"
    else
        rm -rf --one-file-system "$ROOT"
    fi
    exit "$status"
fi

ROOT=$FRESH_ROOT
BEGAN=$(date +%s)

step() {
    echo "--- $* (at $(($(date +%s) - BEGAN)) s)"
}

inside() {
    chroot "$ROOT" /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM=dumb \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        sh -c ". /root/machine.env; cd /root/leveret 2>/dev/null || cd /root; $1"
}

# --- the root ---------------------------------------------------------------------------------

MIRROR=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources \
    /etc/apt/sources.list.d/*.list 2>/dev/null \
    | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 || true)
step "debootstrap a minimal $SUITE"
debootstrap --variant=minbase "$SUITE" "$ROOT" ${MIRROR:+"$MIRROR"} >"$ROOT.log" 2>&1 || {
    tail -n 20 "$ROOT.log" >&2
    exit 1
}
rm -f "$ROOT.log"

# --- what the machine needs to reach its package servers --------------------------------------

for path in /etc/apt/apt.conf.d /etc/apt/sources.list /etc/apt/sources.list.d \
    /etc/apt/trusted.gpg.d /etc/apt/keyrings /etc/apt/auth.conf.d /etc/pip.conf /etc/resolv.conf \
    /etc/hosts /usr/local/share/ca-certificates; do
    if [ -e "$path" ]; then
        rm -rf "${ROOT:?}$path"
        mkdir -p "$(dirname "$ROOT$path")"
        cp -aL "$path" "$ROOT$path"
    fi
done
[ -e /etc/apt/sources.list ] || rm -f "$ROOT/etc/apt/sources.list"
cp -an /usr/share/keyrings/. "$ROOT/usr/share/keyrings/" 2>/dev/null || true
for path in .config/pip .pip .netrc; do
    if [ -e "$HOME/$path" ]; then
        mkdir -p "$(dirname "$ROOT/root/$path")"
        cp -aL "$HOME/$path" "$ROOT/root/$path"
    fi
done
SETTINGS='PIP_[A-Z_]*|[A-Z_]*(CERT|CA_BUNDLE|CAINFO)[A-Z_]*|(https?|ftp|all|no)_proxy'
env | grep -iE "^($SETTINGS)=" \
    | sed -e "s/'/'\\\\''/g" -e "s/^\([^=]*\)=\(.*\)$/export \1='\2'/" \
        >"$ROOT/root/machine.env" || true
# Package folders that pip's settings name are shown inside, read only.
{
    cat /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf" 2>/dev/null || true
    env | grep ^PIP_ || true
} | grep -oE '(file://)?/[A-Za-z0-9._/-]+' | sed -e 's,^file://,,' -e 's,/simple/*$,,' \
    | sort -u | while read -r path; do
    if [ -d "$path" ] && [ ! -e "$ROOT$path" ]; then
        mkdir -p "$ROOT$path"
        mount --bind -o ro "$path" "$ROOT$path"
    fi
done

mount -t proc proc "$ROOT/proc"
mount -t sysfs -o ro sysfs "$ROOT/sys" 2>/dev/null || true
mount --rbind /dev "$ROOT/dev"

# --- the two commands -------------------------------------------------------------------------

step "clone the repository"
git clone --quiet --no-hardlinks "$HERE" "$ROOT/root/leveret"
git -C "$ROOT/root/leveret" log -1 --format='%h %s'

LINE=$(sed -n 's/^ *\(apt-get install .*\)$/\1/p' "$HERE/README.md" | head -n 1)
step "prerequisites: $LINE"
inside "apt-get update -qq && DEBIAN_FRONTEND=noninteractive ${LINE} --yes -qq >/dev/null 2>&1"
BUNDLE=/etc/ssl/certs/ca-certificates.crt
if [ -f "$BUNDLE" ]; then cp "$BUNDLE" "$ROOT$BUNDLE"; fi

step "make build without root, with system packages missing"
git clone --quiet --no-hardlinks "$HERE" "$ROOT/tmp/leveret"
chown -R 65534:65534 "$ROOT/tmp/leveret"
printed=$(chroot --userspec=65534:65534 "$ROOT" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp \
    make -C /tmp/leveret build 2>&1 || true)
echo "$printed" | sed 's/^/    /'
case "$printed" in
    *"sudo apt-get install "*) ;;
    *) exit 1 ;;
esac
rm -rf "$ROOT/tmp/leveret"

PORTS="--amqp-port=0 --ws-port=0 --http-port=0 --metrics-port=-1"

# Starts `make run`, waits for `ready`, talks to the web app, presses Ctrl-C.
run_once() {
    step "make run ($1)"
    started=$(date +%s)
    mkfifo "$ROOT/root/printed"
    inside "exec make run ARGS='$PORTS'" >"$ROOT/root/printed" 2>&1 &
    run=$!
    ready=no
    while IFS= read -r line; do
        printf '    %s\n' "$line"
        case "$line" in
            *"ready"*)
                ready=yes
                step "ready after $(($(date +%s) - started)) s"
                kill -INT "$(supervisor)"
                ;;
        esac
    done <"$ROOT/root/printed"
    status=0
    wait "$run" || status=$?
    rm "$ROOT/root/printed"
    step "make run ended with $status"
    [ "$ready" = yes ] || exit 1
}

# The supervisor's number, as it notes it itself.
supervisor() {
    sed -n 's/.*"supervisor": \([0-9]*\).*/\1/p' "$ROOT/root/leveret/data/run/addresses.json"
}

run_once "first"
run_once "second"

if [ "$TEST" = yes ]; then
    step "make test"
    started=$(date +%s)
    status=0
    inside "CI=true make test" >"$ROOT/root/test.log" 2>&1 || status=$?
    tail -n 40 "$ROOT/root/test.log"
    step "make test ended with $status after $(($(date +%s) - started)) s"
    exit "$status"
fi
step "done"
