// The callable that replaces torch's own function in torch's Python class of an op.
#pragma once

#include <pybind11/pybind11.h>

namespace tileops {

// What `torch.ops.<namespace>.<name>` calls in place of torch's function for it.
struct OpCall {
  PyObject_HEAD PyObject* op;  // torch's function
  PyObject* general;           // takes (args, kwargs) of calls that need more than `op`
  PyObject* explain;           // takes (args, kwargs, error); may raise better words for it
  bool has_gradient;   // autograd has a rule in Python for the op, which plain calls may pass by
  bool asks_gradient;  // whether a tensor that requires grad makes a call general
};

// An OpCall around torch's function `op`.
pybind11::object make_op_call(const pybind11::object& op, const pybind11::object& general,
                              const pybind11::object& explain, bool asks_gradient);
// Autograd has a rule in Python for the op: plain calls pass it by.
void set_has_gradient(const pybind11::object& call);
// The OpCall that an object is; null where it is something else.
OpCall* as_op_call(PyObject* object);

}  // namespace tileops
