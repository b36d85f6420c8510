"""``_nuts_trees.grow`` as a C++ program: one call before and one after each evaluation, instead of a hundred operations.

Made by PyTorch's own loader of compiled code when a run with ``--compile`` begins. For diagonal masses on a CPU. Sums
are in another order than PyTorch's: the last digits differ.
"""

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from . import _nuts_trees
from ._nuts_trees import _LOW, MAX_ENERGY_ERROR, Evaluate, Numbers, Randomness, Trees

#: Arrays of the chains, of the block and of this leapfrog step, in the order of the C++ struct; then its numbers.
_ARRAYS = [
    "ends",
    "draws",
    "total",
    "slots",
    "table",
    "y",
    "scale",
    "lengths",
    "gained",
    "gumbel",
    "join",
    "way",
    "value",
    "score",
]
_NUMBERS = ["rows", "chains", "dim", "size", "max_depth", "turns"]

_SOURCE = (
    f"""
#include <algorithm>
#include <cmath>
#include <cstdint>
enum {{ {", ".join(Numbers._fields)}, FIELDS }};
template <class T> struct Block {{ T *{", *".join(_ARRAYS)}; T **momenta; int64_t *begun, {", ".join(_NUMBERS)}; }};
const double LOW = {_LOW}, LOST = {-MAX_ENERGY_ERROR};
"""
    + r"""
template <class T> T add_logs(T a, T b) { return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))); }

// New trees, then the first half of a leapfrog step.
template <class T> void start(const Block<T>& b) {
  for (int64_t m = 0, D = b.dim; m < b.rows; m++) {
    T *f = b.table + m * FIELDS, *e = b.ends + m * 6 * D, *total = b.total + m * D, *slots = b.slots + m * b.size * 3 * D;
    if (f[fresh] > 0) {
      const T *drawn = b.draws + (m * 6 + 2) * D, *momentum = b.momenta[b.begun[m]++] + m * D;
      T squares = 0;
      for (int64_t d = 0; d < D; d++) {
        e[d] = e[3 * D + d] = drawn[d], e[D + d] = e[4 * D + d] = drawn[D + d];
        e[2 * D + d] = e[5 * D + d] = total[d] = slots[d] = slots[D + d] = momentum[d], slots[2 * D + d] = 0;
        squares += momentum[d] * momentum[d];
      }
      f[energy] = squares / 2 - f[density], f[weight] = f[accepted] = f[leaves] = f[depth] = f[fresh] = 0;
      f[direction] = 1, f[step] = b.lengths[m];
    }
    T *slot = slots + (1 + __builtin_popcountll(int64_t(f[leaf]))) * 3 * D, *p = e + 2 * D, h = f[direction] * f[step];
    const T* scale = b.scale + m / b.chains * D;
    for (int64_t d = 0; d < D; d++) {
      slot[D + d] = p[d], slot[2 * D + d] = total[d];
      p[d] += h * scale[d] / 2 * e[D + d];
      b.y[m * D + d] = e[d] += h * scale[d] * p[d];
    }
  }
}

// a and c are what is held of the first leaves of both halves; see _turned.
template <class T> bool turned(const T* a, const T* c, const T* end, const T* total, int64_t D) {
  T s[6] = {};
  for (int64_t d = 0; d < D; d++) {
    T whole = total[d] - a[2 * D + d], front = c[2 * D + d] - a[2 * D + d] + c[d], back = total[d] - c[2 * D + d] + c[D + d];
    s[0] += a[d] * whole, s[1] += end[d] * whole, s[2] += a[d] * front, s[3] += c[d] * front;
    s[4] += c[D + d] * back, s[5] += end[d] * back;
  }
  return !std::all_of(s, s + 6, [](T x) { return x > 0; });
}

// The other half of step k, and what its leaf means for the tree; the most trees begun in this block by one that is to.
template <class T> int64_t finish(const Block<T>& b, int64_t k) {
  int64_t most = 0, D = b.dim;
  for (int64_t m = 0; m < b.rows; m++) {
    T *f = b.table + m * FIELDS, *e = b.ends + m * 6 * D, *p = e + 2 * D, *draws = b.draws + m * 6 * D;
    T *slots = b.slots + m * b.size * 3 * D, *total = b.total + m * D, h = f[direction] * f[step], squares = 0;
    const int64_t number = f[leaf], ones = __builtin_popcountll(number);
    const T* scale = b.scale + m / b.chains * D;
    for (int64_t d = 0; d < D; d++) {
      e[D + d] = b.score[m * D + d];
      p[d] += h * scale[d] / 2 * e[D + d];
      squares += p[d] * p[d], total[d] += slots[(1 + ones) * 3 * D + d] = p[d];
    }
    T log_weight = -squares / 2 + b.value[m] + f[energy];
    if (!std::isfinite(log_weight)) log_weight = LOW;
    const T probability = std::exp(std::min(log_weight, T(0))), key = log_weight + b.gumbel[k * b.rows + m];
    f[accepted] += probability, b.gained[m] += probability, f[leaves] += 1;
    f[branch] = add_logs(f[branch], log_weight);
    if (key > f[best]) f[best] = key, f[drawn_density] = b.value[m], std::copy(e, e + 2 * D, draws);
    f[leaf] += 1;
    const bool last = f[leaf] == (int64_t(1) << int64_t(f[depth])), lost = log_weight < LOST;
    bool broken = lost, closed = false;
    for (int64_t place = ones, i = __builtin_ctzll(number + 1) + last; i > 0 && !broken; i--, place--)
      if (turned(slots + place * 3 * D, slots + (place + 1) * 3 * D, p, total, D)) closed = true, broken = place > 0;
    if (!last && !broken) continue;
    if (!broken) {
      if (b.join[k * b.rows + m] < f[branch] - f[weight])
        std::copy(draws, draws + 2 * D, draws + 2 * D), f[density] = f[drawn_density];
      f[weight] = add_logs(f[weight], f[branch]);
    }
    f[depth] += 1, f[leaf] = 0, f[best] = f[branch] = LOW;
    if (!broken && !closed && f[depth] < b.max_depth) {
      if (b.way[k * b.rows + m] != f[direction]) {
        std::copy(p, p + D, slots), std::swap_ranges(e, e + 3 * D, e + 3 * D);
        f[direction] = b.way[k * b.rows + m];
      }
      continue;
    }
    f[fresh] = 1, f[acceptance] = f[accepted] / f[leaves], f[doublings] = f[depth], f[diverged] = lost;
    if (b.turns) std::swap_ranges(draws + 2 * D, draws + 4 * D, draws + 4 * D), std::swap(f[density], f[waiting_density]);
    most = std::max(most, b.begun[m] + 1);
  }
  return most;
}
extern "C" void start4(void* b) { start(*(Block<float>*)b); }
extern "C" void start8(void* b) { start(*(Block<double>*)b); }
extern "C" int64_t finish4(void* b, int64_t k) { return finish(*(Block<float>*)b, k); }
extern "C" int64_t finish8(void* b, int64_t k) { return finish(*(Block<double>*)b, k); }
"""
)


