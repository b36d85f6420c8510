"""``_nuts_trees.grow`` as a C++ program, instead of a hundred operations a leapfrog step.

On a CPU it calls a density that is a C++ function itself, block by block; for others there is a call before and one after
each evaluation. Made by PyTorch's own loaders of compiled code when a run with ``--compile`` begins: for a CPU by the C++ compiler, for
a GPU by NVRTC, which comes with PyTorch, a thread for every row. For diagonal masses. Sums are in another order than
PyTorch's: the last digits differ.
"""

import ctypes
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from parvibench.core.task import Problem

from . import _nuts_trees
from ._chains import MAX_ENERGY_ERROR
from ._nuts_trees import _LOW, Numbers, Randomness, Trees

#: Arrays of the chains and of the block of leapfrog steps, in the order of the C++ struct; then its numbers.
_ARRAYS = [*Trees._fields, "y", "scale", "lengths", "gained", "uniform", "momenta"]
_NUMBERS = ["length", "rows", "chains", "dim", "size", "max_depth", "turns"]

_SOURCE = (
    f"""
enum {{ {", ".join(Numbers._fields)}, FIELDS }};
#ifdef __CUDACC_RTC__
#define FN __device__
#define ones_of __popcll
#define zeros_of(x) (__ffsll(x) - 1)
typedef long long int64_t;
#else
#include <cmath>
#include <cstdint>
#include <vector>
#define FN inline
#define ones_of __builtin_popcountll
#define zeros_of __builtin_ctzll
using std::exp, std::fabs, std::isfinite, std::log, std::log1p;
#endif
template <class T> struct Block {{ T *{", *".join(_ARRAYS)}; int64_t *begun, {", ".join(_NUMBERS)}; }};
#define LOW T({_LOW})
#define LOST T({-MAX_ENERGY_ERROR})
#define TINY T(sizeof(T) == 4 ? {torch.finfo(torch.float32).tiny} : {torch.finfo(torch.float64).tiny})
"""
    + r"""
template <class T> FN T larger(T a, T b) { return a > b ? a : b; }
template <class T> FN T add_logs(T a, T b) { return larger(a, b) + log1p(exp(-fabs(a - b))); }
template <class T> FN void copy(const T* from, T* to, int64_t n) { for (int64_t i = 0; i < n; i++) to[i] = from[i]; }
template <class T> FN void swap(T* a, T* b, int64_t n) { for (int64_t i = 0; i < n; i++) { T x = a[i]; a[i] = b[i], b[i] = x; } }

// Row m: a new tree where one is due, then the first half of a leapfrog step.
template <class T> FN void start(const Block<T>& b, int64_t m) {
  const int64_t D = b.dim;
  T *f = b.table + m * FIELDS, *e = b.ends + m * 6 * D, *total = b.total + m * D, *slots = b.slots + m * b.size * 3 * D;
  if (f[fresh] > 0) {
    const T *drawn = b.draws + (m * 6 + 2) * D, *momentum = b.momenta + (b.begun[m]++ * b.rows + m) * D;
    T squares = 0;
    for (int64_t d = 0; d < D; d++) {
      e[d] = e[3 * D + d] = drawn[d], e[D + d] = e[4 * D + d] = drawn[D + d];
      e[2 * D + d] = e[5 * D + d] = total[d] = slots[d] = slots[D + d] = momentum[d], slots[2 * D + d] = 0;
      squares += momentum[d] * momentum[d];
    }
    f[energy] = squares / 2 - f[density], f[weight] = f[accepted] = f[leaves] = f[depth] = f[fresh] = 0;
    f[direction] = 1, f[step] = b.lengths[m / b.chains];
  }
  T *slot = slots + (1 + ones_of(int64_t(f[leaf]))) * 3 * D, *p = e + 2 * D, h = f[direction] * f[step];
  const T* scale = b.scale + m / b.chains * D;
  for (int64_t d = 0; d < D; d++) {
    slot[D + d] = p[d], slot[2 * D + d] = total[d];
    p[d] += h * scale[d] / 2 * e[D + d];
    b.y[m * D + d] = e[d] += h * scale[d] * p[d];
  }
}

// a and c are what is held of the first leaves of both halves; see _turned.
template <class T> FN bool turned(const T* a, const T* c, const T* end, const T* total, int64_t D) {
  T s[6] = {};
  for (int64_t d = 0; d < D; d++) {
    T whole = total[d] - a[2 * D + d], front = c[2 * D + d] - a[2 * D + d] + c[d], back = total[d] - c[2 * D + d] + c[D + d];
    s[0] += a[d] * whole, s[1] += end[d] * whole, s[2] += a[d] * front, s[3] += c[d] * front;
    s[4] += c[D + d] * back, s[5] += end[d] * back;
  }
  return !(s[0] > 0 && s[1] > 0 && s[2] > 0 && s[3] > 0 && s[4] > 0 && s[5] > 0);
}

// Row m: the other half of step k, and what its leaf means for the tree; how many trees the row will have begun.
template <class T> FN int64_t finish(const Block<T>& b, const T* values, const T* scores, int64_t k, int64_t m) {
  const int64_t D = b.dim;
  T *f = b.table + m * FIELDS, *e = b.ends + m * 6 * D, *p = e + 2 * D, *draws = b.draws + m * 6 * D;
  T *slots = b.slots + m * b.size * 3 * D, *total = b.total + m * D, h = f[direction] * f[step], squares = 0;
  const T *gumbel = b.uniform + k * b.rows + m, *join = gumbel + b.length * b.rows, *way = join + b.length * b.rows;
  const int64_t number = f[leaf], ones = ones_of(number);
  const T *scale = b.scale + m / b.chains * D, value = values[m];
  for (int64_t d = 0; d < D; d++) {
    e[D + d] = scores[m * D + d];
    p[d] += h * scale[d] / 2 * e[D + d];
    squares += p[d] * p[d], total[d] += slots[(1 + ones) * 3 * D + d] = p[d];
  }
  T log_weight = -squares / 2 + value + f[energy];
  if (!isfinite(log_weight)) log_weight = LOW;
  const T probability = exp(-larger(-log_weight, T(0))), key = log_weight - log(-log(larger(*gumbel, TINY)));
  f[accepted] += probability, b.gained[m] += probability, f[leaves] += 1;
  f[branch] = add_logs(f[branch], log_weight);
  if (key > f[best]) f[best] = key, f[drawn_density] = value, copy(e, draws, 2 * D);
  f[leaf] += 1;
  const bool last = f[leaf] == T(int64_t(1) << int64_t(f[depth])), lost = log_weight < LOST;
  bool broken = lost, closed = false;
  for (int64_t place = ones, i = zeros_of(number + 1) + last; i > 0 && !broken; i--, place--)
    if (turned(slots + place * 3 * D, slots + (place + 1) * 3 * D, p, total, D)) closed = true, broken = place > 0;
  if (!last && !broken) return 0;
  if (!broken) {
    if (log(*join) < f[branch] - f[weight]) copy(draws, draws + 2 * D, 2 * D), f[density] = f[drawn_density];
    f[weight] = add_logs(f[weight], f[branch]);
  }
  f[depth] += 1, f[leaf] = 0, f[best] = f[branch] = LOW;
  if (!broken && !closed && f[depth] < b.max_depth) {
    if ((*way < 0.5) != (f[direction] < 0)) copy(p, slots, D), swap(e, e + 3 * D, 3 * D), f[direction] *= -1;
    return 0;
  }
  f[fresh] = 1, f[acceptance] = f[accepted] / f[leaves], f[doublings] = f[depth], f[diverged] = lost;
  if (b.turns) swap(draws + 2 * D, draws + 4 * D, 2 * D), swap(f + density, f + waiting_density, 1);
  return b.begun[m] + 1;
}
#ifdef __CUDACC_RTC__
#define EACH(T, call) int64_t m = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; if (m < ((Block<T>*)b)->rows) call
#define PROGRAM(T, size) \
  extern "C" __global__ void start##size(void* b) { EACH(T, start(*(Block<T>*)b, m)); } \
  extern "C" __global__ void finish##size(void* b, T* v, T* s, int k) { EACH(T, finish(*(Block<T>*)b, v, s, k, m)); }
#else
extern "C" int aoti_torch_new_tensor_handle(void*, void**), aoti_torch_get_data_ptr(void*, void**), aoti_torch_delete_tensor_object(void*);

// Steps from number k on by a density in C++, of handles of b.y and of its constants, until the block ends or a row needs
// another than the ``drawn`` first momenta; the number of the step that follows, or -1 where the density fails.
template <class T> int64_t run(
    const Block<T>& b, void (*density)(void**, void**), void** held, int64_t count, int64_t k, int64_t drawn) try {
  std::vector<void*> given(count);
  for (int64_t most = 0; k < b.length && most <= drawn; k++) {
    void *found[2], *data[2];
    for (int64_t m = 0; m < b.rows; m++) start(b, m);
    for (int64_t i = 0; i < count; i++) aoti_torch_new_tensor_handle(held[i], &given[i]);
    density(given.data(), found);
    for (int i = 0; i < 2; i++) aoti_torch_get_data_ptr(found[i], data + i);
    for (int64_t m = 0; m < b.rows; m++) most = larger(most, finish(b, (T*)data[0], (T*)data[1], k, m));
    for (void* a : found) aoti_torch_delete_tensor_object(a);
  }
  return k;
} catch (...) { return -1; }
#define EACH(T, call) for (int64_t m = 0; m < ((Block<T>*)b)->rows; m++) call
#define PROGRAM(T, size) \
  extern "C" void start##size(void* b) { EACH(T, start(*(Block<T>*)b, m)); } \
  extern "C" int64_t finish##size(void* b, T* v, T* s, int64_t k) { \
    int64_t most = 0; EACH(T, most = larger(most, finish(*(Block<T>*)b, v, s, k, m))); return most; } \
  extern "C" int64_t run##size(void* b, void* f, void* held, int64_t n, int64_t k, int64_t drawn) { \
    return run(*(Block<T>*)b, (void (*)(void**, void**))f, (void**)held, n, k, drawn); }
#endif
PROGRAM(float, 4) PROGRAM(double, 8)
"""
)
#: Rows of a block of threads: few, so that a hundred chains are spread over a GPU.
_THREADS = 32


