#!/usr/bin/env bash
# The CPU module with a sanitizer of the compiler, under build/<name>, and tests that run it:
#
#   cmake/sanitize/run.sh asan|ubsan|tsan [test files or folders]
#
# WORKERS: so many processes at once, one for each test file: what a sanitizer keeps of a program takes
# up to 15 GB over all files. 1, the default, runs all tests in one process.
# XLA and Python are not instrumented: the sanitizer's runtime is preloaded, and what it would say of
# them is left out. The module stops at the first finding.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=$1
shift
tests=("$@")
hostile=tests/ffi/test_hostile_calls.py
[ ${#tests[@]} -gt 0 ] || tests=("$hostile::test_no_call_by_hand_kills_or_hangs"
  "$hostile::test_no_table_of_a_network_leads_out_of_bounds" tests/fuzz/test_fuzz.py)
case $name in
  asan) kind=address library=libasan.so ;;
  ubsan) kind=undefined library=libubsan.so ;;
  tsan) kind=thread library=libtsan.so ;;
  *) echo "$name is not one of asan, ubsan, tsan" >&2 && exit 2 ;;
esac
root=$PWD build=build/$name bin=$PWD/build/native/venv/bin compiler=${CXX:-c++}
"$bin/cmake" -S . -B "$build" -G Ninja -DJAXSPARSE_CUDA=OFF -DJAXSPARSE_SANITIZE=$kind \
  -DPython_EXECUTABLE="$bin/python" -DCMAKE_MAKE_PROGRAM="$bin/ninja" > /dev/null
"$bin/cmake" --build "$build" -j "${JOBS:-2}"
rm -rf "$build/tree" && mkdir -p "$build/tree"
cp -r jaxsparse "$build/tree" && rm -f "$build"/tree/jaxsparse/*.so
"$bin/cmake" --install "$build" --prefix "$build/tree" > /dev/null

# Leaks are Python's. libstdc++ comes with the runtime: it looks for the function that throws when it starts.
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=suppressions=$root/cmake/sanitize/tsan.supp:ignore_noninstrumented_modules=1:halt_on_error=1:report_signal_unsafe=0
export PYTHONPATH=$root/$build/tree JAX_PLATFORMS=cpu
runner=()
[ $name != tsan ] || runner=(setarch -R)  # its shadow memory needs fixed addresses
found=$(for each in "${tests[@]}"; do realpath "$each"; done)
mkdir -p build/outside && cd build/outside
run=("${runner[@]}" "$bin/python" -m pytest -q -p no:cacheprovider -c "$root/pyproject.toml" --rootdir "$root")
runtimes="$("$compiler" -print-file-name=$library) $("$compiler" -print-file-name=libstdc++.so)"
rm -f -- *.log
# shellcheck disable=SC2086
if [ "${WORKERS:-1}" -gt 1 ]; then
  # Of a file without tests for this machine pytest says 5. A log is a line on the terminal, or all of it where it fails.
  one='log=$(echo "${1#"$ROOT"/}" | tr / _).log; status=0
    LD_PRELOAD=$RUNTIMES "${@:2}" "$1" > "$log" 2>&1 || status=$?
    case $status in 0 | 5) echo "$(tail -n 1 "$log") of $1" ;; *) cat "$log"; exit 1 ;; esac'
  find $found -name 'test_*.py' | sort | ROOT=$root RUNTIMES=$runtimes \
    xargs -P "$WORKERS" -I {} bash -c "$one" bash {} "${run[@]}"
else
  LD_PRELOAD=$runtimes "${run[@]}" $found | tee all.log
fi
passed=$(grep -ohE '[0-9]+ passed' -- *.log | awk '{n += $1} END {print n + 0}')
echo "make $name: 0 findings; $passed passed of ${tests[*]}"
