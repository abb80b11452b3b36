#include "log.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

namespace stand_in {
namespace {

std::mutex lock;
std::string faults;
thread_local int device = 0;

}  // namespace

int Device() { return device; }
void SetDevice(int chosen) { device = chosen; }

void Fault(const char* format, ...) {
  char text[1000];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof(text), format, values);
  va_end(values);
  const std::lock_guard<std::mutex> hold(lock);
  faults.append(text).append("\n");
}

std::string TakeFaults() {
  const std::lock_guard<std::mutex> hold(lock);
  return std::exchange(faults, {});
}

}  // namespace stand_in
