"""Random numbers of each thread: Philox, which a seed and a place decide."""

from __future__ import annotations

from tileops.dtypes import DType
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Expr
from tileops.ir.stmt import RandomNumber, RandomStart
from tileops.language.launch import get_block_binding, get_thread_binding
from tileops.language.missing import on_which_target
from tileops.language.tracer import Tracer, require_tracer
from tileops.language.value import Value, to_expr

__all__ = ["rng_init", "rng_rand", "rng_rand_float"]

_PHILOX = "curandStatePhilox4_32_10_t"
_OTHERS = ("curandStateMRG32k3a_t", "curandStateXORWOW_t")
_WIDE = DType("uint64")


def _tracer_of(construct: str) -> Tracer:
    """The running trace, where a thread may draw a number: the order of draws must be known."""
    tracer = require_tracer(construct)
    if tracer.require_launch(construct).thread_count > 1 and tracer.in_parallel:
        raise ProgramValueError(
            f"{construct} in a T.Parallel loop of several threads: which thread draws for which "
            "point is not known; use T.serial over what each thread works on"
        )
    return tracer


def _number(what: str, value: object) -> Expr:
    expr = to_expr(value, what)
    if not expr.dtype.is_integer:
        raise ProgramTypeError(
            f"T.rng_init: wrong {what}", expected="an integer", found=str(expr.dtype)
        )
    return fold.cast(expr, _WIDE)


def rng_init(
    seed: object, seq: object = None, off: object = 0, generator: object = _PHILOX
) -> None:
    """Start the thread's generator at number ``off`` of the sequence ``seq`` of ``seed``.

    By default each thread has a sequence of its own: ``tx + bx * threads``.
    """
    tracer = _tracer_of("T.rng_init")
    if generator in _OTHERS:
        raise UnsupportedConstructError(
            f"T.rng_init(generator={generator!r}) is not supported by tileops{on_which_target()}",
            expected=f"generator={_PHILOX!r}",
        )
    if generator != _PHILOX:
        raise ProgramValueError(
            "T.rng_init: wrong generator", expected=repr(_PHILOX), found=repr(generator)
        )
    if seq is None:
        extent = tracer.require_launch("T.rng_init").threads[0]
        seq = get_thread_binding(0) + get_block_binding(0) * extent
    numbers = (_number("seed", seed), _number("seq", seq), _number("off", off))
    tracer.emit(RandomStart(*numbers))


def _drawn(construct: str, dtype: str) -> Value:
    tracer = _tracer_of(construct)
    if not any(isinstance(stmt, RandomStart) for stmt in tracer.open_statements()):
        raise ProgramValueError(f"{construct} before T.rng_init, which starts the generator")
    result = tracer.new_var("random", DType(dtype))
    tracer.emit(RandomNumber(result))
    tracer.define(result)
    return Value(result)


def rng_rand() -> Value:
    """The thread's next random number, a uint32."""
    return _drawn("T.rng_rand", "uint32")


def rng_rand_float(bit: object = 32, dist: object = "uniform") -> Value:
    """The thread's next random number as a float32 above 0 and up to 1, all alike likely."""
    if bit not in (32, 64) or dist not in ("uniform", "normal"):
        raise ProgramValueError(
            "T.rng_rand_float: wrong bit or dist",
            expected="bit=32 and dist='uniform'",
            found=f"bit={bit!r}, dist={dist!r}",
        )
    if bit != 32 or dist != "uniform":
        raise UnsupportedConstructError(
            f"T.rng_rand_float(bit={bit!r}, dist={dist!r}) is not supported by "
            f"tileops{on_which_target()}",
            expected="bit=32 and dist='uniform'",
        )
    return _drawn("T.rng_rand_float", "float32")
