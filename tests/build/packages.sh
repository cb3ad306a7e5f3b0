#!/bin/sh
# Where packages cannot be installed, tools/test and tools/demo stop and say exactly which are missing.
# Package programs of the system are replaced by ones that know everything but two, and cannot install.
# Usage: packages.sh SOURCE
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

stub() {
    cat >"$folder/$1"
    chmod +x "$folder/$1"
}
# shellcheck disable=SC2016
stub dpkg-query <<'END'
#!/bin/sh
for name; do :; done
case $name in libjansson-dev | ninja-build) exit 1 ;; esac
echo 'install ok installed'
END
stub apt-get <<'END'
#!/bin/sh
echo "E: no network" >&2
exit 100
END
stub sudo <<'END'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
END

for tool in test demo; do
    if PATH="$folder:$PATH" "$1/tools/$tool" </dev/null >"$folder/out" 2>"$folder/err"; then
        echo "tools/$tool went on without its packages" >&2
        exit 1
    fi
    grep -qx "E: no network" "$folder/err"
    grep -qx "$tool: missing packages that could not be installed: ninja-build libjansson-dev - install them, then start again" \
        "$folder/err" || {
        cat "$folder/out" "$folder/err" >&2
        exit 1
    }
done
