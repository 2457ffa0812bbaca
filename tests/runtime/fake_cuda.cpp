// A libcuda that records its calls, for tests of the launch path on a machine without a GPU.
//
// A cubin is a text: FAKE, on the same line perhaps the architecture that it is for, then a line for each entry with its
// name and the byte size of every parameter. PTX is a text with the usual first directives; lines that begin with //FAKE
// are its entries. Each call appends one JSON object to a log that the test reads. Failures are ordered by name through
// fake_fail.
#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Function {
  std::string name;
  std::vector<size_t> sizes;
};

struct Module {
  int device;
  std::map<std::string, Function> functions;
};

struct State {
  std::mutex mutex;
  std::string log;
  std::map<std::string, int> failures;  // call -> result
  int devices = 2;
  int capability[8] = {90, 90, 80, 90, 90, 90, 90, 90};
  int shared[8] = {232448, 232448, 232448, 232448, 232448, 232448, 232448, 232448};
  double newest_ptx = 9.0;
  int load_delay_us = 0;
  int capturing = 0;
  int version = 13000;
  int poisoned = 0;  // what a faulted kernel has left for every later call
};

State& state() {
  static State* instance = new State();
  return *instance;
}

int contexts[8];  // their addresses are the primary contexts
thread_local std::vector<CUcontext> current;

int device_of(CUcontext context) {
  return context == nullptr ? -1 : static_cast<int>(reinterpret_cast<int*>(context) - contexts);
}

int current_device() { return current.empty() ? -1 : device_of(current.back()); }

void record(const std::string& line) {
  std::lock_guard<std::mutex> lock(state().mutex);
  state().log += line + "\n";
}

CUresult planned(const char* call) {
  std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().failures.find(call);
  return found == state().failures.end() ? CUDA_SUCCESS : static_cast<CUresult>(found->second);
}

std::string hex(const void* data, size_t size) {
  std::string out;
  char digits[3];
  for (size_t i = 0; i < size; ++i) {
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<const unsigned char*>(data)[i]);
    out += digits;
  }
  return out;
}

}  // namespace

EXPORT const char* fake_log() {
  static thread_local std::string copy;
  std::lock_guard<std::mutex> lock(state().mutex);
  copy = state().log;
  return copy.c_str();
}

EXPORT void fake_reset() {
  std::lock_guard<std::mutex> lock(state().mutex);
  state().log.clear();
  state().failures.clear();
  state().devices = 2;
  state().load_delay_us = 0;
  state().capturing = 0;
  state().version = 13000;
  state().poisoned = 0;
  state().newest_ptx = 9.0;
  const int capability[8] = {90, 90, 80, 90, 90, 90, 90, 90};
  for (int i = 0; i < 8; ++i) state().capability[i] = capability[i], state().shared[i] = 232448;
}

EXPORT void fake_fail(const char* call, int result) {
  std::lock_guard<std::mutex> lock(state().mutex);
  state().failures[call] = result;
}

EXPORT void fake_fault_clear() { state().poisoned = 0; }
EXPORT void fake_devices(int count) { state().devices = count; }
EXPORT void fake_device(int device, int capability, int shared) {
  state().capability[device] = capability;
  state().shared[device] = shared;
}
EXPORT void fake_newest_ptx(int tenths) { state().newest_ptx = tenths / 10.0; }
EXPORT void fake_version(int version) { state().version = version; }
EXPORT void fake_load_delay(int us) { state().load_delay_us = us; }
EXPORT void fake_capture(int status) { state().capturing = status; }
EXPORT void fake_push(int device) { current.push_back(reinterpret_cast<CUcontext>(&contexts[device])); }
EXPORT void fake_pop() { current.pop_back(); }
EXPORT int fake_current() { return current_device(); }

