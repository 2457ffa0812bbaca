"""What each Python form means in a tile program: names, conditions, loops, functions."""

from __future__ import annotations

import pytest

import tileops.language as T
from tests.kit.traced import body_of, lines, text_of
from tileops.errors import ProgramError, ProgramSyntaxError, ProgramTypeError, ProgramValueError

SCALE = 3


# -- names ---------------------------------------------------------------------------------------
def test_a_name_holds_the_value_that_an_element_has_now() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            before = A[0]
            A[0] = 5
            A[1] = before

    assert body_of(program) == lines("""
        let before.3: i32 = %A.1[0]
        %A.1[0] = 5
        %A.1[1] = before.3
    """)


def test_a_named_slice_stays_where_it_was() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            tile = T.alloc_shared((8,), T.int32)
            x = T.alloc_var(T.int32, 0)
            window = A[x : x + 8]
            x = 5
            T.copy(window, tile)

    assert body_of(program) == lines("""
        let window.5: i32 = %x.4[0]
        %x.4[0] = 5
        copy %A.1[window.5 : +8] -> %tile.3[0 : +8]
    """)


def test_an_alloc_var_is_read_and_stored_by_its_name() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            x = T.alloc_var(T.int32, 1)
            y = x
            x = y + 2
            x += 3
            A[0] = x

    assert body_of(program) == lines("""
        let y.4: i32 = %x.3[0]
        %x.3[0] = (y.4 + 2)
        %x.3[0] = (%x.3[0] + 3)
        %A.1[0] = %x.3[0]
    """)


def test_an_alloc_var_takes_its_scope_and_value_by_name() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            x = T.alloc_var(T.int32, scope="local.var", init=4)
            A[0] = x

    assert body_of(program) == "%A.1[0] = %x.3[0]"


def test_a_tuple_assignment_reads_everything_first() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            A[0], A[1] = A[1], A[0]

    assert body_of(program) == lines("""
        let value.3: i32 = %A.1[1]
        let value.4: i32 = %A.1[0]
        %A.1[0] = value.3
        %A.1[1] = value.4
    """)


def test_python_numbers_stay_python_numbers() -> None:
    seen = []

    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            a = 2
            b = a * 3
            c = T.ceildiv(b, 4)
            seen.extend([type(a), type(b), c])
            A[c] = b

    assert body_of(program) == "%A.1[2] = 6"
    assert seen == [int, int, 2]


def test_size_constants_are_python_ints_in_a_specialised_trace() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            for i in T.Parallel(N):
                A[i] = 1.0 / N

    assert "parallel i.2 in [96]" in body_of(program, {"N": 96})
    assert "0.010416666666666666f32" in body_of(program, {"N": 96})


def test_a_rebound_name_in_the_same_block_is_the_new_value() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1) as bx:
            row = bx * 2
            row = row + 1
            A[row] = 0

    assert body_of(program) == "%A.1[((bx.2 * 2) + 1)] = 0"


def test_a_chained_assignment_and_an_annotated_one() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            a = b = A[0]
            c: T.float16 = A[1]
            A[2] = a + b + c

    assert body_of(program) == lines("""
        let a.3: f32 = %A.1[0]
        let c.4: f16 = f16(%A.1[1])
        %A.1[2] = ((a.3 + a.3) + f32(c.4))
    """)


# -- conditions ------------------------------------------------------------------------------------
def test_a_python_condition_is_decided_while_tracing() -> None:
    def program(A, relu: bool = False):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1) as bx:
            if relu:
                A[bx] = T.max(A[bx], 0)
            else:
                A[bx] = A[bx] if not relu else 0.0

    assert body_of(program, relu=True) == "%A.1[bx.2] = max(%A.1[bx.2], 0.0f32)"
    assert body_of(program) == "%A.1[bx.2] = %A.1[bx.2]"


