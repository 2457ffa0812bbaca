"""Programs of single threads that break one rule each; golden files hold their errors."""

from __future__ import annotations

import tileops.language as T
from tests.frontend.registry import bad
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError


@bad(ProgramValueError)
def shuffle_of_a_width_that_is_not_a_power_of_two(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        A[tx] = T.shfl_xor(A[tx], 1, width=12)


@bad(ProgramTypeError)
def shuffle_from_a_lane_of_a_float(A):
    A: T.Tensor((32,), T.float32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        A[tx] = T.shfl_sync(A[tx], A[tx])


@bad(ProgramTypeError)
def vote_on_a_float(A):
    A: T.Tensor((32,), T.float32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        A[tx] = T.any_sync(A[tx])


@bad(ProgramValueError)
def vote_of_no_lane(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        A[tx] = T.all_sync(A[tx] > 0, 0)


@bad(ProgramValueError)
def shuffle_inside_a_parallel_loop(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(32):
            A[i] = T.shfl_xor(A[i], 1)


@bad(ProgramValueError)
def reduction_of_a_part_of_a_warp(A):
    A: T.Tensor((48,), T.int32)
    with T.Kernel(1, threads=48):
        tx = T.get_thread_binding()
        A[tx] = T.warp_reduce_sum(A[tx])


@bad(ProgramTypeError)
def bits_of_floats_reduced(A):
    A: T.Tensor((32,), T.float32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        A[tx] = T.warp_reduce_bitor(A[tx])


@bad(UnsupportedConstructError)
def gemm_of_some_threads(A):
    A: T.Tensor((64, 64), T.float16)
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        a = T.alloc_shared((64, 64), T.float16)
        c = T.alloc_fragment((64, 64), T.float32)
        T.copy(A, a)
        if T.shfl_xor(A[0, tx % 64], 1) > 0:
            T.gemm(a, a, c, clear_accum=True)


@bad(UnsupportedConstructError)
def convolution_tile_beside_statements_of_threads(A):
    A: T.Tensor((1, 8, 8, 16), T.float16)
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        a = T.alloc_shared((64, 16), T.float16)
        T.im2col(A, a, 0, 0, 1, 1, 1, 0)
        A[0, 0, 0, tx % 16] = T.shfl_xor(A[0, 0, 0, tx % 16], 1)


@bad(ProgramTypeError)
def matrix_instruction_of_another_shape(A):
    A: T.Tensor((32,), T.float16)
    with T.Kernel(1, threads=32):
        a = T.alloc_local((8,), T.float16)
        c = T.alloc_local((4,), T.float32)
        T.ptx_mma("float32", "m16n8k8", "row", "col", "fp16", "fp16", "fp32", a, 0, a, 0, c, 0)


@bad(ProgramValueError)
def matrix_instruction_with_too_few_words(A):
    A: T.Tensor((32,), T.float16)
    with T.Kernel(1, threads=32):
        a = T.alloc_local((8,), T.float16)
        c = T.alloc_local((4,), T.float32)
        T.ptx_mma("float32", "m16n8k16", "row", "col", "fp16", "fp16", "fp32", a, 0, a, 6, c, 0)


@bad(ProgramValueError)
def matrix_instruction_before_an_array(A):
    A: T.Tensor((32,), T.float16)
    with T.Kernel(1, threads=32):
        a = T.alloc_local((8,), T.float16)
        c = T.alloc_local((4,), T.float32)
        T.ptx_mma("float32", "m16n8k16", "row", "col", "fp16", "fp16", "fp32", a, 0, a, -4, c, 0)


@bad(ProgramValueError)
def matrix_instruction_of_half_a_warp(A):
    A: T.Tensor((32,), T.float16)
    with T.Kernel(1, threads=16):
        a = T.alloc_local((8,), T.float16)
        c = T.alloc_local((4,), T.float32)
        T.ptx_mma("float32", "m16n8k16", "row", "col", "fp16", "fp16", "fp32", a, 0, a, 0, c, 0)


@bad(ProgramTypeError)
def matrix_load_from_a_tensor(A):
    A: T.Tensor((32, 8), T.float16)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        a = T.alloc_local((8,), T.float16)
        T.ptx_ldmatrix("float16", False, 4, ".b16", a, 0, T.address_of(A[tx, 0]))


@bad(ProgramTypeError)
def matrix_load_into_a_shared_tile(A):
    A: T.Tensor((32, 8), T.float16)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        s = T.alloc_shared((8,), T.float16)
        T.ptx_ldmatrix("float16", False, 4, ".b16", s, 0, T.address_of(s[tx]))


@bad(UnsupportedConstructError)
def threads_that_meet_under_a_condition(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        s = T.alloc_shared((32,), T.int32)
        if T.shfl_xor(A[tx], 1) > 0:
            s[tx] = A[tx]
            A[tx] = s[31 - tx]


@bad(UnsupportedConstructError)
def tile_operation_of_some_threads(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        s = T.alloc_shared((32,), T.int32)
        if T.shfl_xor(A[tx], 1) > 0:
            T.copy(A, s)


@bad(UnsupportedConstructError)
def parallel_loop_with_a_value_of_each_thread(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        other = T.shfl_xor(A[tx], 1)
        for i in T.Parallel(32):
            A[i] = other


@bad(UnsupportedConstructError)
def barrier_of_the_block_for_some_threads(A):
    A: T.Tensor((64,), T.int32)
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        A[tx] = T.shfl_xor(A[tx], 1)
        if tx < 32:
            T.sync_threads(0, 32)


@bad(ProgramValueError)
def random_number_before_the_generator_starts(A):
    A: T.Tensor((32,), T.uint32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        A[tx] = T.rng_rand()


@bad(ProgramValueError)
def random_number_of_a_point(A):
    A: T.Tensor((32,), T.uint32)
    with T.Kernel(1, threads=32):
        T.rng_init(1)
        for i in T.Parallel(32):
            A[i] = T.rng_rand()


@bad(ProgramTypeError)
def seed_that_is_a_float(A):
    A: T.Tensor((32,), T.float32)
    with T.Kernel(1, threads=32):
        T.rng_init(A[0])


@bad(UnsupportedConstructError)
def generator_that_is_not_philox(A):
    A: T.Tensor((32,), T.uint32)
    with T.Kernel(1, threads=32):
        T.rng_init(1, generator="curandStateXORWOW_t")


@bad(UnsupportedConstructError)
def normal_random_number(A):
    A: T.Tensor((32,), T.float32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        T.rng_init(1)
        A[tx] = T.rng_rand_float(dist="normal")


@bad(ProgramValueError)
def shuffle_of_64_lanes(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        A[tx] = T.tvm_warp_shuffle(0xFFFFFFFF, A[tx], 0, 32, 64)


@bad(ProgramValueError)
def reduction_over_threads_without_a_reducer(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        T.tvm_thread_allreduce(T.uint32(1), A[tx], True, A[tx], tx)


@bad(ProgramTypeError)
def reduction_over_what_is_not_a_thread_index(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32) as bx:
        tx = T.get_thread_binding()
        with T.attr(T.comm_reducer(lambda x, y: x + y, [0]), "reduce_scope", 0):
            T.tvm_thread_allreduce(T.uint32(1), A[tx], True, A[tx], bx)


@bad(ProgramTypeError)
def reduction_over_threads_into_a_number(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        with T.attr(T.comm_reducer(lambda x, y: x + y, [0]), "reduce_scope", 0):
            T.tvm_thread_allreduce(T.uint32(1), A[tx], True, 5, tx)


@bad(UnsupportedConstructError)
def reduction_of_two_values(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        T.comm_reducer(lambda x, y: x, [0, 1])


@bad(UnsupportedConstructError)
def attribute_of_tir(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32), T.attr(A, "pragma_unroll", 1):
        A[0] = 1


@bad(ProgramTypeError)
def evaluated_number(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        T.evaluate("A")


@bad(ProgramTypeError)
def extern_call_without_a_name(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        T.call_extern("handle", A[0])


@bad(ProgramValueError)
def extern_call_of_what_is_not_a_name(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        T.call_extern("handle", "f(1); g")


@bad(ProgramTypeError)
def extern_call_that_returns_no_dtype(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        T.call_extern("f", dtype=3.5)


@bad(ProgramValueError)
def extern_call_inside_a_parallel_loop(A):
    A: T.Tensor((32,), T.int32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(32):
            T.call_extern("handle", "f", T.address_of(A[i]))


@bad(UnsupportedConstructError)
def address_of_half_a_byte(A):
    A: T.Tensor((32,), T.int4)
    with T.Kernel(1, threads=32):
        T.call_extern("handle", "f", T.address_of(A[0]))


@bad(UnsupportedConstructError)
def barrier_of_the_grid_for_some_threads(A):
    A: T.Tensor((64,), T.int32)
    with T.Kernel(2, threads=32) as bx:
        tx = T.get_thread_binding()
        if A[bx * 32 + tx] > 0:
            T.sync_grid()


@bad(ProgramValueError)
def clusters_that_do_not_divide_the_grid(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(3, cluster_dims=2):
        T.fill(A, 0.0)


@bad(ProgramValueError)
def cluster_of_too_many_blocks(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(16, 16, cluster_dims=(4, 4)):
        T.fill(A, 0.0)


@bad(UnsupportedConstructError)
def barrier_of_the_cluster_for_some_threads(A):
    A: T.Tensor((64,), T.int32)
    with T.Kernel(2, threads=32, cluster_dims=2) as bx:
        tx = T.get_thread_binding()
        if A[bx * 32 + tx] > 0:
            T.cluster_sync()


@bad(ProgramTypeError)
def cluster_copy_to_no_block(A):
    A: T.Tensor((64,), T.int32)
    with T.Kernel(2, threads=32, cluster_dims=2):
        s = T.alloc_shared((64,), T.int32)
        T.copy_cluster(A, s)


@bad(ProgramValueError)
def cluster_copy_past_the_cluster(A):
    A: T.Tensor((64,), T.int32)
    with T.Kernel(2, threads=32, cluster_dims=2):
        s = T.alloc_shared((64,), T.int32)
        T.copy_cluster(A, s, dst_block=2)


@bad(ProgramTypeError)
def cluster_copy_into_a_fragment(A):
    A: T.Tensor((64,), T.int32)
    with T.Kernel(2, threads=32, cluster_dims=2):
        f = T.alloc_fragment((64,), T.int32)
        T.copy_cluster(A, f, dst_block=0)


@bad(ProgramValueError)
def cluster_copy_to_blocks_that_are_not_there(A):
    A: T.Tensor((64,), T.int32)
    with T.Kernel(2, threads=32, cluster_dims=2):
        s = T.alloc_shared((64,), T.int32)
        T.copy_cluster(A, s, cluster_mask=0b110)


@bad(UnsupportedConstructError)
def cluster_copy_with_a_barrier(A):
    A: T.Tensor((64,), T.int32)
    with T.Kernel(2, threads=32, cluster_dims=2):
        s = T.alloc_shared((64,), T.int32)
        T.copy_cluster(s, s, dst_block=0, remote_barrier=1)