class _Block(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in (*_ARRAYS, "momenta", "begun")] + [
        (name, ctypes.c_int64) for name in _NUMBERS
    ]


@cache
def program() -> Any:
    """The library, compiled where the cache of the compiler has none."""
    from torch._inductor.codecache import CppCodeCache

    return CppCodeCache.load(_SOURCE)


def grow(
    trees: Trees, evaluate: Evaluate, scale: Tensor, steps: Tensor, random: Randomness, max_depth: int, turns: bool
) -> tuple[Trees, Tensor]:
    """As ``_nuts_trees.grow``, which takes dense masses."""
    if scale.dim() == 3:
        return _nuts_trees.grow(trees, evaluate, scale, steps, random, max_depth, turns)
    replicates, n, _, dim = trees.ends.shape
    width, K, size = replicates * n, len(random.gumbel), trees.table.element_size()
    new = Trees(*(a.clone(memory_format=torch.contiguous_format) for a in trees))
    given = [a.contiguous() for a in (scale, steps.repeat_interleave(n), new.table.new_zeros(width), *random[:3])]
    y, begun = new.total.new_empty(width, dim), torch.zeros(width, dtype=torch.int64)
    block = _Block(*(a.data_ptr() for a in (*new, y, *given)))
    momenta = (ctypes.c_void_p * K)()
    drawn: list[Tensor] = []
    block.momenta, block.begun = ctypes.addressof(momenta), begun.data_ptr()
    block.rows, block.chains, block.dim, block.size = width, n, dim, trees.slots.shape[2]
    block.max_depth, block.turns = max_depth, turns
    start, finish = (getattr(program(), f"{name}{size}") for name in ("start", "finish"))
    at, most = ctypes.byref(block), 1
    for k in range(K):
        for number in range(len(drawn), most):
            drawn.append(random.momentum(number).contiguous())
            momenta[number] = drawn[-1].data_ptr()
        start(at)
        value, score = (a.to(y.dtype).contiguous() for a in evaluate(y))
        block.value, block.score = value.data_ptr(), score.data_ptr()
        most = finish(at, ctypes.c_int64(k))
    return new, given[2].view(replicates, n).mean(1) / K
