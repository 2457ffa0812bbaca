"""What the scalar, loop and launch constructs record, and what is refused."""

from __future__ import annotations

import pytest

import tileops.language as T
from tests.kit.traced import body_of, lines, program_of, text_of
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError


# -- scalars -------------------------------------------------------------------------------------------
def test_the_promotion_of_mixed_operands() -> None:
    def program(A, H, B):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        H: T.Tensor((N,), T.float16)
        B: T.Tensor((N,), T.uint8)
        with T.Kernel(1):
            A[0] = H[0] * 2
            A[1] = H[0] * 2.0
            A[2] = B[0] + 1
            A[3] = B[0] + H[0]
            A[4] = T.cast(B[0], "float16") + T.float32(1)

    assert body_of(program) == lines("""
        %A.1[0] = f32((%H.2[0] * 2.0f16))
        %A.1[1] = (f32(%H.2[0]) * 2.0f32)
        %A.1[2] = f32((i32(%B.3[0]) + 1))
        %A.1[3] = f32((f16(%B.3[0]) + %H.2[0]))
        %A.1[4] = (f32(f16(%B.3[0])) + 1.0f32)
    """)


def test_integer_division_shifts_and_bits() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1) as bx:
            A[0] = bx // 3 + bx % 3 + T.truncdiv(bx, 3) + T.truncmod(bx, -3)
            A[1] = (bx << 2 | 1) ^ ~bx & T.shift_right(bx, 1)
            A[2] = bx**2
            A[3] = T.reinterpret(T.float32(1.5) + bx, T.int32)
            A[4] = T.popcount(bx) + T.clz(bx)

    assert body_of(program) == lines("""
        %A.1[0] = ((((bx.2 // 3) + (bx.2 % 3)) + truncdiv(bx.2, 3)) + truncmod(bx.2, -3))
        %A.1[1] = (((bx.2 << 2) | 1) ^ (invert(bx.2) & (bx.2 >> 1)))
        %A.1[2] = (bx.2 * bx.2)
        %A.1[3] = reinterpret:i32((1.5f32 + f32(bx.2)))
        %A.1[4] = (popcount:i32(bx.2) + clz:i32(bx.2))
    """)


@pytest.mark.parametrize(
    "name",
    [
        "exp",
        "exp2",
        "exp10",
        "log",
        "log2",
        "log10",
        "log1p",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "asin",
        "acos",
        "atan",
        "sigmoid",
        "erf",
        "ceil",
        "floor",
        "trunc",
        "nearbyint",
    ],
)
def test_math_functions_keep_the_dtype(name: str) -> None:
    def program(A, function):
        N = T.const("N")
        A: T.Tensor((N,), T.float16)
        with T.Kernel(1):
            A[0] = getattr(T, function)(A[1])

    assert body_of(program, function=name) == f"%A.1[0] = {name}:f16(%A.1[1])"


def test_the_fast_forms_rounding_modes_and_predicates() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            A[0] = T.__exp2(A[1]) + T.round(A[2]) + T.round(A[3], "ties-away-from-zero")
            A[1] = T.if_then_else(T.isnan(A[0]), 0.0, T.clamp(A[0], -1, 1))
            A[2] = T.pow(A[0], 2) + T.atan2(A[0], A[1]) + abs(A[2])
            A[3] = T.ieee_fmaf(A[0], A[1], A[2]) + T.ieee_frcp(A[0])

    assert body_of(program) == lines("""
        %A.1[0] = ((exp2:f32(%A.1[1]) + nearbyint:f32(%A.1[2])) + round:f32(%A.1[3]))
        %A.1[1] = select(isnan:bool(%A.1[0]), 0.0f32, min(max(%A.1[0], -1.0f32), 1.0f32))
        %A.1[2] = ((pow:f32(%A.1[0], 2.0f32) + atan2:f32(%A.1[0], %A.1[1])) + abs:f32(%A.1[2]))
        %A.1[3] = (fma_rn:f32(%A.1[0], %A.1[1], %A.1[2]) + div_rn:f32(1.0f32, %A.1[0]))
    """)