EXPORT CUresult cuInit(unsigned) { return planned("cuInit"); }
EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = state().version;
  return planned("cuDriverGetVersion");
}
EXPORT CUresult cuDeviceGetCount(int* count) {
  *count = state().devices;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal < state().devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  std::snprintf(name, static_cast<size_t>(length), "Fake GPU %d", device);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = state().capability[device] / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = state().capability[device] % 10; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132 - device; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = state().shared[device]; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = reinterpret_cast<CUcontext>(&contexts[device]);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current.empty() ? nullptr : current.back();
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  current.push_back(context);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = current.back();
  current.pop_back();
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSynchronize() { return static_cast<CUresult>(state().poisoned); }

// The result of loading the image on the current device, and the mark of the lines that name its entries.
static CUresult accept(const std::string& first, const std::string& image, std::string& mark) {
  const int capability = state().capability[current_device() < 0 ? 0 : current_device()];
  int wanted = 0;
  if (first.rfind("FAKE", 0) != 0 && image.find(".version ") != std::string::npos) {
    double version = 0;
    char arch[16] = "";
    if (std::sscanf(image.c_str() + image.find(".version "), ".version %lf .target %15s", &version, arch) != 2) return CUDA_ERROR_INVALID_PTX;
    if (version > state().newest_ptx + 0.01) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    if (std::sscanf(arch, "sm_%d", &wanted) != 1 || wanted > capability) return CUDA_ERROR_INVALID_PTX;
    mark = "//FAKE ";
    return CUDA_SUCCESS;
  }
  if (first.rfind("FAKE", 0) != 0) return CUDA_ERROR_INVALID_IMAGE;
  if (std::sscanf(first.c_str(), "FAKE sm_%d", &wanted) != 1) return CUDA_SUCCESS;
  const bool is_own = first.back() == 'a' ? wanted == capability : wanted / 10 == capability / 10 && wanted <= capability;
  return is_own ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* options,
                                   void** values) {
  const std::string content = static_cast<const char*>(image), head = content.substr(0, content.find('\n'));
  const size_t ptx = head.rfind("FAKE", 0) == 0 ? std::string::npos : content.find(".version ");
  record("{\"call\": \"load\", \"device\": " + std::to_string(current_device()) +
         (ptx != std::string::npos ? ", \"ptx\": \"" + content.substr(ptx + 9, 3) + "\", \"bytes\": " + std::to_string(content.size()) : "") + "}");
  if (state().load_delay_us != 0) std::this_thread::sleep_for(std::chrono::microseconds(state().load_delay_us));
  const CUresult result = planned("cuModuleLoadDataEx");
  if (result != CUDA_SUCCESS) {
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER) std::strcpy(static_cast<char*>(values[i]), "ptxas: line 7");
    }
    return result;
  }
  std::string mark;
  const CUresult accepted = accept(head, content, mark);
  if (accepted != CUDA_SUCCESS) return accepted;
  std::istringstream text(content);
  std::string line;
  std::getline(text, line);
  auto* loaded = new Module{current_device(), {}};
  while (std::getline(text, line)) {
    if (line.rfind(mark, 0) != 0) continue;
    std::istringstream words(line.substr(mark.size()));
    Function function;
    words >> function.name;
    for (size_t size; words >> size;) function.sizes.push_back(size);
    loaded->functions[function.name] = function;
  }
  *module = reinterpret_cast<CUmodule>(loaded);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  auto& functions = reinterpret_cast<Module*>(module)->functions;
  auto found = functions.find(name);
  if (found == functions.end()) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(&found->second);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleUnload(CUmodule module) {
  record("{\"call\": \"unload\", \"device\": " + std::to_string(current_device()) + "}");
  delete reinterpret_cast<Module*>(module);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  record("{\"call\": \"attribute\", \"name\": \"" + reinterpret_cast<Function*>(function)->name + "\", \"attribute\": " +
         std::to_string(static_cast<int>(attribute)) + ", \"value\": " + std::to_string(value) + "}");
  return planned("cuFuncSetAttribute");
}
EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 0;
  return CUDA_SUCCESS;
}
// A multiprocessor runs 2048 threads at once.
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int threads, size_t) {
  *blocks = 2048 / threads;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle, void** params, void**) {
  const auto* function = reinterpret_cast<Function*>(handle);
  std::ostringstream line;
  line << "{\"call\": \"launch\", \"name\": \"" << function->name << "\", \"device\": " << current_device()
       << ", \"grid\": [" << config->gridDimX << ", " << config->gridDimY << ", " << config->gridDimZ << "], \"block\": ["
       << config->blockDimX << ", " << config->blockDimY << ", " << config->blockDimZ
       << "], \"shared\": " << config->sharedMemBytes << ", \"stream\": " << reinterpret_cast<uintptr_t>(config->hStream)
       << ", \"attributes\": {";
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    line << (i == 0 ? "" : ", ") << '"' << attribute.id << "\": ";
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      line << '[' << attribute.value.clusterDim.x << ", " << attribute.value.clusterDim.y << ", "
           << attribute.value.clusterDim.z << ']';
    } else {
      line << attribute.value.programmaticStreamSerializationAllowed;
    }
  }
  line << "}, \"params\": [";
  for (size_t i = 0; i < function->sizes.size(); ++i) {
    line << (i == 0 ? "" : ", ") << '"' << hex(params[i], function->sizes[i]) << '"';
    if (function->sizes[i] == 128 && reinterpret_cast<uintptr_t>(params[i]) % 64 != 0) return CUDA_ERROR_MISALIGNED_ADDRESS;
  }
  line << "]}";
  record(line.str());
  if (state().poisoned != 0) return static_cast<CUresult>(state().poisoned);
  state().poisoned = planned("fault");
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i)
    cooperative |= config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && config->attrs[i].value.cooperative != 0;
  const unsigned long long blocks = 1ull * config->gridDimX * config->gridDimY * config->gridDimZ;
  const unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;
  if (cooperative && blocks > (132ull - current_device()) * (2048 / threads)) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  return planned("cuLaunchKernelEx");
}
EXPORT CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = static_cast<CUstreamCaptureStatus>(state().capturing);
  return CUDA_SUCCESS;
}
// Memory of this device is the process's own.
EXPORT CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream) {
  memset(reinterpret_cast<void*>(address), value, bytes);
  record("{\"call\": \"memset\", \"bytes\": " + std::to_string(bytes) + "}");
  return planned("cuMemsetD8Async");
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  memcpy(to, reinterpret_cast<const void*>(from), bytes);
  record("{\"call\": \"read\", \"bytes\": " + std::to_string(bytes) + "}");
  return planned("cuMemcpyDtoHAsync");
}
EXPORT CUresult cuStreamSynchronize(CUstream) { return planned("cuStreamSynchronize"); }
// The map's bytes hold the arguments, so that the launch shows what was encoded.
EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                       const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                       const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                       CUtensorMapFloatOOBfill fill) {
  std::ostringstream line;
  line << "{\"call\": \"encode\", \"type\": " << type << ", \"rank\": " << rank
       << ", \"address\": " << reinterpret_cast<uintptr_t>(address) << ", \"interleave\": " << interleave
       << ", \"swizzle\": " << swizzle << ", \"promotion\": " << promotion << ", \"fill\": " << fill;
  auto list = [&](const char* name, auto values, cuuint32_t count) {
    line << ", \"" << name << "\": [";
    for (cuuint32_t i = 0; i < count; ++i) line << (i == 0 ? "" : ", ") << values[i];
    line << "]";
  };
  list("extents", extents, rank);
  list("strides", strides, rank - 1);
  list("box", box, rank);
  list("element_strides", element_strides, rank);
  line << "}";
  record(line.str());
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0) return CUDA_ERROR_MISALIGNED_ADDRESS;
  std::memset(map, 0xAB, sizeof(*map));
  std::memcpy(map, &address, sizeof(address));
  return planned("cuTensorMapEncodeTiled");
}
EXPORT CUresult cuGetErrorName(CUresult result, const char** text) {
  switch (result) {
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION: *text = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"; break;
    case CUDA_ERROR_INVALID_PTX: *text = "CUDA_ERROR_INVALID_PTX"; break;
    case CUDA_ERROR_NO_BINARY_FOR_GPU: *text = "CUDA_ERROR_NO_BINARY_FOR_GPU"; break;
    case CUDA_ERROR_INVALID_IMAGE: *text = "CUDA_ERROR_INVALID_IMAGE"; break;
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: *text = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"; break;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case CUDA_ERROR_NO_DEVICE: *text = "CUDA_ERROR_NO_DEVICE"; break;
    case CUDA_ERROR_NOT_FOUND: *text = "CUDA_ERROR_NOT_FOUND"; break;
    case CUDA_ERROR_INVALID_VALUE: *text = "CUDA_ERROR_INVALID_VALUE"; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult result, const char** text) {
  static thread_local std::string words;
  words = "the fake driver's own words for " + std::to_string(static_cast<int>(result));
  *text = words.c_str();
  return CUDA_SUCCESS;
}
