// The Python binding of the control plane: handles, bytes and numbers; tensors never pass through
// it. tileops/_C.pyi describes the module for Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/counters.h"
#include "core/driver.h"
#include "core/flight.h"
#include "core/hooks.h"
#include "core/ptx.h"
#include "core/stages.h"
#include "python/direct_call.h"
#include "python/gradients.h"
#include "python/op_call.h"
#include "torch/api.h"

namespace py = pybind11;

namespace tileops {
namespace {

// Classes of tileops.errors in the order of ErrorKind; leaked, so that no destructor runs after the
// interpreter.
PyObject* error_classes[kErrorKinds] = {};

void set_error_classes(const std::vector<py::object>& classes) {
  if (classes.size() != kErrorKinds)
    throw py::value_error("expected " + std::to_string(kErrorKinds) + " classes");
  for (int i = 0; i < kErrorKinds; ++i) {
    if (!PyExceptionClass_Check(classes[static_cast<std::size_t>(i)].ptr()))
      throw py::type_error("expected classes");
    error_classes[i] = py::object(classes[static_cast<std::size_t>(i)]).release().ptr();
  }
}

PyObject* class_of(ErrorKind kind) {
  PyObject* found = error_classes[static_cast<int>(kind)];
  return found == nullptr ? PyExc_RuntimeError : found;
}

// A message can name a path, which is bytes of any kind; Python shows them as it does for its own.
void set_error(ErrorKind kind, const char* message) {
  const auto length = static_cast<Py_ssize_t>(std::strlen(message));
  const auto text =
      py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(message, length, "surrogateescape"));
  if (text.ptr() != nullptr) PyErr_SetObject(class_of(kind), text.ptr());
}

// Called where a boxed kernel failed, usually without the interpreter's lock. torch's own binding
// catches pybind11's error_already_set and restores the Python error; both sides see one type,
// matched by its name.
[[noreturn]] void raise_in_python(ErrorKind kind, const char* message) {
  py::gil_scoped_acquire gil;
  set_error(kind, message);
  throw py::error_already_set();
}

void* release_gil() {
  return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
}

void restore_gil(void* token) {
  PyEval_RestoreThread(static_cast<PyThreadState*>(token));
}

bool take_gil(void* thread_state) {
  if (PyGILState_Check()) return false;
  PyEval_RestoreThread(static_cast<PyThreadState*>(thread_state));
  return true;
}

void give_gil_back() {
  PyEval_SaveThread();
}

py::object to_python(const StaticValue& value) {
  return std::visit(
      [](const auto& held) -> py::object {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>)
          return py::none();
        else
          return py::cast(held);
      },
      value);
}

py::dict to_python(const Request& request) {
  py::dict out;
  if (request.kind == Request::kVariant) {
    py::list statics;
    for (const StaticValue& value : request.statics) statics.append(to_python(value));
    out["kind"] = "variant";
    out["static"] = statics;
    return out;
  }
  py::dict sizes;
  for (const auto& size : request.sizes) sizes[py::str(size.first)] = size.second;
  py::dict scalars;
  for (const auto& scalar : request.scalars)
    scalars[py::str(scalar.first)] = to_python(scalar.second);
  out["kind"] = "entry";
  out["variant"] = request.variant;
  out["device_type"] = request.cuda ? "cuda" : "cpu";
  out["device_index"] = request.device_index;
  out["capability"] = request.capability;
  out["consts"] = request.consts;
  out["fast"] = request.fast;
  out["index64"] = request.index64;
  out["sizes"] = sizes;
  out["scalars"] = scalars;
  out["entries"] = request.entries;
  return out;
}

void call_resolver(void* context, const Request& request) {
  py::gil_scoped_acquire gil;
  py::handle function(static_cast<PyObject*>(context));
  function(request.handle, to_python(request));
}

void set_python_resolver(uint64_t handle, const py::object& function) {
  Resolver resolver;
  if (!function.is_none()) {
    resolver.call = call_resolver;
    resolver.context = py::object(function).release().ptr();
  }
  // The former function is kept: a call on another thread may be about to enter it.
  set_resolver(handle, resolver);
}

// A path as the system's bytes: as text it need not be one that UTF-8 can hold.
std::string path_bytes(const py::handle& path) {
  return py::cast<std::string>(py::module_::import("os").attr("fsencode")(path));
}

std::vector<std::string> path_list(const py::iterable& paths) {
  std::vector<std::string> out;
  for (py::handle path : paths) out.push_back(path_bytes(path));
  return out;
}

// A description as JSON text, from such text or from the dict that it describes.
std::string json_text(const py::object& value) {
  if (py::isinstance<py::str>(value)) return py::cast<std::string>(value);
  const py::object dumps = py::module_::import("json").attr("dumps");
  return py::cast<std::string>(dumps(value, py::arg("allow_nan") = false));
}

