// Owns the interface of the short way from a program object to its op.
#pragma once

#include <pybind11/pybind11.h>

#include <utility>
#include <vector>

namespace tileops {

// Says where a program object keeps what `make_direct` returns: `member` is the descriptor of that
// member of the class's `__slots__`.
void set_direct(const pybind11::object& member);

// Lets calls of objects of a class take the short way where they can; its `__call__` takes the
// others.
void install_direct(const pybind11::type& cls);

// What an object keeps so that a call with `count` positional arguments, plain tensors at the
// positions `tensors` and values of the exact types `scalars`, goes to `op` at once (torch's
// function, or the OpCall around it); with `asks_gradient` not where a tensor needs a gradient. The
// object's `_explain(args, error)` is asked for better words when the op fails.
pybind11::object make_direct(const pybind11::object& op, std::size_t count,
                             const std::vector<std::size_t>& tensors,
                             const std::vector<std::pair<std::size_t, pybind11::type>>& scalars,
                             bool asks_gradient);

}  // namespace tileops
