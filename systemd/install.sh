#!/bin/sh
# Install the appliance as a system service, or take it away again.
#
# Run it from a clone or from an unpacked release, as root. It may be run again at any time: what is
# already as it should be is left alone, and a run that was broken off goes on where it stopped.
set -eu

usage() {
    cat <<'EOF'
Usage: sudo ./systemd/install.sh [OPTION]...

Installs the service, its user, its rules and the starter models, and starts it.

  --dry-run      say what would be done, change nothing
  --offline      use only what lies beside this script (wheels/, models/), never a network
  --no-models    do not fetch the starter models
  --no-start     enable the service, but do not start it now
  --kiosk        also show the kiosk page on the attached screen (cage and Chromium)
  --serial PORT  also answer on a serial line, such as ttyS1 or ttyUSB0
  --uninstall    remove the program; documents, store and models stay
  --purge        with --uninstall: remove those too
  --help         this text

Examples:
  sudo ./systemd/install.sh
  sudo ./systemd/install.sh --offline --serial ttyS1
  sudo ./systemd/install.sh --uninstall --purge
EOF
}

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
opt=/opt/appliance
venv=$opt/venv
data=/var/lib/appliance
unit=/etc/systemd/system

dry=
offline=
models=1
start=1
kiosk=
serial=
uninstall=
purge=
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry=1 ;;
    --offline) offline=1 ;;
    --no-models) models= ;;
    --no-start) start= ;;
    --kiosk) kiosk=1 ;;
    --serial)
        [ $# -gt 1 ] || { echo "--serial needs the name of a port, such as ttyS1." >&2; exit 2; }
        serial=${2#/dev/}
        shift
        ;;
    --uninstall) uninstall=1 ;;
    --purge) purge=1 ;;
    --help | -h)
        usage
        exit 0
        ;;
    *)
        echo "There is no option $1." >&2
        usage >&2
        exit 2
        ;;
    esac
    shift
done
if [ -n "$purge" ] && [ -z "$uninstall" ]; then
    echo "--purge only goes with --uninstall." >&2
    exit 2
fi
case $serial in
*[!A-Za-z0-9]*)
    echo "A port is a name in /dev, such as ttyS1 or ttyUSB0; $serial is none." >&2
    exit 2
    ;;
esac
if [ "$(id -u)" != 0 ] && [ -z "$dry" ]; then
    echo "Installing needs root. Run: sudo $0" >&2
    exit 1
fi

n_changed=0

say() { printf '%s\n' "$*"; }
fail() {
    printf 'Not installed: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf '  %s\n' "$2" >&2
    exit 1
}
# change TEXT: announce a change; false in a dry run, so that "change ... || return 0" skips it.
change() {
    n_changed=$((n_changed + 1))
    if [ -n "$dry" ]; then
        say "  would: $1"
        return 1
    fi
    say "  $1"
}
# put SOURCE TARGET MODE: copy a file if it differs.
put() {
    if cmp -s "$1" "$2" && [ "$(stat -c %a "$2")" = "$3" ]; then
        return 0
    fi
    change "write $2" || return 0
    install -D -m "$3" "$1" "$2.new"
    mv "$2.new" "$2"
}
drop() { # drop PATH...: remove what is there
    for path; do
        if [ -e "$path" ] || [ -L "$path" ]; then
            change "remove $path" || continue
            rm -rf "$path"
        fi
    done
}
is_booted() { [ -d /run/systemd/system ]; }

# --------------------------------------------------------------------------------------------------
# what this machine is

first_line() { tr -d '\0' 2>/dev/null <"$1" | head -n 1; }

cann_home() {
    for home in "${ASCEND_TOOLKIT_HOME:-}" "${ASCEND_HOME_PATH:-}" /usr/local/Ascend/cann \
        /usr/local/Ascend/ascend-toolkit/latest /usr/local/Ascend/nnrt/latest; do
        if [ -n "$home" ] && [ -d "$home" ]; then
            printf '%s\n' "$home"
            return
        fi
    done
}

