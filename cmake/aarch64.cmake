# A toolchain for `make aarch64`: Debian's cross-compiler (g++-aarch64-linux-gnu). The host's Python headers serve, as both
# are 64-bit Linux; the module's name is the target's.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
