// What calls from Python ask torch about gradients, and the way past autograd for calls that need
// none.
#include "python/gradients.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>

namespace py = pybind11;

namespace tileops {
namespace {

GradientSource source;

// Functions of torch's library c10, which no stable interface has. A class of two words is built
// and destroyed in place by them, in a larger one here.
struct DispatchState {
  void (*exclude)(void* guard, uint64_t keys) = nullptr;
  void (*restore)(void* guard) = nullptr;
  bool (*is_included)(uint16_t key) = nullptr;
  bool (*has_function_mode)() = nullptr;  // of torch's library torch_cpu
  uint64_t keys = 0;
  uint16_t front = 0;
  bool is_found = false;
};
DispatchState dispatch_state;

// Where a tensor's Python object keeps its TensorImpl, and a function of c10 that reads one: the
// attribute of Python takes 50 ns.
struct TensorState {
  std::size_t offset = 0;
  bool (*requires_grad)(const void* impl) = nullptr;
};
TensorState tensor_state;

const void* word_at(PyObject* object, std::size_t offset) {
  return *reinterpret_cast<void**>(reinterpret_cast<char*>(object) + offset);
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

PyObject* leaked(const py::object& object) {
  return py::object(object).release().ptr();
}

}  // namespace

const GradientSource& gradient_source() {
  return source;
}

void set_gradient_source(const py::module_& forward_mode, const py::object& is_grad_enabled,
                         const py::type& tensor, const py::type& parameter,
                         const py::object& requires_grad) {
  if (source.forward_mode != nullptr) return;
  if (Py_TYPE(requires_grad.ptr()) != &PyGetSetDescr_Type)
    throw py::type_error("expected an attribute with a getter in C");
  source.requires_grad = reinterpret_cast<PyGetSetDescrObject*>(leaked(requires_grad))->d_getset;
  source.level = leaked(py::str("_current_level"));
  PyUnicode_InternInPlace(&source.level);
  source.is_grad_enabled = leaked(is_grad_enabled);
  source.tensor = reinterpret_cast<PyTypeObject*>(leaked(tensor));
  source.parameter = reinterpret_cast<PyTypeObject*>(leaked(parameter));

  source.forward_mode = leaked(forward_mode.attr("__dict__"));
}

bool is_in_forward_mode() {
  PyObject* level = PyDict_GetItemWithError(source.forward_mode, source.level);  // borrowed
  if (level == nullptr || !PyLong_Check(level)) return true;
  return PyLong_AsLong(level) >= 0;
}

bool is_grad_enabled() {
  PyObject* enabled = PyObject_CallNoArgs(source.is_grad_enabled);
  const bool is_off = enabled == Py_False;
  Py_XDECREF(enabled);
  return !is_off;
}

bool requires_grad(PyObject* tensor) {
  if (tensor_state.requires_grad != nullptr)
    return tensor_state.requires_grad(word_at(tensor, tensor_state.offset));
  PyObject* wants = source.requires_grad->get(tensor, source.requires_grad->closure);
  if (wants == nullptr) PyErr_Clear();  // the general way asks again
  const bool is_false = wants == Py_False;
  Py_XDECREF(wants);
  return !is_false;
}

bool is_in_transform() {
  return dispatch_state.is_found && dispatch_state.is_included(dispatch_state.front);
}

bool find_tensor_state(const std::vector<py::object>& samples) {
  void* library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  TensorState found;
  find(library, "_ZNK3c1010TensorImpl13requires_gradEv", found.requires_grad);
  if (found.requires_grad == nullptr) return false;
  const auto fits = [&](const py::object& tensor) {
    const void* impl = word_at(tensor.ptr(), found.offset);
    return impl == reinterpret_cast<void*>(tensor.attr("_cdata").cast<std::uintptr_t>()) &&
           found.requires_grad(impl) == tensor.attr("requires_grad").cast<bool>();
  };
  const auto size = static_cast<std::size_t>(source.tensor->tp_basicsize);
  for (found.offset = sizeof(PyObject); found.offset + sizeof(void*) <= size;
       found.offset += sizeof(void*)) {
    if (std::all_of(samples.begin(), samples.end(), fits)) {
      tensor_state = found;
      return true;
    }
  }
  return false;
}

bool find_dispatch_state(uint64_t keys, uint16_t front) {
  void* library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  DispatchState found;
  find(library, "_ZN3c104impl23ExcludeDispatchKeyGuardC1ENS_14DispatchKeySetE", found.exclude);
  find(library, "_ZN3c104impl23ExcludeDispatchKeyGuardD1Ev", found.restore);
  find(library, "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE", found.is_included);
  if (void* aten = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD); aten != nullptr)
    find(aten, "_ZN2at4impl27torch_function_mode_enabledEv", found.has_function_mode);
  found.keys = keys;
  found.front = front;
  found.is_found = found.exclude != nullptr && found.restore != nullptr &&
                   found.is_included != nullptr && found.has_function_mode != nullptr;
  dispatch_state = found;
  return found.is_found;
}

void forget_dispatch_state() {
  dispatch_state.is_found = false;
}

BelowAutograd::BelowAutograd(bool is_wanted) {
  if (!is_wanted || !dispatch_state.is_found || is_in_transform() ||
      dispatch_state.has_function_mode()) {
    return;
  }
  dispatch_state.exclude(guard_, dispatch_state.keys);
  is_on_ = true;
}

BelowAutograd::~BelowAutograd() {
  if (is_on_) dispatch_state.restore(guard_);
}

py::object below_autograd(const py::function& function) {
  const BelowAutograd scope(true);
  return function();
}

}  // namespace tileops