def test_pythons_min_and_max_work_on_run_time_values() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1) as bx:
            A[0] = min(bx, 3, 4) + max(2, 1)

    assert body_of(program) == "%A.1[0] = (min(min(bx.2, 3), 4) + 2)"


def test_infinity_and_the_limits_of_a_dtype() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            A[0] = -T.infinity("float16")
            A[1] = T.max_value(T.int8) + T.min_value(T.uint8)

    assert body_of(program).splitlines()[1] == "%A.1[1] = 127.0f32"


# -- loops and launches ----------------------------------------------------------------------------------
def test_the_kinds_of_loops() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            for i in T.unroll(2, 6, unroll_factor=2):
                A[i] = 0
            for i in T.vectorized(4):
                A[i] = 1
            for i, j in T.grid(2, 3):
                A[i] = j
            for k in T.Pipelined(0, A[0], num_stages=3):
                A[k] = 2
            for k in T.Pipelined(4, order=[0, 1], stage=[0, 2]):
                A[k] = 3

    assert body_of(program) == lines("""
        unroll i.3: i32 in 2 .. 6 factor=2:
          %A.1[i.3] = 0
        vectorized i.4: i32 in 0 .. 4:
          %A.1[i.4] = 1
        serial i.5: i32 in 0 .. 2:
          serial j.6: i32 in 0 .. 3:
            %A.1[i.5] = j.6
        let stop.7: i32 = %A.1[0]
        pipelined k.8: i32 in 0 .. stop.7 stages 3:
          %A.1[k.8] = 2
        pipelined k.9: i32 in 0 .. 4 stages 3:
          %A.1[k.9] = 3
    """)


def test_a_persistent_loop_ends_when_its_domain_is_used_up() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(3) as worker:
            for m, n in T.Persistent([2, 4], 3, worker, group_size=4):
                A[m] = n

    assert body_of(program) == lines("""
        serial wave.3: i32 in 0 .. 3:
          let tile.4: i32 = ((wave.3 * 3) + worker.2)
          if (tile.4 >= 8):
            break
          let m.5: i32 = (((tile.4 - ((tile.4 // 8) * 8)) // min((4 - ((tile.4 // 8) * 4)), 4)) % 2)
          let n.6: i32 = (((tile.4 // 8) * 4) + ((tile.4 - ((tile.4 // 8) * 8)) % min((4 - ((tile.4 // 8) * 4)), 4)))
          %A.1[m.5] = n.6
    """)


@pytest.mark.parametrize("domain", [(4, 10), (3, 8), (1, 5), (2, 3, 7)])
@pytest.mark.parametrize("group", [1, 3, 8])
def test_grouped_coordinates_visit_every_tile_once(domain: tuple[int, ...], group: int) -> None:
    from tileops.ir import fold
    from tileops.language.persistent import _grouped_coordinates

    extents = [fold.const(d) for d in domain]
    total = 1
    for extent in domain:
        total *= extent
    seen = {
        tuple(c.value for c in _grouped_coordinates(fold.const(t), extents, fold.const(group)))
        for t in range(total)
    }
    assert len(seen) == total
    assert all(0 <= x < d for point in seen for x, d in zip(point, domain, strict=True))


def test_a_tile_scheduler_keeps_its_state_in_variables() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        scheduler = T.PersistentTileScheduler(4, 8, swizzle_size=2)
        with T.Kernel(3) as worker:
            scheduler.init(worker)
            while scheduler.valid():
                A[scheduler.m_idx] = scheduler.n_idx
                scheduler.next_tile()

    text = body_of(program)
    assert "while (%scheduler_tile.3[0] < 32):" in text
    assert "%scheduler_tile.3[0] = (%scheduler_tile.3[0] + host.sm_count)" in text


