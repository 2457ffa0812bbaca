"""The programs whose warm start is measured: each is a text for its own process.

A text imports torch first and makes its inputs, so that what is timed begins with the import of the
system under test. Before that it collects garbage: a full collection walks all that torch has
imported, 0.1 s, and would fall into one part or another as the number of objects has it. It prints
one JSON object: seconds by part.
"""

HEAD = """
import gc, json, sys, time
import torch
cuda = torch.cuda.is_available()
device = "cuda" if cuda else "cpu"
wait = torch.cuda.synchronize if cuda else (lambda: None)
a, b = (torch.randn(512, 512, device=device).half() for _ in range(2))
want = (a.float() @ b.float()).relu()
wait()
gc.collect()
start = time.perf_counter()
"""
TAIL = """
wait()
called = time.perf_counter()
run()
wait()
again = time.perf_counter() - called
assert (c.float() - want).norm() < 1e-3 * want.norm(), "wrong result"
print(json.dumps({
    "import": imported - start, "define": defined - imported,
    "first call": called - defined - again, "all": called - start - again, **more(),
}))
"""

MATMUL = """
@tileops.jit
def matmul_relu(A, B, block_M: int = 128, block_N: int = 128, block_K: int = 32):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_s = T.alloc_shared((block_M, block_K), T.float16)
        B_s = T.alloc_shared((block_K, block_N), T.float16)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
            T.copy(A[by * block_M, k * block_K], A_s)
            T.copy(B[k * block_K, bx * block_N], B_s)
            T.gemm(A_s, B_s, acc)
        for i, j in T.Parallel(block_M, block_N):
            acc[i, j] = T.max(acc[i, j], 0)
        T.copy(acc, C[by * block_M, bx * block_N])
    return C
"""

TILEOPS = (
    HEAD
    + "import tileops\nimport tileops.language as T\nimported = time.perf_counter()\n"
    + MATMUL
    + """
run = lambda: matmul_relu(a, b)
defined = time.perf_counter()
c = run()
def more():
    stats = tileops.stats()
    wrong = [m for m in sys.modules if m.split(".")[0] == "triton" or "tileops.compiler" in m]
    assert not stats["compiles"] or sys.argv[1:] == ["cold"], stats
    assert not wrong or sys.argv[1:] == ["cold"], wrong
    return {name: ms * 1e-3 for name, ms in stats["ms"].items()}
"""
    + TAIL
)

TRITON = (
    HEAD
    + """
import triton, triton.language as tl
imported = time.perf_counter()
@triton.jit
def kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        deep = k + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + deep[None, :])
        right = tl.load(b + deep[:, None] * N + columns[None, :])
        acc = tl.dot(left, right, acc)
    out = c + rows[:, None] * N + columns[None, :]
    tl.store(out, tl.maximum(acc, 0.0).to(tl.float16))
def run():
    c = torch.empty(512, 512, device=device, dtype=torch.float16)
    kernel[(4, 4)](a, b, c, 512, 512, 512, 128, 128, 32, num_warps=4, num_stages=3)
    return c
more = dict
defined = time.perf_counter()
c = run()
"""
    + TAIL
)

TILELANG = (
    HEAD
    + "import tilelang as tileops\nimport tilelang.language as T\nimported = time.perf_counter()\n"
    + MATMUL
    + """
run = lambda: matmul_relu(a, b)
more = dict
defined = time.perf_counter()
c = run()
"""
    + TAIL
)

# The same artifact without a GPU: neither side loads it.
TILEOPS_ARTIFACT = (
    "import gc, json, sys, time\nimport torch\ngc.collect()\nstart = time.perf_counter()\n"
    "import tileops\nimport tileops.language as T\nimported = time.perf_counter()\n"
    + MATMUL.replace("@tileops.jit\n", '@tileops.jit(target="cuda:sm_90")\n')
    + """
defined = time.perf_counter()
kernel = matmul_relu.compile(M=512, N=512, K=512)
called = time.perf_counter()
assert kernel.artifact.files["launch0.cubin"]
print(json.dumps({
    "import": imported - start, "define": defined - imported, "first call": called - defined,
    "all": called - start,
}))
"""
)
TRITON_ARTIFACT = (
    "import gc, json, sys, time\nimport torch\ngc.collect()\nstart = time.perf_counter()\n"
    + TRITON[TRITON.index("import triton,") : TRITON.index("def run()")]
    + """
from triton.backends.compiler import GPUTarget
defined = time.perf_counter()
types = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"}
blocks = {"BM": 128, "BN": 128, "BK": 32}
source = triton.compiler.ASTSource(
    kernel, {**types, **dict.fromkeys(blocks, "constexpr")}, blocks,
    {(n,): [["tt.divisibility", 16]] for n in range(6)},
)
found = triton.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": 4, "num_stages": 3})
assert found.asm["cubin"]
called = time.perf_counter()
print(json.dumps({
    "import": imported - start, "define": defined - imported, "first call": called - defined,
    "all": called - start,
}))
"""
)

HUNDRED = """
import json, sys, time
import torch
import tileops
import tileops.language as T

@tileops.jit(out_idx=[-1])
def scaled(N, factor, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * factor

    return main

cuda = torch.cuda.is_available()
x = torch.randn(1000, device="cuda" if cuda else "cpu")
if sys.argv[1:] == ["cold"]:
    scaled.par_compile([(1000, n) for n in range(101)])
scaled(1000, 0)(x)
start = time.perf_counter()
for n in range(1, 101):
    y = scaled(1000, n)(x)
if cuda:
    torch.cuda.synchronize()
seconds = time.perf_counter() - start
assert torch.equal(y, x * 100)
stats = tileops.stats()
assert not stats["compiles"] or sys.argv[1:] == ["cold"], stats
print(json.dumps({"all": seconds}))
"""
