// The callable that replaces torch's own function in torch's Python class of an op.
//
// A call of plain tensors and numbers that needs no gradient goes to torch's function at once. Any
// other goes through a function of Python, which knows what torch's does not: that the op has no
// gradient, that a number of a traced region is symbolic.
#include "python/op_call.h"

#include "python/gradients.h"

namespace py = pybind11;

namespace tileops {
namespace {

enum class Need { kNothing, kGradient, kMore };

// What a value asks of a call; `asks_gradient` false passes over plain tensors.
Need need_of(PyObject* value, bool asks_gradient) {
  if (is_plain_tensor(value))
    return asks_gradient && requires_grad(value) ? Need::kGradient : Need::kNothing;
  if (value == Py_None || PyFloat_CheckExact(value) || PyLong_CheckExact(value) ||
      PyBool_Check(value) || PyUnicode_CheckExact(value)) {
    return Need::kNothing;
  }
  return Need::kMore;
}

bool is_plain(const OpCall& call, PyObject* args, PyObject* kwargs) {
  if (is_in_forward_mode() || (call.asks_gradient && is_in_transform())) return false;
  bool wants_gradient = false;
  const auto passes = [&](PyObject* value) {
    const Need need = need_of(value, call.asks_gradient && !wants_gradient);
    wants_gradient = wants_gradient || need == Need::kGradient;
    return need != Need::kMore;
  };
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    if (!passes(PyTuple_GET_ITEM(args, i))) return false;
  }
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (kwargs != nullptr && PyDict_Next(kwargs, &at, nullptr, &value)) {
    if (!passes(value)) return false;
  }
  return !wants_gradient || !is_grad_enabled();
}

__attribute__((cold, noinline)) void explain(const OpCall& call, PyObject* args, PyObject* kwargs) {
  py::error_already_set error;
  if (error.matches(PyExc_RuntimeError)) {
    PyObject* done =
        PyObject_CallFunctionObjArgs(call.explain, args, kwargs, error.value().ptr(), nullptr);
    if (done == nullptr) return;
    Py_DECREF(done);
  }
  error.restore();
}

PyObject* call_op(PyObject* self, PyObject* args, PyObject* kwargs) {
  const auto& call = *reinterpret_cast<OpCall*>(self);
  const auto named =
      kwargs == nullptr ? py::object(py::dict()) : py::reinterpret_borrow<py::object>(kwargs);
  PyObject* result = nullptr;
  if (is_plain(call, args, named.ptr())) {
    const BelowAutograd scope(call.has_gradient);
    result = PyObject_Call(call.op, args, named.ptr());
  } else {
    result = PyObject_CallFunctionObjArgs(call.general, args, named.ptr(), nullptr);
  }
  if (result == nullptr) explain(call, args, named.ptr());
  return result;
}

// Whoever looks at torch's function sees it.
PyObject* get_attribute(PyObject* self, PyObject* name) {
  return PyObject_GetAttr(reinterpret_cast<OpCall*>(self)->op, name);
}

// torch's classes of ops take theirs from it.
Py_hash_t hash_of(PyObject* self) {
  return PyObject_Hash(reinterpret_cast<OpCall*>(self)->op);
}

void free_call(PyObject* self) {
  auto* call = reinterpret_cast<OpCall*>(self);
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(call->op);
  Py_XDECREF(call->general);
  Py_XDECREF(call->explain);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyTypeObject* op_call_type() {
  static PyTypeObject* const type = [] {
    static PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(call_op)},
                                  {Py_tp_getattro, reinterpret_cast<void*>(get_attribute)},
                                  {Py_tp_hash, reinterpret_cast<void*>(hash_of)},
                                  {Py_tp_dealloc, reinterpret_cast<void*>(free_call)},
                                  {0, nullptr}};
    static PyType_Spec spec = {"tileops._C.OpCall", sizeof(OpCall), 0, Py_TPFLAGS_DEFAULT, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  }();
  if (type == nullptr) throw py::error_already_set();
  return type;
}

OpCall& checked(const py::object& call) {
  OpCall* found = as_op_call(call.ptr());
  if (found == nullptr) throw py::type_error("expected what make_op_call returns");
  return *found;
}

}  // namespace

OpCall* as_op_call(PyObject* object) {
  return Py_TYPE(object) == op_call_type() ? reinterpret_cast<OpCall*>(object) : nullptr;
}

py::object make_op_call(const py::object& op, const py::object& general, const py::object& explain,
                        bool asks_gradient) {
  if (gradient_source().forward_mode == nullptr)
    throw py::value_error("set_gradient_source was not called");
  OpCall* call = PyObject_New(OpCall, op_call_type());
  if (call == nullptr) throw py::error_already_set();
  call->op = py::object(op).release().ptr();
  call->general = py::object(general).release().ptr();
  call->explain = py::object(explain).release().ptr();
  call->has_gradient = false;
  call->asks_gradient = asks_gradient;
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(call));
}

void set_has_gradient(const py::object& call) {
  checked(call).has_gradient = true;
}

}  // namespace tileops
