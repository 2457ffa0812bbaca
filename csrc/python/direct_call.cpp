// Owns the short way from a program object to its op: a call that needs no more than the op runs no
// Python code.
//
// The class keeps a `__call__` written in Python, which compilers of Python read, and which takes
// every call that is not plain. What is replaced is the class's slot, as an assignment to
// `__call__` replaces it.
#include "python/direct_call.h"

#include <structmember.h>

#include <memory>

namespace py = pybind11;

namespace tileops {
namespace {

constexpr char kName[] = "tileops.direct";

struct Direct {
  py::object op;
  Py_ssize_t count;
  std::vector<std::size_t> tensors;
};

// Set once, before the first object has a capsule; leaked, because calls may come while the
// interpreter ends.
struct Torch {
  Py_ssize_t member = 0;  // offset of the capsule in an object
  PyObject* forward_mode = nullptr;
  PyObject* level = nullptr;
  PyObject* requires_grad = nullptr;
  PyObject* is_grad_enabled = nullptr;
  ternaryfunc python_call = nullptr;  // what calls a `__call__` written in Python
};
Torch torch;

bool is_in_forward_mode() {
  PyObject* level = PyDict_GetItemWithError(torch.forward_mode, torch.level);  // borrowed
  if (level == nullptr || !PyLong_Check(level)) return true;
  return PyLong_AsLong(level) >= 0;
}

// True if nothing but the op has to run. A Python error means that the object is no tensor: the
// general way says so.
bool is_plain(const Direct& direct, PyObject* args) {
  if (is_in_forward_mode()) return false;
  for (std::size_t n : direct.tensors) {
    PyObject* tensor = PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(n));
    PyObject* wants = PyObject_GetAttr(tensor, torch.requires_grad);
    if (wants == nullptr) return false;
    const bool is_true = wants == Py_True, is_false = wants == Py_False;
    Py_DECREF(wants);
    if (is_false) continue;
    if (!is_true) return false;
    PyObject* enabled = PyObject_CallNoArgs(torch.is_grad_enabled);
    const bool is_off = enabled == Py_False;
    Py_XDECREF(enabled);
    if (!is_off) return false;
  }
  return true;
}

PyObject* call_directly(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* capsule = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(self) + torch.member);
  if (capsule != nullptr && capsule != Py_None && kwargs == nullptr) {
    auto* direct = static_cast<Direct*>(PyCapsule_GetPointer(capsule, kName));
    if (direct != nullptr && PyTuple_GET_SIZE(args) == direct->count && is_plain(*direct, args)) {
      const py::object op = direct->op;  // the capsule may go while the op runs
      return PyObject_Call(op.ptr(), args, nullptr);
    }
    PyErr_Clear();
  }
  return torch.python_call(self, args, kwargs);
}

void free_direct(PyObject* capsule) {
  delete static_cast<Direct*>(PyCapsule_GetPointer(capsule, kName));
}

}  // namespace

void set_direct(const py::object& descriptor, const py::object& forward_mode,
                const py::object& is_grad_enabled) {
  if (torch.forward_mode != nullptr) return;
  if (Py_TYPE(descriptor.ptr()) != &PyMemberDescr_Type)
    throw py::type_error("expected the descriptor of a member of __slots__");
  torch.member = reinterpret_cast<PyMemberDescrObject*>(descriptor.ptr())->d_member->offset;
  torch.level = py::reinterpret_steal<py::object>(PyUnicode_InternFromString("_current_level"))
                    .release()
                    .ptr();
  torch.requires_grad =
      py::reinterpret_steal<py::object>(PyUnicode_InternFromString("requires_grad"))
          .release()
          .ptr();
  torch.is_grad_enabled = py::object(is_grad_enabled).release().ptr();
  torch.forward_mode = py::object(forward_mode.attr("__dict__")).release().ptr();
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
                       const std::vector<std::size_t>& tensors) {
  for (std::size_t n : tensors) {
    if (n >= count) throw py::value_error("expected the positions of arguments");
  }
  auto direct = std::make_unique<Direct>(Direct{op, static_cast<Py_ssize_t>(count), tensors});
  PyObject* capsule = PyCapsule_New(direct.get(), kName, free_direct);
  if (capsule == nullptr) throw py::error_already_set();
  direct.release();
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace tileops
