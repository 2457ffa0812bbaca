// Owns the interface of the short way from a program object to its op.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace tileops {

// Says how torch is asked whether a call may need a gradient: the module whose `_current_level` is
// at least 0 inside forward-mode differentiation, and torch.is_grad_enabled. `descriptor` is that
// of the `__slots__` member in which a program object keeps what `make_direct` returns.
void set_direct(const pybind11::object& descriptor, const pybind11::object& forward_mode,
                const pybind11::object& is_grad_enabled);

// Lets calls of objects of a class take the short way where they can; its `__call__` takes the
// others.
void install_direct(const pybind11::type& cls);

// What an object keeps so that a call with `count` positional arguments goes to `op` at once,
// unless one of the tensors among them, at the positions `tensors`, needs a gradient.
pybind11::object make_direct(const pybind11::object& op, std::size_t count,
                             const std::vector<std::size_t>& tensors);

}  // namespace tileops