describe() {
    # shellcheck disable=SC1091 # the system's own file
    system=$(. /etc/os-release 2>/dev/null && printf '%s' "${PRETTY_NAME:-}") || system=
    board=
    for file in /proc/device-tree/model /sys/class/dmi/id/product_name; do
        if [ -z "$board" ] && [ -r "$file" ]; then
            board=$(first_line "$file")
        fi
    done
    say "System: ${system:-unknown}, $(uname -m), $(nproc) cores," \
        "$(awk '/^MemTotal/{printf "%.1f GiB", $2 / 1048576}' /proc/meminfo)"
    say "Board:  ${board:-unknown}"
    if [ -e /dev/davinci_manager ]; then
        chip=$(npu-smi info 2>/dev/null | grep -o '310[BP][0-9]*' | head -n 1) || chip=
        driver=$(sed -n 's/^Version=//p' /usr/local/Ascend/driver/version.info 2>/dev/null) || driver=
        cann=$(cann_home)
        toolkit=$(sed -n 's/^[Vv]ersion=//p' "$cann"/*/ascend_toolkit_install.info \
            "$cann/version.info" 2>/dev/null | head -n 1) || toolkit=
        say "NPU:    ${chip:-present}, driver ${driver:-unknown}, CANN ${toolkit:-not found}"
        [ -n "$cann" ] || say "        Without CANN the models run on the CPU; see docs/native.md."
    else
        say "NPU:    none; the models run on the CPU"
    fi
}

find_python() {
    for name in python3 python3.13 python3.12 python3.11 python3.10; do
        if command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

# --------------------------------------------------------------------------------------------------
# steps

has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

packages() {
    wanted=
    python=$(find_python) || python=
    [ -n "$python" ] || wanted="$wanted python3"
    if [ -z "$python" ] || ! has_venv "$python"; then
        command -v apt-get >/dev/null 2>&1 && wanted="$wanted python3-venv"
    fi
    if [ ! -d "$root/wheels" ]; then
        command -v g++ >/dev/null 2>&1 || wanted="$wanted g++"
        command -v make >/dev/null 2>&1 || wanted="$wanted make"
    fi
    if [ -n "$kiosk" ]; then
        command -v cage >/dev/null 2>&1 || wanted="$wanted cage"
        if ! command -v chromium >/dev/null 2>&1 && ! command -v chromium-browser >/dev/null 2>&1; then
            wanted="$wanted chromium"
        fi
    fi
    [ -n "$wanted" ] || return 0
    change "install packages:$wanted" || return 0
    [ -z "$offline" ] || fail "these packages are missing:$wanted" \
        "Install them from your system's medium, then run this again."
    # shellcheck disable=SC2086 # a list of names
    if command -v apt-get >/dev/null 2>&1; then
        DEBIAN_FRONTEND=noninteractive apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted >/dev/null
    elif command -v dnf >/dev/null 2>&1; then
        # shellcheck disable=SC2046
        dnf install -y -q $(printf '%s' "$wanted" | sed 's/g++/gcc-c++/')
    else
        fail "these packages are missing:$wanted" "Install them with your package manager."
    fi
    python=$(find_python) || fail "Python 3.10 or newer is needed." "Use Debian 12 or Ubuntu 22.04."
}

# What is installed came from exactly these files and this Python.
stamp_of_sources() {
    {
        "$python" -c 'import sys; print(sys.version)'
        cd "$root"
        find appliance assets pyproject.toml wheels -type f ! -name '*.pyc' 2>/dev/null |
            LC_ALL=C sort | xargs sha256sum
    } | sha256sum | cut -d' ' -f1
}

program() {
    stamp=$(stamp_of_sources)
    if [ "$(cat "$opt/installed" 2>/dev/null)" != "$stamp" ]; then
        change "install the program into $venv" || return 0
        mkdir -p "$opt"
        if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c '' 2>/dev/null; then
            rm -rf "$venv"
            "$python" -m venv "$venv"
        fi
        if [ -d "$root/wheels" ]; then
            set -- --no-index --find-links "$root/wheels" --upgrade appliance
        elif [ -n "$offline" ]; then
            fail "there is no folder $root/wheels" "Use a release archive for an offline install."
        else
            set -- --upgrade "$root"
        fi
        BIN=$venv/bin sh "$root/assets/setup/install.sh" "$@"
        # What pip would otherwise leave as it is when the version did not change.
        if [ ! -d "$root/wheels" ]; then
            BIN=$venv/bin sh "$root/assets/setup/install.sh" --force-reinstall --no-deps "$root"
        fi
        printf '%s\n' "$stamp" >"$opt/installed"
    fi
    for plugin in "$root/lib/libggml-cann310b.so" "$root/build/native/libggml-cann310b.so"; do
        if [ -f "$plugin" ]; then
            for package in "$venv"/lib/python3*/site-packages/appliance; do
                put "$plugin" "$package/libggml-cann310b.so" 644
            done
            break
        fi
    done
    put "$root/README.md" "$opt/share/doc/README.md" 644
    put "$root/README.zh-CN.md" "$opt/share/doc/README.zh-CN.md" 644
    put "$here/appliance.sh" /usr/local/bin/appliance 755
}

service() {
    put "$here/sysusers.conf" /etc/sysusers.d/appliance.conf 644
    put "$here/tmpfiles.conf" /etc/tmpfiles.d/appliance.conf 644
    put "$here/udev.rules" /etc/udev/rules.d/70-appliance.rules 644
    if ! id appliance >/dev/null 2>&1; then
        if change "make the user appliance"; then
            systemd-sysusers /etc/sysusers.d/appliance.conf
        fi
    fi
    if [ ! -d "$data/inbox" ]; then
        if change "make the data folder $data"; then
            systemd-tmpfiles --create /etc/tmpfiles.d/appliance.conf
        fi
    fi
    if getent group HwHiAiUser >/dev/null 2>&1; then
        put "$here/npu.conf" "$unit/appliance.service.d/npu.conf" 644
    else
        drop "$unit/appliance.service.d/npu.conf"
    fi
    put "$here/appliance.service" "$unit/appliance.service" 644
    if [ -n "$kiosk" ]; then
        put "$here/kiosk.sh" "$opt/share/systemd/kiosk.sh" 755
        put "$here/appliance-kiosk.service" "$unit/appliance-kiosk.service" 644
        if ! id appliance-kiosk >/dev/null 2>&1 && change "make the user appliance-kiosk"; then
            useradd --system --user-group --groups video,input,render --shell /usr/sbin/nologin \
                --home-dir /run/appliance-kiosk appliance-kiosk
        fi
    fi
}

serial_line() {
    [ -n "$serial" ] || return 0
    # A login prompt on the same line would read every second key.
    for getty in "getty@$serial.service" "serial-getty@$serial.service"; do
        if [ "$(systemctl is-enabled "$getty" 2>/dev/null)" != masked ]; then
            if change "keep the login prompt off $serial"; then
                systemctl mask -q "$getty"
                if is_booted; then systemctl stop "$getty" 2>/dev/null || true; fi
            fi
        fi
    done
    if ! grep -q "^  ports: .*$serial" "$data/appliance.yaml" 2>/dev/null; then
        if [ -s "$data/appliance.yaml" ] && grep -q '^serial:' "$data/appliance.yaml"; then
            say "  $data/appliance.yaml has a section serial already: add $serial to its ports yourself"
            return 0
        fi
        if change "add $serial to $data/appliance.yaml"; then
            printf 'serial:\n  ports: [%s]\n' "$serial" >>"$data/appliance.yaml"
            chown appliance:appliance "$data/appliance.yaml"
        fi
    fi
}

starter_models() {
    [ -n "$models" ] || return 0
    if [ -n "$dry" ]; then
        [ -d "$data/models" ] && [ -n "$(ls -A "$data/models" 2>/dev/null)" ] ||
            change "fetch the starter models" || true
        return 0
    fi
    before=$(find "$data/models" -type f 2>/dev/null | wc -l)
    if [ -d "$root/models" ]; then
        for file in "$root"/models/*.gguf; do
            [ -f "$file" ] || continue
            # As root: the archive may be unpacked where only root may read.
            APPLIANCE_DATA=$data APPLIANCE_MODELS=$data/models "$venv/bin/appliance" models import \
                "$file" --name "$(basename "$file" .gguf)" >/dev/null
        done
        chown -R appliance:appliance "$data/models"
    elif [ -n "$offline" ]; then
        say "  no models beside this script; import one with: appliance models import FILE"
    else
        as_appliance models pull --starter
    fi
    after=$(find "$data/models" -type f 2>/dev/null | wc -l)
    [ "$before" = "$after" ] || n_changed=$((n_changed + 1))
}

as_appliance() {
    setpriv --reuid appliance --regid appliance --init-groups \
        env HOME="$data" APPLIANCE_DATA="$data" APPLIANCE_MODELS="$data/models" PYTHONDONTWRITEBYTECODE=1 \
        "$venv/bin/appliance" "$@"
}

run_it() {
    for name in appliance.service ${kiosk:+appliance-kiosk.service}; do
        if [ "$(systemctl is-enabled "$name" 2>/dev/null)" != enabled ]; then
            if change "enable $name"; then
                systemctl enable -q "$name"
            fi
        fi
    done
    [ -z "$dry" ] && is_booted || return 0
    if [ "$n_changed" -gt 0 ]; then
        systemctl daemon-reload
        udevadm control --reload
        udevadm trigger --subsystem-match=tty
    fi
    [ -n "$start" ] || return 0
    if [ "$n_changed" -gt 0 ]; then
        systemctl restart appliance.service
        [ -z "$kiosk" ] || systemctl restart appliance-kiosk.service
    else
        systemctl start appliance.service
    fi
}

closing() {
    if [ -n "$dry" ]; then
        say "$n_changed changes would be made."
        return
    fi
    if [ "$n_changed" = 0 ]; then
        say "Everything was as it should be; nothing was changed."
    fi
    if is_booted && [ -n "$start" ]; then
        say ""
        # Its findings are advice; the install is done.
        as_appliance doctor || true
    fi
    say ""
    say "Put documents into $data/inbox, then ask: appliance ask \"...\", or open http://127.0.0.1:8080/"
    say "To let a person add documents: usermod -aG appliance NAME"
}

remove_all() {
    for name in appliance-kiosk.service appliance.service; do
        if [ -e "$unit/$name" ]; then
            if change "stop and disable $name"; then
                if is_booted; then systemctl disable -q --now "$name"; else systemctl disable -q "$name"; fi
            fi
        fi
    done
    drop "$unit/appliance.service" "$unit/appliance.service.d" "$unit/appliance-kiosk.service" \
        /etc/sysusers.d/appliance.conf /etc/tmpfiles.d/appliance.conf \
        /etc/udev/rules.d/70-appliance.rules /usr/local/bin/appliance "$opt"
    for link in "$unit"/getty@*.service "$unit"/serial-getty@*.service; do
        port=${link##*@}
        if [ -L "$link" ] && grep -q "^  ports: .*${port%.service}" "$data/appliance.yaml" 2>/dev/null; then
            change "give the login prompt back: ${link##*/}" && rm -f "$link"
        fi
    done
    if [ -n "$purge" ]; then
        drop "$data"
        for name in appliance appliance-kiosk; do
            if id "$name" >/dev/null 2>&1; then
                change "remove the user $name" && userdel "$name"
            fi
        done
    fi
    if is_booted && [ -z "$dry" ]; then systemctl daemon-reload; fi
    if [ "$n_changed" = 0 ]; then
        say "There was nothing to remove."
    elif [ -z "$purge" ] && [ -d "$data" ]; then
        say "Documents, store and models are still in $data; --uninstall --purge removes them too."
    fi
}

if [ -n "$uninstall" ]; then
    remove_all
    exit 0
fi
command -v systemctl >/dev/null 2>&1 || fail "this system has no systemd" \
    "Run it by hand instead: appliance serve --data DIR"
describe
packages
program
service
starter_models
serial_line
run_it
closing
