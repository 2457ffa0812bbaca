// What calls from Python ask torch about gradients, and the way past autograd for calls that need
// none.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace tileops {

// Where torch keeps what is asked here; said once, by Python.
struct GradientSource {
  PyObject* forward_mode = nullptr;  // the dict of the module that counts levels of forward mode
  PyObject* level = nullptr;
  PyTypeObject *tensor = nullptr, *parameter = nullptr;
  PyGetSetDef* requires_grad = nullptr;
  PyObject* is_grad_enabled = nullptr;
};
void set_gradient_source(const pybind11::module_& forward_mode,
                         const pybind11::object& is_grad_enabled, const pybind11::type& tensor,
                         const pybind11::type& parameter, const pybind11::object& requires_grad);
const GradientSource& gradient_source();

// True inside forward-mode differentiation, where a tensor may have a tangent.
bool is_in_forward_mode();
bool is_grad_enabled();
// True inside a transform of torch.func, whose tensors do not show which of them needs a gradient
// outside. False, too, where `find_dispatch_state` found nothing.
bool is_in_transform();
// Of a plain tensor. If `find_tensor_state` found nothing, this runs the Python code of a torch
// function mode.
bool requires_grad(PyObject* tensor);
inline bool is_plain_tensor(PyObject* value) {
  const GradientSource& source = gradient_source();
  return Py_TYPE(value) == source.tensor || Py_TYPE(value) == source.parameter;
}

// Looks for a way to read whether a plain tensor requires grad without Python's attribute; false if
// this torch has none. It must be right for each of `samples`, some of which require grad.
bool find_tensor_state(const std::vector<pybind11::object>& samples);

// Looks for the functions of torch's dispatcher that a `BelowAutograd` needs; false where this
// torch has none. `keys` are the bits of autograd's dispatch keys, `front` is the number of the key
// by which the transforms of torch.func see calls first.
bool find_dispatch_state(uint64_t keys, uint16_t front);
// For a torch whose functions are not what they were taken for.
void forget_dispatch_state();

// Lets torch's dispatcher pass autograd by within a scope, for calls that need no gradient of an op
// that has one in Python. Does nothing where it cannot, inside a transform of torch.func, and under
// a torch function mode: the mode's Python code runs within the scope and may need gradients.
class BelowAutograd {
 public:
  explicit BelowAutograd(bool is_wanted);
  ~BelowAutograd();
  BelowAutograd(const BelowAutograd&) = delete;
  BelowAutograd& operator=(const BelowAutograd&) = delete;

 private:
  bool is_on_ = false;
  alignas(16) char guard_[64];
};
// The result of `function()` inside such a scope, for checks.
pybind11::object below_autograd(const pybind11::function& function);

}  // namespace tileops
