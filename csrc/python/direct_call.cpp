// Owns the short way from a program object to its op: a call that needs no more than the op runs no
// Python code.
//
// The class keeps a `__call__` written in Python, which compilers of Python read, and which takes
// every call that is not plain. What is replaced is the class's slot, as an assignment to
// `__call__` replaces it.
#include "python/direct_call.h"

#include <pybind11/stl.h>
#include <structmember.h>

#include <memory>

#include "core/hooks.h"

namespace py = pybind11;

namespace tileops {
namespace {

constexpr char kName[] = "tileops.direct";

struct Direct {
  py::object op;
  Py_ssize_t count;
  std::vector<std::size_t> tensors;
  std::vector<std::pair<std::size_t, py::type>> scalars;  // positions with their exact types
  bool asks_gradient;  // whether a tensor that requires grad matters
};

// Set once, before the first object has a capsule; leaked, because calls may come while the
// interpreter ends.
struct Torch {
  Py_ssize_t member = 0;  // offset of the capsule in an object
  PyObject* forward_mode = nullptr;
  PyObject* level = nullptr;
  PyTypeObject *tensor = nullptr, *parameter = nullptr;
  PyGetSetDef* requires_grad = nullptr;
  PyObject* is_grad_enabled = nullptr;
  ternaryfunc python_call = nullptr;  // what calls a `__call__` written in Python
};
Torch torch;

PyObject* leaked(const py::object& object) {
  return py::object(object).release().ptr();
}

bool is_in_forward_mode() {
  PyObject* level = PyDict_GetItemWithError(torch.forward_mode, torch.level);  // borrowed
  if (level == nullptr || !PyLong_Check(level)) return true;
  return PyLong_AsLong(level) >= 0;
}

bool is_grad_enabled() {
  PyObject* enabled = PyObject_CallNoArgs(torch.is_grad_enabled);
  const bool is_off = enabled == Py_False;
  Py_XDECREF(enabled);
  return !is_off;
}

// Under a torch function mode this runs the mode's Python code.
bool requires_grad(PyObject* tensor) {
  PyObject* wants = torch.requires_grad->get(tensor, torch.requires_grad->closure);
  if (wants == nullptr) PyErr_Clear();  // the general way asks again
  const bool is_false = wants == Py_False;
  Py_XDECREF(wants);
  return !is_false;
}

// True if nothing but the op has to run. Subclasses of tensors and values that torch would convert
// go the general way.
bool is_plain(const Direct& direct, PyObject* args) {
  if (is_in_forward_mode()) return false;
  for (const auto& scalar : direct.scalars) {
    PyObject* value = PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(scalar.first));
    if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != scalar.second.ptr()) return false;
  }
  for (std::size_t n : direct.tensors) {
    PyObject* tensor = PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(n));
    if (Py_TYPE(tensor) != torch.tensor && Py_TYPE(tensor) != torch.parameter) return false;
    if (direct.asks_gradient && requires_grad(tensor) && is_grad_enabled()) return false;
  }
  return true;
}

// The program's own words for what torch's parser refused, where that is why the op failed.
__attribute__((cold, noinline)) void explain(PyObject* self, PyObject* args) {
  py::error_already_set error;
  if (error.matches(PyExc_RuntimeError)) {
    PyObject* done = PyObject_CallMethod(self, "_explain", "OO", args, error.value().ptr());
    if (done == nullptr) return;
    Py_DECREF(done);
  }
  error.restore();
}

PyObject* call_directly(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* capsule = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(self) + torch.member);
  if (capsule != nullptr && capsule != Py_None && kwargs == nullptr) {
    // The object may drop it while a mode of torch or the op runs.
    const auto held = py::reinterpret_borrow<py::object>(capsule);
    auto* direct = static_cast<Direct*>(PyCapsule_GetPointer(capsule, kName));
    if (direct != nullptr && PyTuple_GET_SIZE(args) == direct->count && is_plain(*direct, args)) {
      if (direct->tensors.size() > 1) announce_python_call(PyThreadState_Get());
      PyObject* result = PyObject_Call(direct->op.ptr(), args, nullptr);
      announce_python_call(nullptr);  // an op that was not reached has not taken it
      if (result == nullptr) explain(self, args);
      return result;
    }
    PyErr_Clear();
  }
  return torch.python_call(self, args, kwargs);
}

void check_position(std::size_t position, std::size_t count) {
  if (position >= count) throw py::value_error("expected the positions of arguments");
}

void free_direct(PyObject* capsule) {
  delete static_cast<Direct*>(PyCapsule_GetPointer(capsule, kName));
}

}  // namespace

void set_direct(const py::object& member, const py::module_& forward_mode,
                const py::object& is_grad_enabled, const py::type& tensor,
                const py::type& parameter, const py::object& requires_grad) {
  if (torch.forward_mode != nullptr) return;
  if (Py_TYPE(member.ptr()) != &PyMemberDescr_Type ||
      Py_TYPE(requires_grad.ptr()) != &PyGetSetDescr_Type) {
    throw py::type_error("expected a member of __slots__ and an attribute with a getter in C");
  }
  torch.member = reinterpret_cast<PyMemberDescrObject*>(member.ptr())->d_member->offset;
  torch.requires_grad = reinterpret_cast<PyGetSetDescrObject*>(leaked(requires_grad))->d_getset;
  torch.level = leaked(py::str("_current_level"));
  PyUnicode_InternInPlace(&torch.level);
  torch.is_grad_enabled = leaked(is_grad_enabled);
  torch.tensor = reinterpret_cast<PyTypeObject*>(leaked(tensor));
  torch.parameter = reinterpret_cast<PyTypeObject*>(leaked(parameter));
  torch.forward_mode = leaked(forward_mode.attr("__dict__"));
}

void install_direct(const py::type& cls) {
  auto* type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  if (type->tp_call == call_directly) return;
  if (torch.forward_mode == nullptr) throw py::value_error("set_direct was not called");
  if (torch.python_call == nullptr) torch.python_call = type->tp_call;
  if (type->tp_call != torch.python_call)
    throw py::type_error("expected a class whose __call__ is written in Python");
  type->tp_call = call_directly;
}

py::object make_direct(const py::object& op, std::size_t count,
                       const std::vector<std::size_t>& tensors,
                       const std::vector<std::pair<std::size_t, py::type>>& scalars,
                       bool asks_gradient) {
  for (std::size_t n : tensors) check_position(n, count);
  for (const auto& scalar : scalars) check_position(scalar.first, count);
  auto direct = std::make_unique<Direct>(
      Direct{op, static_cast<Py_ssize_t>(count), tensors, scalars, asks_gradient});
  PyObject* capsule = PyCapsule_New(direct.get(), kName, free_direct);
  if (capsule == nullptr) throw py::error_already_set();
  direct.release();
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace tileops
