"""Which pointers a Triton kernel writes through, from its IR."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Operations that write memory through one of their operands. `local_to_global` is a copy by TMA.
_WRITES = re.compile(r"store|atomic|local_to_global|global_scatter|tma_reduce|descriptor_reduce")
_ON_CHIP = re.compile(r"local_store|tmem_store|local_atomic")
_IMPURE = re.compile(r"pure = false|asm_volatile")
_FUNCTION = re.compile(r"(?:tt|llvm)\.func (?:public|private)? ?@(\"[^\"]*\"|[\w$.]+)\(")
_VALUE = re.compile(r"%[\w$.]+(?:#\d+)?")
_RESULTS = re.compile(r"^\s*(%[\w$.]+(?::\d+)?(?:, %[\w$.]+(?::\d+)?)*) = ")
_ASSIGNED = re.compile(r"(%[\w$.]+) = (%[\w$.]+(?:#\d+)?)")
_BLOCK = re.compile(r"^\s*\^(\w+)\((.*?)\):")
_JUMP = re.compile(r"\^(\w+)\(([^)]*)\)")
_CALL = re.compile(r"tt\.call @(\"[^\"]*\"|[\w$.]+)\((.*?)\)")


def written_arguments(text: str) -> frozenset[int]:
    """The numbers of the kernel's arguments through which it may write.

    ``text`` is the kernel's IR, public function first or last. A value counts as made from each
    operand of the operation that makes it, but for loops and branches, whose values are matched
    one by one, and, unless the kernel makes pointers of numbers, for offsets of pointers and what
    is loaded; so an argument can be named that is not written, and none is missed.
    """
    functions = {f.name: f for f in _functions(text)}
    has_numbers = "int_to_ptr" in text
    changed = True
    while changed:  # functions call each other
        changed = False
        for function in functions.values():
            found = function.written_through(functions, has_numbers)
            changed |= found != function.written
            function.written = found
    public = [f for f in functions.values() if f.is_public]
    return frozenset(n for f in public for n in f.written)


class _Function:
    """One function's lines and what is known of its arguments so far."""

    def __init__(self, head: str, lines: list[str]) -> None:
        match = _FUNCTION.search(head)
        assert match is not None
        self.name = match.group(1)
        self.is_public = "func public" in head or "private" not in head
        self.args = re.findall(r"(%[\w$.]+): ", head[match.end() - 1 :])
        self.lines = lines
        self.written: frozenset[int] = frozenset()

    def written_through(self, functions: dict[str, _Function], has_numbers: bool) -> frozenset[int]:
        """The numbers of the arguments that reach an operation that writes."""
        parents: dict[str, set[str]] = {}
        sinks: set[str] = set()
        _Flow(parents, sinks, functions, has_numbers).read(self.lines)
        pending, seen = list(sinks), set(sinks)
        while pending:
            for parent in parents.get(pending.pop(), ()):
                if parent not in seen:
                    seen.add(parent)
                    pending.append(parent)
        return frozenset(n for n, name in enumerate(self.args) if name in seen)


class _Flow:
    """From each value to those that it is made of, and the values that are written through."""

    def __init__(
        self,
        parents: dict[str, set[str]],
        sinks: set[str],
        functions: dict[str, _Function],
        has_numbers: bool,
    ) -> None:
        self._has_numbers = has_numbers  # of which pointers are made
        self._blocks: dict[str, list[str]] = {}  # the names that a block gets
        self._parents = parents
        self._sinks = sinks
        self._functions = functions
        self._open: list[tuple[list[str], list[str]]] = []  # results and carried names of regions

    def read(self, lines: list[str]) -> None:
        heads = (match for line in lines if (match := _BLOCK.match(line)) is not None)
        self._blocks = {m.group(1): re.findall(r"(%[\w$.]+): ", m.group(2)) for m in heads}
        for line in lines:
            self._line(line)

    def _line(self, line: str) -> None:
        match = _RESULTS.match(line)
        results = _names(match.group(1)) if match else []
        body = line[match.end() :] if match else line.strip()
        code = body.split(" : ")[0]
        if body.startswith("}"):
            if body.rstrip().endswith("{"):  # `} else {`, `} do {`
                self._carry(body)
                return
            if self._open:
                self._open.pop()
            return
        if body.startswith(("scf.yield", "scf.condition")):
            self._yielded(code)
            return
        if body.rstrip().endswith("{"):
            self._open.append((results, []))
            self._carry(body)
            return
        if (call := _CALL.search(body)) is not None:
            self._call(call, results)
            return
        if body.startswith(("cf.br", "cf.cond_br")):
            self._jumped(body)
            return
        operands = _VALUE.findall(code)
        name = code.split("(")[0].split(" ")[0].strip('"')
        for result in results:
            self._link(result, self._pointers(name, operands, body))
        writes = _WRITES.search(name) is not None and _ON_CHIP.search(name) is None
        if writes or _IMPURE.search(body):
            # A store names its pointer first, a copy to global memory too; a scatter as well.
            self._sinks.update(operands if _IMPURE.search(body) else operands[:1])

    def _jumped(self, body: str) -> None:
        for block, given in _JUMP.findall(body):
            for inner, value in zip(
                self._blocks.get(block, []), _VALUE.findall(given), strict=False
            ):
                self._link(inner, [value])

    def _pointers(self, name: str, operands: list[str], body: str) -> list[str]:
        """The operands that a pointer which the operation makes can come from."""
        if not self._has_numbers:
            if name == "tt.addptr":
                return operands[:1]
            if name == "tt.load" and "ptr<!tt.ptr" not in body:
                return []
        return operands

    def _carry(self, body: str) -> None:
        """The head of a loop: what its carried names start with."""
        if not self._open:
            return
        results, carried = self._open[-1]
        for inner, start in _ASSIGNED.findall(body):
            self._link(inner, [start])
            carried.append(inner)
        del results

    def _yielded(self, code: str) -> None:
        if not self._open:
            return
        results, carried = self._open[-1]
        values = _VALUE.findall(code)
        if code.startswith("scf.condition"):
            values = values[1:]
        for names in (results, carried[-len(values) :] if values else []):
            for name, value in zip(names, values, strict=False):
                self._link(name, [value])
        # The block of a loop whose condition is computed gets its values by other names.
        for name, inner in zip(results, carried, strict=False):
            self._link(name, [inner])

    def _call(self, call: re.Match[str], results: list[str]) -> None:
        operands = _VALUE.findall(call.group(2))
        for result in results:
            self._link(result, operands)
        called = self._functions.get(call.group(1))
        for number, operand in enumerate(operands):
            if called is None or number in called.written:
                self._sinks.add(operand)

    def _link(self, name: str, parents: list[str]) -> None:
        self._parents.setdefault(name, set()).update(parents)
        if "#" in name:
            self._parents.setdefault(name, set())


def _names(text: str) -> list[str]:
    """``%5:3`` are ``%5#0``, ``%5#1`` and ``%5#2``."""
    found: list[str] = []
    for part in text.split(", "):
        name, _, count = part.partition(":")
        found += [f"{name}#{n}" for n in range(int(count))] if count else [name]
    return found


def _functions(text: str) -> Iterator[_Function]:
    head, depth = "", 0
    lines: list[str] = []
    for line in text.splitlines():
        if not head:
            if _FUNCTION.search(line):
                head, lines = line, []
                depth = _braces(line)
            continue
        depth += _braces(line)
        if depth <= 0:
            yield _Function(head, lines)
            head = ""
            continue
        lines.append(line)


def _braces(line: str) -> int:
    return line.count("{") - line.count("}")
