"""Owns the structural rules of the tile IR, which hold after the trace and after each pass."""

from __future__ import annotations

from tileops.dtypes import DType
from tileops.errors import InternalError
from tileops.ir.expr import (
    Buffer,
    Const,
    Expr,
    Region,
    Var,
)
from tileops.ir.expression_verifier import ExpressionVerifier
from tileops.ir.printer import print_body, print_expr
from tileops.ir.program import Program, ScalarParam, TensorParam
from tileops.ir.stmt import (
    ATOMIC_OPS,
    CHECK_KINDS,
    LOOP_KINDS,
    REDUCE_KINDS,
    SCAN_KINDS,
    AddressView,
    Alloc,
    Assert,
    Assume,
    Atomic,
    Bind,
    Body,
    Break,
    Check,
    Continue,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Im2col,
    Intrinsic,
    Launch,
    Parallel,
    Placement,
    Print,
    Reduce,
    Scan,
    Stmt,
    Store,
    Transpose,
    View,
    While,
)
from tileops.ir.walk import walk

_BOOL = DType("bool")


def verify(program: Program, made_by: str | None = None) -> None:
    """Check a program's structure; InternalError names the first fault and its statement.

    ``made_by`` is the pass that made the program: its statements must then say where they came
    from, and errors name it.
    """
    try:
        _Verifier(program).run()
        if made_by is not None:
            _require_origins(program)
    except InternalError as error:
        if made_by is None:
            raise
        raise InternalError(f"after the pass {made_by}: {error}") from None


def _require_origins(program: Program) -> None:
    for stmt in walk(program.launches):
        if stmt.origin is None:
            raise InternalError(
                f"program {program.name}: a statement without an origin: {print_body((stmt,))[0]}"
            )