def test_a_run_time_condition_becomes_an_if() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1) as bx:
            if A[0] > 1:
                A[1] = 1
            elif A[0] == 0:
                A[1] = 2
            else:
                A[1] = 3

    assert body_of(program) == lines("""
        if (%A.1[0] > 1):
          %A.1[1] = 1
        else:
          if (%A.1[0] == 0):
            %A.1[1] = 2
          else:
            %A.1[1] = 3
    """)


def test_logic_is_lazy_and_chained_comparisons_are_and() -> None:
    def program(A, static: bool = True):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1) as bx:
            x = A[0]
            if (static and 0 < x < 9) or not (x == 4):  # noqa: SIM201
                A[1] = x if x > 2 else -x

    assert body_of(program) == lines("""
        let x.3: i32 = %A.1[0]
        if (((x.3 > 0) and (x.3 < 9)) or not((x.3 == 4))):
          %A.1[1] = select((x.3 > 2), x.3, neg(x.3))
    """)


def test_a_condition_on_a_size_before_the_kernel_is_a_select() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        if N > 1024:  # noqa: SIM108
            block = 1024
        else:
            block = 128
        with T.Kernel(T.ceildiv(N, block)) as bx:
            A[bx] = 0

    grid = "ceildiv(N.0, select((N.0 > 1024), 1024, 128))"
    assert f"launch bx.2 in [{grid}]" in text_of(program)
    assert "launch bx.1 in [2]" in text_of(program, {"N": 256})


def test_a_name_of_the_other_branch_is_not_seen_in_else() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1) as bx:
            value = 7
            if A[0] > 0:
                value = 8
                A[1] = value
            else:
                A[1] = value

    assert "else:\n  %A.1[1] = 7" in body_of(program)


# -- loops -------------------------------------------------------------------------------------------
def test_range_is_a_serial_loop_with_its_step() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            for i in range(2, 10, 3):
                A[i] = i
            for i in range(9, 0, -4):
                A[i] = i

    assert body_of(program) == lines("""
        serial i.3: i32 in 0 .. 3:
          %A.1[(2 + (i.3 * 3))] = (2 + (i.3 * 3))
        serial i.4: i32 in 0 .. 3:
          %A.1[(9 + (i.4 * -4))] = (9 + (i.4 * -4))
    """)


def test_while_break_and_continue() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            i = T.alloc_var(T.int32)
            while i < 10 and A[i] != 0:
                i += 1
                if A[i] == 3:
                    continue
                if A[i] == 4:
                    break

    assert body_of(program) == lines("""
        while ((%i.3[0] < 10) and (%A.1[%i.3[0]] != 0)):
          %i.3[0] = (%i.3[0] + 1)
          if (%A.1[%i.3[0]] == 3):
            continue
          if (%A.1[%i.3[0]] == 4):
            break
    """)


def test_a_while_whose_condition_needs_a_statement_tests_it_in_the_loop() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            while T.atomic_add(A[0], 1, return_prev=True) < 5:
                A[1] += 1

    assert body_of(program) == lines("""
        while true:
          previous.3 = atomic.add %A.1[0 : +1], 1 relaxed
          if not((previous.3 < 5)):
            break
          %A.1[1] = (%A.1[1] + 1)
    """)


def test_statements_after_break_are_dropped_with_a_warning() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            for i in range(3):
                if A[i] > 0:
                    break
                    A[i] = 1

    with pytest.warns(UserWarning, match="statements after break"):
        text = body_of(program)
    assert "= 1" not in text


def test_nested_parallel_loops_become_one_nest() -> None:
    def program(A):
        M, N = T.const("M, N")
        A: T.Tensor((M, N), T.int32)
        with T.Kernel(1):
            for i in T.Parallel(4):
                for j in T.Parallel(8):
                    A[i, j] = i + j

    assert body_of(program) == lines("""
        parallel i.4, j.5 in [4, 8]:
          %A.2[i.4, j.5] = (i.4 + j.5)
    """)


def test_a_comprehension_over_range_runs_in_python() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            parts = [T.alloc_fragment((4,), T.int32) for _ in range(2)]
            T.copy(parts[0], parts[1])

    assert body_of(program) == "copy %parts.3[0 : +4] -> %fragment.4[0 : +4]"


