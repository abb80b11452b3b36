// Calls a handler as XLA does on a device: the call frame, and the functions of XLA that a handler
// may use. Buffers are device addresses without memory (memory.h).
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels.h"
#include "launch.h"
#include "log.h"
#include "memory.h"
#include "xla/ffi/api/c_api.h"

struct XLA_FFI_Error {
  std::string message;
};

namespace stand_in {
namespace {

XLA_FFI_Error* CreateError(XLA_FFI_Error_Create_Args* args) {
  return new XLA_FFI_Error{args->message};
}
void DestroyError(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }
XLA_FFI_Error* GetStream(XLA_FFI_Stream_Get_Args* args) {
  args->stream = GivenStream();
  return nullptr;
}
// Handlers that can be recorded in a CUDA graph allocate nothing.
XLA_FFI_Error* Allocate(XLA_FFI_DeviceMemory_Allocate_Args*) {
  Fault("the handler allocates memory");
  return new XLA_FFI_Error{"the stand-in allocates no memory"};
}
XLA_FFI_Error* Free(XLA_FFI_DeviceMemory_Free_Args*) { return nullptr; }

// The slots that a handler calls if none of these fails; they are the same in every version.
const XLA_FFI_Api* Api() {
  static const XLA_FFI_Api api = [] {
    XLA_FFI_Api made = {};
    made.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    made.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR,
                        XLA_FFI_API_MINOR};
    made.XLA_FFI_Error_Create = CreateError;
    made.XLA_FFI_Error_Destroy = DestroyError;
    made.XLA_FFI_Stream_Get = GetStream;
    made.XLA_FFI_DeviceMemory_Allocate = Allocate;
    made.XLA_FFI_DeviceMemory_Free = Free;
    return made;
  }();
  return &api;
}

// Reads the numbers of a call one after the other.
class Reader {
 public:
  explicit Reader(const int64_t* at) : at_(at) {}
  int64_t Next() { return *at_++; }
  std::vector<int64_t> Next(int64_t count) {
    at_ += count;
    return {at_ - count, at_};
  }

 private:
  const int64_t* at_;
};

struct Array {
  XLA_FFI_Buffer buffer;
  std::vector<int64_t> dims;
};

// An array's dtype, bytes and sizes.
Array ReadArray(Reader* reader, size_t* bytes) {
  Array array = {};
  const auto type = static_cast<XLA_FFI_DataType>(reader->Next());
  *bytes = static_cast<size_t>(reader->Next());
  const int64_t rank = reader->Next();
  array.dims = reader->Next(rank);
  array.buffer = {XLA_FFI_Buffer_STRUCT_SIZE, nullptr, type, nullptr, rank, nullptr};
  return array;
}

// The frame of one call, and the data it points to.
struct Frame {
  std::vector<Array> operands, results;
  std::vector<void*> args, rets, attrs;
  std::vector<XLA_FFI_ArgType> arg_types;
  std::vector<XLA_FFI_RetType> ret_types;
  std::vector<XLA_FFI_AttrType> attr_types;
  std::vector<int64_t> values;
  std::vector<XLA_FFI_Scalar> scalars;
  std::vector<XLA_FFI_ByteSpan> spans;
  std::vector<XLA_FFI_ByteSpan*> names;

  XLA_FFI_CallFrame Made(XLA_FFI_ExecutionStage stage) {
    XLA_FFI_CallFrame frame = {};
    frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.api = Api();
    frame.stage = stage;
    frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, static_cast<int64_t>(args.size()),
                  arg_types.data(), args.data()};
    frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, static_cast<int64_t>(rets.size()),
                  ret_types.data(), rets.data()};
    frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr,      static_cast<int64_t>(attrs.size()),
                   attr_types.data(),         names.data(), attrs.data()};
    return frame;
  }
};