@cache
def program(device: str, size: int) -> list[Callable[..., Any]]:
    """``start`` and ``finish`` for numbers of ``size`` bytes, given the rows, the block, and as the source says; ``run`` on a CPU."""
    names = [f"start{size}", f"finish{size}", f"run{size}"]
    if device == "cuda":
        return [partial(_on_card, torch.cuda._compile_kernel(_SOURCE, name)) for name in names[:2]]
    from torch._inductor.codecache import CppCodeCache

    # Compiled where the cache of the compiler has none. A density in C++ gives up Python's lock, so that this call must not.
    library = ctypes.PyDLL(CppCodeCache.load(_SOURCE)._name)
    found = [getattr(library, name) for name in names]
    for function, pointers, numbers in zip(found, (1, 3, 3), (0, 1, 3), strict=True):
        function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_int64] * numbers
        function.restype = ctypes.c_int64
    return [partial(_on_cpu, function) for function in found]


def _on_cpu(run: Callable[..., int], rows: int, *given: Tensor | int) -> int:
    return run(*(a.data_ptr() if isinstance(a, Tensor) else a for a in given))


def _on_card(run: Callable[..., None], rows: int, *given: Tensor | int) -> None:
    run(grid=(-(-rows // _THREADS), 1, 1), block=(_THREADS, 1, 1), args=list(given))


def grow(
    trees: Trees, problem: Problem, scale: Tensor, steps: Tensor, random: Randomness, max_depth: int, turns: bool
) -> tuple[Trees, Tensor]:
    """The result of ``_nuts_trees.grow``, which is called for dense masses and for a GPU without NVRTC (PyTorch < 2.8)."""
    if scale.dim() == 3 or (scale.is_cuda and not hasattr(torch.cuda, "_compile_kernel")):
        return _nuts_trees.grow(trees, problem, scale, steps, random, max_depth, turns)
    replicates, n, _, dim = trees.ends.shape
    width, K, device = replicates * n, random.uniform.shape[1], trees.table.device
    new = Trees(*(a.clone(memory_format=torch.contiguous_format) for a in trees))
    density = problem.compiled(new.total)
    y = density.points if density else new.total.clone()
    momenta, gained = scale.new_empty(K, width, dim), scale.new_zeros(width)
    begun = torch.zeros(width, dtype=torch.int64, device=device)
    arrays = [*new, y, scale.contiguous(), steps.contiguous(), gained, random.uniform.contiguous(), momenta, begun]
    block = torch.tensor([*(a.data_ptr() for a in arrays), K, width, n, dim, trees.slots.shape[2], max_depth, turns])
    if device.type == "cuda":
        block = block.pin_memory().to(device, non_blocking=True)
    start, finish, *run = program(device.type, trees.table.element_size())

    def evaluated(k: int, drawn: int) -> int:
        """Steps from number k on, as those of ``run``; on a GPU all, without waiting for what it would answer."""
        most = 0
        while k < K and most <= drawn:
            start(width, block)
            found = problem.log_density_and_score(y)  # asking first takes less than a conversion that changes nothing
            value, score = (
                a if a.dtype is y.dtype and a.is_contiguous() else a.to(y.dtype).contiguous() for a in found
            )
            most = finish(width, block, value, score, k) or 0
            k += 1
        return k

    k = drawn = 0
    for _ in range(K if density else 0):
        problem.meter.charge(scores=n, log_densities=n)
    while 0 <= k < K:
        known = K if device.type == "cuda" else drawn + 1
        for number in range(drawn, known):
            momenta[number] = random.momentum(number)
        drawn = known
        if density:
            k = run[0](width, block, density.entry, density.handles, len(density.handles), k, drawn)
        else:
            k = evaluated(k, drawn)
    if k < 0:
        raise RuntimeError("the compiled density failed")
    return new, gained.view(replicates, n)
