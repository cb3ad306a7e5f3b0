# common.sh: what tools/test and tools/demo share. Sourced, never run. POSIX sh.
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"

say() {
    printf '== %s\n' "$*"
}

die() {
    printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
    exit 1
}

# The packages of the sections in "$@", one a line.
packages_of() {
    awk -v want=" $* " '/^#/ || NF == 0 {next} /^\[/ {section = substr($0, 2, length($0) - 2); next}
        index(want, " " section " ") {print $1}' tools/packages
}

is_installed() {
    dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

missing_of() {
    for package in $(packages_of "$@"); do
        is_installed "$package" || printf '%s ' "$package"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif ! command -v sudo >/dev/null 2>&1; then
        return 1
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

apt_install() {
    say "installing: $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y update >"$log" 2>&1 &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "$@" >>"$log" 2>&1
}

# Installs what is missing of the sections in "$@", or stops and says what is.
need_packages() {
    if ! command -v dpkg-query >/dev/null 2>&1; then
        say "no dpkg here; these packages of Debian, or what corresponds to them, must be there:"
        packages_of "$@" | tr '\n' ' '
        printf '\n'
        return 0
    fi
    missing=$(missing_of "$@")
    [ -n "$missing" ] || return 0
    log=$(mktemp)
    # shellcheck disable=SC2086
    apt_install $missing || tail -n 3 "$log" >&2
    rm -f "$log"
    missing=$(missing_of "$@")
    [ -z "$missing" ] || die "missing packages that could not be installed: $missing- install them, then start again"
}

# A quiet step: its output is shown only where it fails.
quietly() {
    step_log=$(mktemp)
    if ! "$@" >"$step_log" 2>&1; then
        cat "$step_log" >&2
        rm -f "$step_log"
        die "failed: $*"
    fi
    rm -f "$step_log"
}

use_ccache() {
    if command -v ccache >/dev/null 2>&1 && [ -z "${CMAKE_C_COMPILER_LAUNCHER:-}" ]; then
        CMAKE_C_COMPILER_LAUNCHER=ccache
        export CMAKE_C_COMPILER_LAUNCHER
    fi
}

build_preset() {
    preset=$1
    shift
    use_ccache
    quietly cmake --preset "$preset" "$@"
    quietly cmake --build --preset "$preset" -j "$(nproc)"
}
