#!/usr/bin/env bash
# Run tests under every CPython from 3.11 on that this machine has, and once with the lowest versions of the dependencies.
#
#     tools/test_pythons.sh [--without X.Y] [--newest] [argument of pytest ...]
#
# Pythons are searched on PATH (python3.X) and in pyenv's versions. One of each X.Y is used, in an environment
# .venv-X.Y of its own; .venv-lowest has Python 3.11 and the versions of tests/constraints-lowest.txt.
# --without leaves out a Python that has been tested already, --newest all but the newest of the others. Without arguments of pytest, the tests marked `versions` run.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

without=
newest=
if [[ ${1:-} == --without ]]; then without=$2; shift 2; fi
if [[ ${1:-} == --newest ]]; then newest=yes; shift; fi
if (( $# == 0 )); then set -- -m "versions and not full"; fi

# The version X.Y of an interpreter that can be used: a CPython from 3.11 on, with the GIL, that can make environments.
version_of() {
    "$1" -c '
import sys, sysconfig
import ensurepip, venv
if sys.implementation.name == "cpython" and sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

declare -A pythons
while read -r candidate; do
    version=$(version_of "$candidate")
    if [[ -n $version && -z ${pythons[$version]:-} ]]; then pythons[$version]=$candidate; fi
done < <(
    compgen -c python3. | grep -E '^python3\.[0-9]+$' | sort -u | while read -r name; do type -P "$name"; done
    printf '%s\n' "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python
)
mapfile -t versions < <(printf '%s\n' "${!pythons[@]}" | sort -V)
if (( ${#pythons[@]} == 0 )); then echo "No CPython 3.11 or newer with venv and ensurepip was found." >&2; exit 1; fi
echo "Pythons found:"
for version in "${versions[@]}"; do echo "    $version  ${pythons[$version]}"; done

results=()
failed=0

# run NAME INTERPRETER ARGUMENT...: pytest in the environment .venv-NAME. Compiled kernels are kept in it.
run() {
    local name=$1 python=$2 venv=.venv-$1 log result
    shift 2
    echo
    echo "== $name: $python =="
    if ! make --no-print-directory "$venv/.installed-test" VENV="$venv" PYTHON="$python" </dev/null >"$venv.log" 2>&1; then
        tail -n 20 "$venv.log"
        results+=("$name: the dependencies could not be installed")
        # A Python that pyproject.toml does not declare may be newer than the dependencies.
        if [[ $name == lowest ]] || grep -q "Python :: $name\"" pyproject.toml; then failed=1; fi
        return
    fi
    rm "$venv.log"
    log=$(mktemp)
    NUMBA_CACHE_DIR="$PWD/$venv/numba" "$venv/bin/python" -m pytest -n 2 --dist loadfile "$@" </dev/null 2>&1 | tee "$log"
    result=${PIPESTATUS[0]}
    results+=("$name: $("$venv/bin/python" -V), exit code $result, $(tail -n 1 "$log" | tr -d '=')")
    rm "$log"
    (( result == 0 )) || failed=1
}

others=()
for version in "${versions[@]}"; do
    if [[ $version != "$without" ]]; then others+=("$version"); fi
done
if [[ -n $newest && ${#others[@]} -gt 1 ]]; then others=("${others[-1]}"); fi
for version in "${others[@]}"; do
    FLOATSIM_STRICT_WARNINGS=1 run "$version" "${pythons[$version]}" "$@"
done
if [[ -n ${pythons[3.11]:-} ]]; then
    PIP_CONSTRAINT="$PWD/tests/constraints-lowest.txt" run lowest "${pythons[3.11]}" "$@"
else
    results+=("lowest: not run, these versions need Python 3.11")
fi

echo
echo "Results:"
printf '    %s\n' "${results[@]}"
exit "$failed"
