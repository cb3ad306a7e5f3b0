#!/bin/sh
# tools/lint finds each kind of fault, and nothing in a clean file. Usage: lint.sh SOURCE
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/tools" "$folder/scheduler" "$folder/runtime/engine" "$folder/docs"
cp "$1/tools/lint" "$folder/tools/lint"
cp "$1/.clang-format" "$folder"

lint() {
    (cd "$folder" && python3 tools/lint "$@" | grep -v '^lint:' || true)
}
# expect FILE LINE WORDS: linted alone, this is the only fault.
expect() {
    found=$(lint)
    case $found in
    "$1:$2: "*"$3"*) ;;
    *)
        printf 'wanted %s:%s: %s\nfound: %s\n' "$1" "$2" "$3" "$found" >&2
        exit 1
        ;;
    esac
    [ "$(echo "$found" | wc -l)" = 1 ] || {
        echo "more than one fault: $found" >&2
        exit 1
    }
    rm "$folder/$1"
}

printf '/* malloc(1) in a comment, "free(x)" */\nint f(void);\n' >"$folder/scheduler/clean.h"
[ -z "$(lint)" ] || {
    lint >&2
    exit 1
}
printf '#include "runtime/core/core.h"\n' >"$folder/scheduler/a.h"
expect scheduler/a.h 1 "not below this folder"
printf '#include "scheduler/schedule.h"\n' >"$folder/runtime/engine/a.h"
expect runtime/engine/a.h 1 "not below this folder"
printf '#include <nccl.h>\n' >"$folder/scheduler/a.h"
expect scheduler/a.h 1 "belongs in runtime/backend/cuda/"
printf 'int a(void)\n{\n    return *(int *)malloc(4);\n}\n' >"$folder/scheduler/a.c"
expect scheduler/a.c 3 "memory goes through"
printf 'int a(void)\n{\n    return printf("x");\n}\n' >"$folder/scheduler/a.c"
expect scheduler/a.c 3 "prints nothing"
printf 'char *a(void)\n{\n    return getenv("X");\n}\n' >"$folder/runtime/engine/a.c"
expect runtime/engine/a.c 3 "settings come through"
printf 'int a(void)\n{\n    return usleep(1);\n}\n' >"$folder/runtime/engine/a.c"
expect runtime/engine/a.c 3 "sleeps"
{ printf 'void a(void)\n{\n' && seq -f '    b(%g);' 70 && printf '}\n'; } >"$folder/scheduler/a.c"
expect scheduler/a.c 2 "function of 71 lines"
seq -f 'int a%g;' 501 >"$folder/scheduler/a.c"
expect scheduler/a.c 1 "501 lines"
printf '/* TO%s: later */\n' DO >"$folder/scheduler/a.c"
expect scheduler/a.c 1 "unfinished"
printf '#if 0\n#endif\n' >"$folder/scheduler/a.c"
expect scheduler/a.c 1 "dead code"
printf 'see /ho%s/me\n' me >"$folder/docs/a.txt"
expect docs/a.txt 1 "somebody's machine"
printf 'see [this](nothing.md)\n' >"$folder/docs/a.md"
expect docs/a.md 1 "link to nothing"
mkdir -p "$folder/tests/unit"
printf 'int old_name;\n' >"$folder/tests/unit/a.c"
printf '| A1 | fault | unit/b.c |\n' >"$folder/docs/cases.md"
expect docs/cases.md 1 "no such test"
printf '| A1 | fault | unit/a.c `new_name` |\n' >"$folder/docs/cases.md"
expect docs/cases.md 1 "not in the file"
rm "$folder/tests/unit/a.c"
printf 'int a; // NOLINT\n' >"$folder/scheduler/a.c"
expect scheduler/a.c 1 "without a reason"
if command -v clang-format-14 >/dev/null 2>&1; then
    printf 'int  a ;\n' >"$folder/scheduler/a.c"
    found=$(lint)
    case $found in "scheduler/a.c:1: formatting"*) ;; *) echo "formatting not seen: $found" >&2 && exit 1 ;; esac
fi