// Reads results, then operands, then attributes; false where the arrays are larger than a device.
bool ReadFrame(Reader reader, const char* const* names, size_t alignment, Frame* frame) {
  const int64_t results = reader.Next();
  for (int64_t i = 0; i < results; ++i) {
    size_t bytes = 0;
    frame->results.push_back(ReadArray(&reader, &bytes));
    frame->results.back().buffer.data = Place(bytes, alignment, true);
    if (frame->results.back().buffer.data == nullptr) return false;
  }
  const int64_t operands = reader.Next();
  for (int64_t i = 0; i < operands; ++i) {
    size_t bytes = 0;
    frame->operands.push_back(ReadArray(&reader, &bytes));
    const int64_t alias = reader.Next();  // the result that shares the buffer, or -1
    void*& data = frame->operands.back().buffer.data;
    data = alias < 0 ? Place(bytes, alignment, false) : frame->results[alias].buffer.data;
    if (data == nullptr) return false;
  }
  const int64_t attributes = reader.Next();
  frame->values.resize(attributes);
  frame->scalars.resize(attributes);
  frame->spans.resize(attributes);
  for (int64_t i = 0; i < attributes; ++i) {
    frame->scalars[i].dtype = static_cast<XLA_FFI_DataType>(reader.Next());
    frame->values[i] = reader.Next();  // the bits
    frame->scalars[i].value = &frame->values[i];
    frame->spans[i] = {names[i], strlen(names[i])};
    frame->names.push_back(&frame->spans[i]);
    frame->attrs.push_back(&frame->scalars[i]);
    frame->attr_types.push_back(XLA_FFI_AttrType_SCALAR);
  }
  const auto point = [](std::vector<Array>* arrays, std::vector<void*>* buffers) {
    for (Array& array : *arrays) {
      array.buffer.dims = array.dims.data();
      buffers->push_back(&array.buffer);
    }
  };
  point(&frame->operands, &frame->args);
  point(&frame->results, &frame->rets);
  frame->arg_types.assign(operands, XLA_FFI_ArgType_BUFFER);
  frame->ret_types.assign(results, XLA_FFI_RetType_BUFFER);
  return true;
}

thread_local std::string answer;

const char* Answer(std::string text) {
  answer = std::move(text);
  return answer.c_str();
}

}  // namespace
}  // namespace stand_in

#define STAND_IN_EXPORT extern "C" __attribute__((visibility("default")))

// Runs a handler's stages on a device, with buffers at odd multiples of `alignment`. Returns the
// handler's error, or an empty text. `initialize` may be nullptr.
STAND_IN_EXPORT const char* StandInCall(XLA_FFI_Handler* initialize, XLA_FFI_Handler* execute,
                                        int device, int64_t alignment, const int64_t* numbers,
                                        const char* const* names) {
  using namespace stand_in;
  SetDevice(device);
  ClearMemory();
  Frame frame;
  if (!ReadFrame(Reader(numbers), names, static_cast<size_t>(alignment), &frame)) {
    return Answer("larger than the device");
  }
  XLA_FFI_Error* error = nullptr;
  if (initialize != nullptr) {
    XLA_FFI_CallFrame made = frame.Made(XLA_FFI_ExecutionStage_INITIALIZE);
    error = initialize(&made);
  }
  if (error == nullptr) {
    XLA_FFI_CallFrame made = frame.Made(XLA_FFI_ExecutionStage_EXECUTE);
    error = execute(&made);
  }
  const std::unique_ptr<XLA_FFI_Error> owned(error);
  return Answer(owned == nullptr ? "" : owned->message);
}

// What a driver refuses of what the calls did since the last use of this, a line each.
STAND_IN_EXPORT const char* StandInFaults() { return stand_in::Answer(stand_in::TakeFaults()); }

// The kernels that have a host function, a line each: launches on each device, and the symbol.
STAND_IN_EXPORT const char* StandInKernels() {
  using namespace stand_in;
  std::string text;
  for (const auto& [symbol, kernel] : AllKernels()) {
    if (kernel.name.empty()) continue;
    for (int device = 0; device < kDeviceCount; ++device) {
      const bool runs = kernel.On(device) != nullptr;
      text += runs ? std::to_string(kernel.limits[device].launches) + " " : "- ";
    }
    text += symbol + "\n";
  }
  return Answer(text);
}

// The devices' names, a line each.
STAND_IN_EXPORT const char* StandInDevices() {
  std::string text;
  for (const auto& device : stand_in::kDevices) text.append(device.name).append("\n");
  return stand_in::Answer(text);
}
