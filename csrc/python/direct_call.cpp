// The short way from a program object to its op: a call that needs no more than the op runs no
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
#include "python/gradients.h"
#include "python/op_call.h"

namespace py = pybind11;

namespace tileops {
namespace {

constexpr char kName[] = "tileops.direct";

struct Direct {
  py::object op;  // torch's function, or the OpCall around it
  const OpCall* call;
  Py_ssize_t count;
  std::vector<std::size_t> tensors;
  std::vector<std::pair<std::size_t, py::type>> scalars;  // positions with their exact types
  bool asks_gradient;  // whether a tensor that requires grad matters

  PyObject* function() const { return call == nullptr ? op.ptr() : call->op; }
  bool has_gradient() const { return call != nullptr && call->has_gradient; }
};

// Set once, before the first object has a capsule.
Py_ssize_t member_offset = 0;       // of the capsule in an object
ternaryfunc python_call = nullptr;  // what calls a `__call__` written in Python

// True if nothing but the op has to run. Subclasses of tensors and values that torch would convert
// go the general way.
bool is_plain(const Direct& direct, PyObject* args) {
  if (is_in_forward_mode() || (direct.asks_gradient && is_in_transform())) return false;
  for (const auto& scalar : direct.scalars) {
    PyObject* value = PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(scalar.first));
    if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != scalar.second.ptr()) return false;
  }
  for (std::size_t n : direct.tensors) {
    PyObject* tensor = PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(n));
    if (!is_plain_tensor(tensor)) return false;
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
  PyObject* capsule = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(self) + member_offset);
  if (capsule != nullptr && capsule != Py_None && kwargs == nullptr) {
    // The object may drop it while a mode of torch or the op runs.
    const auto held = py::reinterpret_borrow<py::object>(capsule);
    auto* direct = static_cast<Direct*>(PyCapsule_GetPointer(capsule, kName));
    if (direct != nullptr && PyTuple_GET_SIZE(args) == direct->count && is_plain(*direct, args)) {
      if (direct->tensors.size() > 1) announce_python_call(PyThreadState_Get());
      PyObject* result = nullptr;
      {
        const BelowAutograd scope(direct->has_gradient());
        result = PyObject_Call(direct->function(), args, nullptr);
      }
      announce_python_call(nullptr);  // an op that was not reached has not taken it
      if (result == nullptr) explain(self, args);
      return result;
    }
    PyErr_Clear();
  }
  return python_call(self, args, kwargs);
}

// Lets calls of objects of `cls` take the short way where they can; its `__call__` takes the
// others.
void install(const py::type& cls) {
  auto* type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  if (type->tp_call == call_directly) return;
  const py::object member = cls.attr("__dict__")["_direct"];
  if (Py_TYPE(member.ptr()) != &PyMemberDescr_Type)
    throw py::type_error("expected _direct among the class's __slots__");
  if (gradient_source().forward_mode == nullptr)
    throw py::value_error("set_gradient_source was not called");
  if (python_call == nullptr) python_call = type->tp_call;
  if (type->tp_call != python_call)
    throw py::type_error("expected a class whose __call__ is written in Python");
  member_offset = reinterpret_cast<PyMemberDescrObject*>(member.ptr())->d_member->offset;
  type->tp_call = call_directly;
}

void check_position(std::size_t position, std::size_t count) {
  if (position >= count) throw py::value_error("expected the positions of arguments");
}

void free_direct(PyObject* capsule) {
  delete static_cast<Direct*>(PyCapsule_GetPointer(capsule, kName));
}

}  // namespace

py::object direct_call(const py::type& cls, const py::object& op, std::size_t count,
                       const std::vector<std::size_t>& tensors,
                       const std::vector<std::pair<std::size_t, py::type>>& scalars,
                       bool asks_gradient) {
  install(cls);
  for (std::size_t n : tensors) check_position(n, count);
  for (const auto& scalar : scalars) check_position(scalar.first, count);
  auto direct = std::make_unique<Direct>(Direct{
      op, as_op_call(op.ptr()), static_cast<Py_ssize_t>(count), tensors, scalars, asks_gradient});
  PyObject* capsule = PyCapsule_New(direct.get(), kName, free_direct);
  if (capsule == nullptr) throw py::error_already_set();
  direct.release();
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace tileops