# -- functions -----------------------------------------------------------------------------------------
def test_helpers_closures_and_globals_are_plain_python() -> None:
    offset = 5

    def helper(x):
        return x * SCALE + offset

    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)

        def local(x):
            return helper(x) + 1

        with T.Kernel(1) as bx:
            A[bx] = local(bx)

    assert body_of(program) == "%A.1[bx.2] = (((bx.2 * 3) + 5) + 1)"


def test_a_macro_is_inlined_with_names_of_its_own() -> None:
    @T.macro
    def clipped(x, limit):
        y = T.min(x, limit)
        if y < 0:
            T.device_assert(y > -9)
        return y * 2

    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            y = A[0]
            A[1] = clipped(A[2], 10) + y

    assert body_of(program) == lines("""
        let y.3: i32 = %A.1[0]
        let x.4: i32 = %A.1[2]
        if (min(x.4, 10) < 0):
          assert (min(x.4, 10) > -9) ''
        %A.1[1] = ((min(x.4, 10) * 2) + y.3)
    """)


def test_a_macro_changes_what_it_gets_by_reference() -> None:
    @T.macro
    def bump(x: T.Ref, y: T.Ref, by):
        x += by
        y = x

    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            total = T.alloc_var(T.int32, 0)
            bump(total, A[3], total + 1)

    assert body_of(program) == lines("""
        let by.4: i32 = (%total.3[0] + 1)
        %total.3[0] = (%total.3[0] + by.4)
        %A.1[3] = %total.3[0]
    """)


def test_a_macro_may_be_a_method_and_may_take_defaults() -> None:
    class Scaler:
        factor = 4

        @T.macro
        def scale(self, buffer, i, extra=1):
            buffer[i] = buffer[i] * self.factor + extra

    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1) as bx:
            Scaler().scale(A, bx)

    assert body_of(program) == "%A.1[bx.2] = ((%A.1[bx.2] * 4) + 1)"


def test_a_macro_cannot_stand_in_a_lazy_operand() -> None:
    @T.macro
    def positive(x):
        return x > 0

    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            if A[0] > 1 and positive(A[1]):
                A[0] = 0

    with pytest.raises(ProgramValueError, match="cannot be inside"):
        body_of(program)


def test_a_loop_in_a_plain_helper_says_to_use_a_macro() -> None:
    def helper(A):
        for i in T.serial(4):
            A[i] = 0

    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            helper(A)

    with pytest.raises(ProgramSyntaxError, match=r"@T\.macro"):
        body_of(program)


# -- checks ----------------------------------------------------------------------------------------------
def test_an_assert_on_sizes_is_checked_on_the_host_and_one_on_data_on_the_device() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        assert N % 4 == 0, "N must be a multiple of 4"
        with T.Kernel(1) as bx:
            assert A[bx] < 3

    text = text_of(program)
    assert "N must be a multiple of 4" in text
    assert "assert (%A.1[bx.2] < 3) 'assertion failed'" in text
    with pytest.raises(AssertionError, match="N must be a multiple of 4"):
        text_of(program, {"N": 6})


def test_an_exec_defined_program_says_that_it_has_no_source() -> None:
    names: dict[str, object] = {"T": T}
    exec("def program(A):\n    with T.Kernel(1):\n        pass\n", names)
    with pytest.raises(ProgramSyntaxError, match="source of `program` cannot be found"):
        body_of(names["program"])


def test_a_value_of_another_program_is_refused() -> None:
    kept = []

    def first(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1) as bx:
            kept.append(bx)
            A[bx] = 0

    def second(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            A[kept[0]] = 0

    body_of(first)
    with pytest.raises(ProgramError, match="belongs to another program"):
        body_of(second)


def test_len_of_a_buffer_names_its_shape() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            A[len(A)] = 0

    with pytest.raises(ProgramTypeError, match=r"A\.shape\[0\]"):
        body_of(program)
