// The short way from a program object to its op.
#pragma once

#include <pybind11/pybind11.h>

#include <utility>
#include <vector>

namespace tileops {

// What an object of `cls` keeps as `_direct` so that its plain calls run no Python code: a call
// with `count` positional arguments, plain tensors at the positions `tensors` and values of the
// exact types `scalars`, goes to `op` at once (torch's function, or the OpCall around it); with
// `asks_gradient` not where a tensor needs a gradient. `cls` has `_direct` among its `__slots__`, a
// `__call__` in Python, which takes all other calls, and `_explain(args, error)`, which may raise
// better words for an error of the op.
pybind11::object direct_call(const pybind11::type& cls, const pybind11::object& op,
                             std::size_t count, const std::vector<std::size_t>& tensors,
                             const std::vector<std::pair<std::size_t, pybind11::type>>& scalars,
                             bool asks_gradient);

}  // namespace tileops