EntrySpec::ImageMap to_images(const py::dict& images) {
  EntrySpec::ImageMap out;
  for (auto item : images) {
    ImageSource source;
    source.name = py::cast<std::string>(item.first);
    if (py::isinstance<py::bytes>(item.second)) {
      source.bytes = py::cast<std::string>(item.second);
    } else if (py::isinstance<py::tuple>(item.second)) {
      const auto [content, path] = py::cast<std::pair<std::string, py::object>>(item.second);
      source.bytes = content;
      source.path = path_bytes(path);
    } else {
      source.path = path_bytes(item.second);
    }
    out.emplace(source.name, source);
  }
  return out;
}

// `load` is load_bundles, or read_bundles for what that would register.
template <class Load>
std::vector<LoadedOp> bundles(const Load& load, const py::iterable& paths,
                              const BundleOptions& options) {
  const std::vector<std::string> folders = path_list(paths);
  py::gil_scoped_release no_gil;
  return load(folders, options);
}

py::object path_text(const std::string& path) {
  return py::module_::import("os").attr("fsdecode")(py::bytes(path));
}

py::list recent_lines(int device_index) {
  std::string text;
  {
    py::gil_scoped_release no_gil;
    text = recent_launches(device_index, nullptr);
  }
  return path_text(text).attr("splitlines")();
}

py::dict counters() {
  py::dict out;
  out["launches"] = counter_total(Counter::kLaunches);
  out["loads"] = counter_total(Counter::kLoads);
  out["memory_hits"] = counter_total(Counter::kMemoryHits);
  out["resolves"] = counter_total(Counter::kResolves);
  out["load_ns"] = counter_total(Counter::kLoadNanoseconds);
  out["jits"] = counter_total(Counter::kJits);
  out["jit_ns"] = counter_total(Counter::kJitNanoseconds);
  return out;
}

py::dict stage_totals() {
  py::dict out;
  out["read"] = stage_total(Stage::kRead);
  out["look up"] = stage_total(Stage::kLookUp);
  out["allocate"] = stage_total(Stage::kAllocate);
  out["launch"] = stage_total(Stage::kLaunch);
  out["kernel"] = stage_total(Stage::kKernel);
  out["free"] = stage_total(Stage::kFree);
  return out;
}

py::dict device_properties(int index) {
  const DeviceInfo& info = device_info(index);
  py::dict out;
  out["name"] = device_name(index);
  out["capability"] = info.capability;
  for (int i = 0; i < kHostFacts; ++i)
    out[host_fact_name(static_cast<HostFact>(i))] = info.facts[i];
  return out;
}

void run_raw_from_python(uint64_t handle, uint32_t variant, const py::kwargs& fields) {
  RawCall call;
  auto take = [&](const char* name, auto& out) {
    if (fields.contains(name)) out = py::cast<std::decay_t<decltype(out)>>(fields[name]);
  };
  take("cuda", call.cuda);
  take("device_index", call.device_index);
  take("fast", call.fast);
  take("index64", call.index64);
  take("general", call.general);
  take("sizes", call.sizes);
  take("int_scalars", call.int_scalars);
  take("float_scalars", call.float_scalars);
  take("tensors", call.tensors);
  take("workspace", call.workspace);
  take("stream", call.stream);
  py::gil_scoped_release no_gil;
  run_raw(handle, variant, call);
}

void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const Error& error) {
    set_error(error.kind(), error.what());
  }
}

// Called without a Mutex, and often without the interpreter's lock.
void write_to_log(const char* topic, const char* line) {
  if (!Py_IsInitialized()) return;
  py::gil_scoped_acquire gil;
  try {
    py::module_::import("tileops.log").attr("emit")(topic, path_text(line));
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("tileops.log.emit");
  }
}

void install_hooks() {
  hooks().gil_release = release_gil;
  hooks().gil_restore = restore_gil;
  hooks().gil_take = take_gil;
  hooks().gil_give_back = give_gil_back;
  hooks().raise = raise_in_python;
  hooks().note = write_to_log;
}

}  // namespace
}  // namespace tileops