def test_the_launch_keeps_its_grid_threads_and_hints() -> None:
    def program(A):
        M, N = T.const("M, N")
        A: T.Tensor((M, N), T.float32)
        with T.Kernel(M, N, 2, threads=(64, 2)) as (bx, by, _bz):
            T.use_swizzle(10, order="column")
            T.annotate_min_blocks_per_sm(2)
            T.annotate_safe_value({A: -1})
            T.sync_threads()
            T.pdl_sync()
            T.disable_warp_group_reg_alloc()
            with T.ws(0):
                A[bx, by] = T.get_block_binding(2)

    (launch,) = program_of(program).launches
    assert launch.threads == 128
    assert launch.attrs == (("min_blocks", "2"), ("swizzle", "10:column"))
    assert [(b.name, v.value) for b, v in launch.safe_values] == [("A", -1.0)]
    assert body_of(program) == "%A.2[bx.3, by.4] = f32(_bz.5)"


def test_workspaces_and_several_launches() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        part = T.alloc_global((4, N), T.float32)
        with T.Kernel(4) as bx:
            part[bx, 0] = A[bx]
        with T.Kernel(1) as bx:
            A[bx] = part[0, 0]

    program_ = program_of(program)
    assert [w.name for w in program_.workspaces] == ["part"]
    assert len(program_.launches) == 2


def test_a_tile_belongs_to_its_launch() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            tile = T.alloc_shared((4,), T.float32)
        with T.Kernel(1):
            A[0] = tile[0]

    with pytest.raises(
        ProgramValueError, match=r"`tile` is read outside the `with T\.Kernel` block"
    ):
        body_of(program)


def test_strided_tensors_carry_their_strides() -> None:
    def program(A):
        M, N, S = T.const("M, N, S")
        A: T.StridedTensor((M, N), (S, 1), T.float32)
        with T.Kernel(1) as bx:
            A[bx, 0] = A.strides[0]

    assert "tensor %A.3: f32[M.0, N.1] global strides [S.2, 1]" in text_of(program)


def test_print_and_device_assert() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1) as bx:
            T.print(A[0])
            T.print(bx, "block")
            T.print(msg="here")
            T.device_assert(bx < 2, "too many")
            T.assume(bx < 3)

    assert body_of(program) == lines("""
        print 'A' %A.1[0]
        print 'block' bx.2
        print 'here'
        assert (bx.2 < 2) 'too many'
        assume (bx.2 < 3)
    """)


def test_pass_configs_and_compile_flags_of_the_body_enter_the_options() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        T.annotate_pass_configs({"tl.enable_fast_math": True})
        T.annotate_compile_flags(["-O2", "-g"])
        with T.Kernel(1) as bx:
            A[bx] = 0

    assert program_of(program).options == (
        ("compile_flags", "-O2 -g"),
        ("tl.enable_fast_math", "true"),
    )


# -- what is refused -----------------------------------------------------------------------------------
def test_every_other_name_of_the_language_raises_when_it_is_used() -> None:
    from tileops.language.missing import all_names

    for name in all_names():

        def program(A, construct):
            N = T.const("N")
            A: T.Tensor((N,), T.float32)
            with T.Kernel(1):
                getattr(T, construct)(1)

        with pytest.raises(UnsupportedConstructError, match=f"T.{name} ") as caught:
            body_of(program, construct=name)
        assert caught.value.location is not None


def test_a_pointer_without_a_shape_is_refused() -> None:
    def pointer(A):
        A: T.ptr
        with T.Kernel(1):
            A[0] = 1

    with pytest.raises(ProgramTypeError, match=r"use T\.make_tensor"):
        body_of(pointer)


def test_a_name_that_no_tile_language_has_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no name 'aloc_shared'"):
        T.aloc_shared


def test_a_wrong_operand_is_named() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            T.copy(A, 3)

    with pytest.raises(ProgramTypeError, match="the destination must be a buffer"):
        body_of(program)