class _Verifier(ExpressionVerifier):
    """One walk of a program; ``_vars`` and ``_buffers`` are what is defined at the statement."""

    def run(self) -> None:
        """Verify the whole program."""
        p = self._program
        for size in p.sizes:
            self._require(
                size.kind in ("const", "dynamic"), f"size {size.var.name} has kind {size.kind!r}"
            )
            self._define_var(size.var)
        for param in p.params:
            if isinstance(param, ScalarParam):
                self._define_var(param.var)
        for param in p.params:
            if isinstance(param, TensorParam):
                self._global(param.buffer)
        for workspace in p.workspaces:
            self._global(workspace)
        self._returns()
        for check in p.host_asserts:
            self._typed(check.cond, _BOOL, "a host assert")
        for launch in p.launches:
            self._launch(launch)

    def _returns(self) -> None:
        p = self._program
        self._require(len(set(p.returns)) == len(p.returns), "an output is returned twice")
        for index in p.returns:
            ok = 0 <= index < len(p.params) and getattr(p.params[index], "allocated", False)
            self._require(ok, f"return {index} is not an allocated parameter")
        for i, param in enumerate(p.params):
            if isinstance(param, TensorParam) and param.allocated:
                self._require(i in p.returns, f"allocated parameter {param.name} is not returned")

    def _global(self, buffer: Buffer) -> None:
        self._require(
            buffer.scope == "global", f"{buffer.name} is a parameter of scope {buffer.scope}"
        )
        self._define_buffer(buffer)

    # -- statements --------------------------------------------------------------------------------
    def _launch(self, launch: Launch) -> None:
        self._where = launch
        self._require(1 <= len(launch.grid) <= 3, f"a grid of {len(launch.grid)} extents")
        self._require(
            len(launch.grid) == len(launch.block_vars), "grid and block variables differ in number"
        )
        self._require(launch.threads > 0, f"threads {launch.threads}")
        for extent in launch.grid:
            self._integer(extent, "a grid extent")
        views = {s.buffer.id for s in walk(launch.body) if isinstance(s, View)}
        for buffer, value in launch.safe_values:
            if buffer.id not in views:
                self._use(buffer)
            self._typed(value, buffer.dtype, f"the safe value of {buffer.name}")
        for placement in launch.placements:
            self._placement(placement)
        with_vars, with_buffers = dict(self._vars), dict(self._buffers)
        for var in launch.block_vars:
            self._define_var(var)
        self._body(launch.body)
        self._vars, self._buffers = with_vars, with_buffers

    def _placement(self, placement: Placement) -> None:
        name = placement.buffer.name
        self._require(placement.buffer.scope == "global", f"{name} is placed and on chip")
        self._require(len(placement.vars) == placement.buffer.ndim, f"{name} is placed by rank")
        outer = dict(self._vars)
        for var in placement.vars:
            self._define_var(var)
        for index in placement.indices:
            self._typed(index, DType("int32"), f"the place of {name}")
        self._vars = outer

    def _body(self, body: Body, defined: tuple[Var, ...] = ()) -> None:
        outer_vars, outer_buffers = dict(self._vars), dict(self._buffers)
        for var in defined:
            self._define_var(var)
        for stmt in body:
            self._where = stmt
            self._stmt(stmt)
        self._vars, self._buffers = outer_vars, outer_buffers

    def _stmt(self, stmt: Stmt) -> None:
        match stmt:
            case For() | Parallel() | While() | If() | Break() | Continue():
                self._control(stmt)
            case Alloc() | View() | AddressView() | Bind() | Store() | Intrinsic() | Print():
                self._simple(stmt)
            case Assert() | Assume() | Check():
                self._checked(stmt)
            case _:
                self._tile(stmt)

    def _control(self, stmt: Stmt) -> None:
        match stmt:
            case For():
                self._require(stmt.kind in LOOP_KINDS, f"unknown loop kind {stmt.kind!r}")
                for bound in (stmt.start, stmt.stop):
                    self._typed(bound, stmt.var.dtype, "a loop bound")
                self._nested("for", stmt.body, (stmt.var,))
            case Parallel():
                self._require(
                    len(stmt.vars) == len(stmt.extents) > 0,
                    "variables and extents differ in number",
                )
                for var, extent in zip(stmt.vars, stmt.extents, strict=True):
                    self._typed(extent, var.dtype, "a parallel extent")
                self._nested("parallel", stmt.body, stmt.vars)
            case While():
                self._typed(stmt.cond, _BOOL, "a loop condition")
                self._nested("while", stmt.body, ())
            case If():
                self._typed(stmt.cond, _BOOL, "a condition")
                self._body(stmt.then)
                self._body(stmt.orelse)
            case Break() | Continue():
                ok = bool(self._loops) and self._loops[-1] != "parallel"
                self._require(ok, "break or continue outside a sequential loop")

    def _nested(self, kind: str, body: Body, defined: tuple[Var, ...]) -> None:
        self._loops.append(kind)
        self._body(body, defined)
        self._loops.pop()

    def _simple(self, stmt: Stmt) -> None:
        match stmt:
            case Alloc(buffer=buffer, init=init):
                self._require(buffer.is_on_chip, f"allocation of the global buffer {buffer.name}")
                if init is not None:
                    self._require(
                        buffer.scope == "var",
                        f"{buffer.name} has an initial value and scope {buffer.scope}",
                    )
                    self._typed(init, buffer.dtype, "an initial value")
                self._define_buffer(buffer)
            case View(buffer=buffer, source=source):
                self._use(source)
                self._require(buffer.scope == source.scope, f"view {buffer.name} changes the scope")
                self._define_buffer(buffer)
            case AddressView(buffer=buffer, address=address):
                self._typed(address, DType("int64"), "an address")
                self._require(buffer.scope == "global", f"{buffer.name} at an address is on chip")
                self._define_buffer(buffer)
            case Bind(var=var, value=value):
                self._typed(value, var.dtype, f"the value of {var.name}")
                self._define_var(var)
            case Store(buffer=buffer, indices=indices, value=value):
                self._use(buffer)
                self._indices(buffer, indices)
                for index in indices:
                    self._expr(index)
                self._typed(value, buffer.dtype, f"the value stored to {buffer.name}")
            case Intrinsic(args=args) | Print(args=args):
                for arg in args:
                    self._region(arg) if isinstance(arg, Region) else self._expr(arg)

    def _checked(self, stmt: Stmt) -> None:
        match stmt:
            case Assert(cond=cond) | Assume(cond=cond):
                self._typed(cond, _BOOL, "a condition")
            case Check():
                self._require(stmt.kind in CHECK_KINDS, f"unknown check {stmt.kind!r}")
                self._typed(stmt.when, _BOOL, "a condition")
                self._expr(stmt.value)
                self._expr(stmt.bound)

    def _tile(self, stmt: Stmt) -> None:
        match stmt:
            case Copy(src=src, dst=dst):
                self._same(src, dst, squeeze=True)
            case Scan(src=src, dst=dst):
                self._require(stmt.kind in SCAN_KINDS, f"unknown scan {stmt.kind!r}")
                self._axis(src, stmt.dim)
                self._same(src, dst, squeeze=False)
            case Fill(dst=dst, value=value):
                self._region(dst)
                self._typed(value, dst.dtype, "the fill value")
            case Gemm():
                self._gemm(stmt)
            case Reduce():
                self._reduce(stmt)
            case Transpose(src=src, dst=dst):
                self._transpose(src, dst)
            case Im2col(image=image, dst=dst):
                self._use(image)
                self._require(image.ndim == 4, f"im2col of {image.name}, which is not 4-D")
                self._region(dst)
                self._integer(stmt.row_step, "a step")
                self._integer(stmt.col_step, "a step")
            case Atomic():
                self._atomic(stmt)
            case _:
                self._fail(f"unknown statement {type(stmt).__name__}")
        tile_atomic = not isinstance(stmt, Atomic) or isinstance(stmt.value, Region)
        self._require(
            not (tile_atomic and "parallel" in self._loops),
            "a tile operation inside a parallel nest",
        )

    def _same(self, src: Region, dst: Region, *, squeeze: bool) -> None:
        self._region(src)
        self._region(dst)
        a = tuple(src.extents[d] for d in src.squeezed()) if squeeze else src.extents
        b = tuple(dst.extents[d] for d in dst.squeezed()) if squeeze else dst.extents
        self._require(_shapes_agree(a, b), f"extents differ: {_show(a)} and {_show(b)}")

    def _axis(self, region: Region, dim: int) -> None:
        self._require(0 <= dim < len(region.extents), f"dimension {dim} of {region.buffer.name}")

    def _gemm(self, stmt: Gemm) -> None:
        for region in (stmt.a, stmt.b, stmt.c):
            self._region(region)
            self._require(
                len(region.extents) >= 2, f"gemm operand {region.buffer.name} has no matrix"
            )
            self._require(
                all(_is_one(e) for e in region.extents[:-2]),
                f"leading extents of {region.buffer.name} are not 1",
            )
            self._require(region.buffer.is_on_chip, f"gemm operand {region.buffer.name} is global")
        m, k = stmt.a.extents[-2:][::-1] if stmt.transpose_a else stmt.a.extents[-2:]
        kb, n = stmt.b.extents[-2:][::-1] if stmt.transpose_b else stmt.b.extents[-2:]
        cm, cn = stmt.c.extents[-2:]
        self._require(_shapes_agree((m, n, k), (cm, cn, kb)), "gemm extents disagree")
        self._typed(stmt.clear, _BOOL, "clear")

    def _reduce(self, stmt: Reduce) -> None:
        self._require(stmt.kind in REDUCE_KINDS, f"unknown reduction {stmt.kind!r}")
        self._region(stmt.src)
        self._region(stmt.dst)
        self._axis(stmt.src, stmt.dim)
        rest = tuple(e for d, e in enumerate(stmt.src.extents) if d != stmt.dim and not _is_one(e))
        out = tuple(stmt.dst.extents[d] for d in stmt.dst.squeezed())
        self._require(
            _shapes_agree(rest, out), f"reduction of {_show(stmt.src.extents)} into {_show(out)}"
        )

    def _transpose(self, src: Region, dst: Region) -> None:
        self._region(src)
        self._region(dst)
        swapped = (*src.extents[:-2], *src.extents[-2:][::-1])
        self._require(_shapes_agree(swapped, dst.extents), "transpose extents disagree")

    def _atomic(self, stmt: Atomic) -> None:
        self._require(stmt.op in ATOMIC_OPS, f"unknown atomic {stmt.op!r}")
        self._region(stmt.dst)
        if isinstance(stmt.value, Region):
            self._same(stmt.value, stmt.dst, squeeze=True)
            self._require(stmt.result is None, "a tile atomic has no result")
        elif stmt.value is not None:
            self._typed(stmt.value, stmt.dst.dtype, "the value of an atomic")
        else:
            self._require(stmt.op == "load", f"atomic {stmt.op} without a value")
        if stmt.result is not None:
            self._require(
                stmt.result.dtype == stmt.dst.dtype, "the result of an atomic has another dtype"
            )
            self._define_var(stmt.result)


def _is_one(expr: Expr) -> bool:
    return isinstance(expr, Const) and int(expr.value) == 1


def _shapes_agree(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    """False where ranks or constant extents differ; symbolic extents are taken on trust."""
    if len(a) != len(b):
        return False
    pairs = zip(a, b, strict=True)
    return all(
        x.value == y.value for x, y in pairs if isinstance(x, Const) and isinstance(y, Const)
    )


def _show(extents: tuple[Expr, ...]) -> str:
    return f"[{', '.join(print_expr(e) for e in extents)}]"