PYBIND11_MODULE(_C, m) {
  using namespace tileops;
  m.doc() = "The control plane of libtileops; tileops.runtime loads it, _C.pyi describes it.";
  py::register_local_exception_translator(translate);
  install_hooks();
  using NoGil = py::call_guard<py::gil_scoped_release>;
  m.def("set_error_classes", &set_error_classes, py::arg("classes"));
  m.def(
      "create_op",
      [](const py::object& op) {
        const std::string text = json_text(op);
        py::gil_scoped_release no_gil;
        return create_op(text);
      },
      py::arg("op"));
  m.def(
      "add_variant",
      [](uint64_t handle, const py::object& variant) {
        const std::string text = json_text(variant);
        py::gil_scoped_release no_gil;
        return add_variant(handle, text);
      },
      py::arg("handle"), py::arg("variant"));
  m.def(
      "add_entry",
      [](uint64_t handle, uint32_t variant, const py::object& entry, const py::dict& images) {
        const std::string text = json_text(entry);
        const EntrySpec::ImageMap sources = to_images(images);
        py::gil_scoped_release no_gil;
        add_entry(handle, variant, text, sources);
      },
      py::arg("handle"), py::arg("variant"), py::arg("entry"), py::arg("images"));
  m.def(
      "load_entry",
      [](uint64_t handle, uint32_t variant, bool cuda, int device_index,
         std::vector<int64_t> consts, bool fast, bool index64) {
        load_entry(handle, variant, {cuda, device_index, std::move(consts), fast, index64});
      },
      py::arg("handle"), py::arg("variant"), py::kw_only(), py::arg("cuda"),
      py::arg("device_index"), py::arg("consts"), py::arg("fast"), py::arg("index64"), NoGil());
  m.def("set_resolver", &set_python_resolver, py::arg("handle"), py::arg("resolver").none(true));
  m.def("keep_given", &keep_given, py::arg("handle"), NoGil());
  m.def("adopt_op", &adopt_op, py::arg("handle"), NoGil());
  m.def("retire_op", &retire_op, py::arg("handle"), py::arg("message"), NoGil());
  m.def("detach", &detach, py::arg("handle"), NoGil());
  m.def("release", &release, py::arg("handle"), NoGil());
  m.def(
      "unload",
      [](uint64_t handle) {
        detach(handle);
        release(handle);
      },
      py::arg("handle"), NoGil());
  py::class_<LoadedOp>(m, "BundledOp", py::module_local())
      .def_readonly("handle", &LoadedOp::handle)
      .def_readonly("text", &LoadedOp::text)
      .def_property_readonly("name", [](const LoadedOp& op) { return op.ns + "::" + op.name; })
      .def_property_readonly("path", [](const LoadedOp& op) { return path_text(op.path); });
  m.def(
      "load_bundles",
      [](const py::iterable& paths, bool shared, const std::string& ns,
         const std::set<std::string>& left) {
        return bundles(&load_bundles, paths, {shared, ns, left});
      },
      py::arg("paths"), py::kw_only(), py::arg("shared") = false, py::arg("namespace") = "",
      py::arg("left") = std::set<std::string>());
  m.def(
      "read_bundles",
      [](const py::iterable& paths, bool shared, const std::string& ns) {
        return bundles(&read_bundles, paths, {shared, ns, {}});
      },
      py::arg("paths"), py::kw_only(), py::arg("shared") = false, py::arg("namespace") = "");
  m.def(
      "set_origin",
      [](uint64_t handle, const py::str& text) { set_origin(handle, path_bytes(text)); },
      py::arg("handle"), py::arg("text"));
  m.def("set_sync", &set_sync, py::arg("sync"));
  m.def("recent_launches", &recent_lines, py::arg("device_index"));
  m.def("set_strict", &set_strict, py::arg("strict"));
  m.def("is_strict", &strict);
  m.def("counters", &counters);
  m.def("set_stage_clock", &set_stage_clock, py::arg("is_on"));
  m.def("stage_totals", &stage_totals);
  m.def("device_count", &device_count, NoGil());
  m.def("device_properties", &device_properties, py::arg("device_index"));
  m.def("refusal_of_ptx", &refusal_of_ptx, py::arg("text"), py::arg("device_index"), NoGil());
  m.def("is_capturing", &is_capturing, py::arg("device_index"), NoGil());
  m.def("set_driver_library", &set_driver_library, py::arg("path"), NoGil());
  m.def("set_gradient_source", &set_gradient_source, py::arg("forward_mode"),
        py::arg("is_grad_enabled"), py::arg("tensor"), py::arg("parameter"),
        py::arg("requires_grad"));
  m.def("find_tensor_state", &find_tensor_state, py::arg("samples"));
  m.def("find_dispatch_state", &find_dispatch_state, py::arg("keys"), py::arg("front"));
  m.def("forget_dispatch_state", &forget_dispatch_state);
  m.def("below_autograd", &below_autograd, py::arg("function"));
  m.def("make_op_call", &make_op_call, py::arg("function"), py::arg("general"), py::arg("explain"),
        py::kw_only(), py::arg("asks_gradient"));
  m.def("set_has_gradient", &set_has_gradient, py::arg("call"));
  m.def("direct_call", &direct_call, py::arg("cls"), py::arg("op"), py::arg("count"),
        py::arg("tensors"), py::arg("scalars"), py::kw_only(), py::arg("asks_gradient"));
  m.def("run_raw", &run_raw_from_python, py::arg("handle"), py::arg("variant"));
}
