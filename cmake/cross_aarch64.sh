#!/usr/bin/env bash
# `make aarch64`: the CPU module for aarch64 Linux, by Debian's cross-compiler, and its smoke test under qemu.
#
# Needs Debian's packages g++-aarch64-linux-gnu, qemu-user and ninja-build, `dpkg --add-architecture arm64` with
# `apt-get update`, and Python 3.11 with build/venv (`make`). The target's Python and libraries are downloaded, not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in aarch64-linux-gnu-g++ qemu-aarch64 ninja apt-get; do
  command -v "$tool" >/dev/null || { echo "make aarch64 needs $tool (Debian: g++-aarch64-linux-gnu qemu-user ninja-build)" >&2; exit 1; }
done
python=$(realpath -s build/venv/bin/python)
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "make aarch64 tests with Debian 12 Python: build/venv has to be Python 3.11")'
out=$(pwd)/build/aarch64
mkdir -p "$out/packages" "$out/system" "$out/tree"

"$python" -m pip install --quiet "cmake>=3.26" "nanobind>=2.9" jaxlib==0.10.2
JAXSPARSE_CUDA=OFF "${python%/*}/cmake" -G Ninja -S . -B "$out/module" -DCMAKE_TOOLCHAIN_FILE="$(pwd)/cmake/aarch64.cmake" \
  -DPython_EXECUTABLE="$python" -DPython_INCLUDE_DIR="$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')" \
  -DSKBUILD_SOABI=cpython-311-aarch64-linux-gnu >"$out/configure.log" || { cat "$out/configure.log"; exit 1; }
ninja -C "$out/module" -j "${JOBS:-2}" _cpu

packages=(python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libstdc++6 libgcc-s1 zlib1g libexpat1 libffi8
  libssl3 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1)
(cd "$out/packages" && apt-get download -qq "${packages[@]/%/:arm64}" && for deb in *.deb; do dpkg -x "$deb" "$out/system"; done)
platforms=(--platform manylinux_2_17_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64)
"$python" -m pip install --quiet --upgrade --target "$out/site" "${platforms[@]}" --python-version 311 --only-binary=:all: \
  jax==0.10.2 jaxtyping msgspec platformdirs filelock rich typer

rm -rf "$out/tree/jaxsparse"
cp -r jaxsparse "$out/tree/"
rm -f "$out"/tree/jaxsparse/_*.so
cp "$out"/module/_cpu.*.so "$out/tree/jaxsparse/"
mkdir -p "$out/tree/jaxsparse/select/variants"
cp -r "$out/module/variants/cpu" "$out/tree/jaxsparse/select/variants/"
PYTHONPATH=$out/tree:$out/site qemu-aarch64 -L "$out/system" "$out/system/usr/bin/python3.11" tests/aarch64_smoke.py
