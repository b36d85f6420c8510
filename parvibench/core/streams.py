"""Stateless randomness: every draw has an address, and no generator is stored from step to step.

Block ``b`` of stream ``s`` of replicate ``r`` comes from a generator seeded by ``hash(seed, s, r, b)``. A block holds
the draws of several consecutive steps; how many depends on the shape alone. So a run resumes from its step number,
replicates do not depend on how many others run next to them, and two algorithms that draw the same shapes see the same
noise (common random numbers).

Streams in use: ``init``, ``noise``, ``data``, ``batch``, ``algorithm``, ``output``
(addressed by checkpoint, so measuring never changes a run) and ``metric``. ``init`` and the first ``step``
of an algorithm share step 0: they draw from different streams, or with different indices.
"""

import hashlib
import math
from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

_BLOCK_BYTES = 4 * 2**20
_BLOCK_STEPS = 256
#: Streams drawn from now and then only: a block of theirs holds one step.
_ONE_OFF = frozenset({"init", "output"})


def derive_seed(*parts: object) -> int:
    """Hash the parts to a seed in [0, 2^63); stable across processes and versions.

    PyTorch's CPU generator reads the low 32 bits only: among the 10,000 blocks of a large
    cell some two coincide with probability about 1%, in unrelated steps or replicates.
    """
    text = "\x1f".join(str(p) for p in parts).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


class Streams:
    """Named random streams of a batch of replicates, positioned at a step.

    ``step`` is the address of the draws; the harness moves it, algorithms only read it. The harness mixes the task's
    name into ``seed``; ``replicates`` are ids, in batch order; the bits depend on the kind of ``device``.
    """

    def __init__(
        self,
        seed: int,
        replicates: Sequence[int],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.seed = int(seed)
        self.replicates = tuple(int(r) for r in replicates)
        self.device = torch.device(device)
        self.dtype = dtype
        self.step = 0
        self._generator = Generator(device=self.device)
        self._blocks: dict[tuple, tuple[int, Tensor]] = {}
        self._shuffled: dict[int, tuple[int, Tensor]] = {}

    def normal(self, stream: str, shape: Sequence[int], index: int = 0) -> Tensor:
        """Standard normal draws of the step, ``(R, *shape)``, read only; ``index`` tells apart several of one shape."""
        return self._draw("normal", stream, tuple(shape), index)

    def uniform(self, stream: str, shape: Sequence[int], index: int = 0) -> Tensor:
        """Uniform draws on [0, 1) of the current step, ``(R, *shape)``; read only."""
        return self._draw("uniform", stream, tuple(shape), index)

    def generator(self, stream: str, replicate: int, block: int | str = 0) -> Generator:
        """A fresh CPU generator at address (stream, replicate, block), for draws of any other law."""
        return Generator().manual_seed(derive_seed(self.seed, stream, replicate, block))

    def generators(self, stream: str, block: int | str = 0) -> list[Generator]:
        """One generator per replicate, in batch order."""
        return [self.generator(stream, r, block) for r in self.replicates]

    def permutation(self, stream: str, n: int, block: int) -> Tensor:
        """A random permutation of range(n) per replicate, (R, n), on the batch's device."""
        rows = torch.stack([torch.randperm(n, generator=g) for g in self.generators(stream, f"perm{n}-{block}")])
        if self.device.type == "cuda":
            rows = rows.pin_memory()  # else the copy would wait for the device
        return rows.to(self.device, non_blocking=True)

    def batch(self, rows: int, size: int) -> Tensor:
        """Row indices of the step's mini-batch, (R, size), size < rows, read only; each epoch is a fresh shuffle."""
        epoch, place = divmod(self.step, rows // size)
        held = self._shuffled.get(rows)
        if held is None or held[0] != epoch:
            held = self._shuffled[rows] = (epoch, self.permutation("batch", rows, epoch))
        return held[1][:, place * size : (place + 1) * size]

    def _draw(self, law: str, stream: str, shape: tuple[int, ...], index: int) -> Tensor:
        numel = max(1, math.prod(shape))
        steps = 1 if stream in _ONE_OFF else max(1, min(_BLOCK_STEPS, _BLOCK_BYTES // (4 * numel)))
        number, row = divmod(self.step, steps)
        key = (law, stream, shape, index)
        held = self._blocks.get(key)
        if held is None or held[0] != number:
            held = (number, self._fill(law, stream, (steps, *shape), index, number))
            self._blocks[key] = held
        return held[1][row]

    def _fill(self, law: str, stream: str, shape: tuple[int, ...], index: int, number: int) -> Tensor:
        draw: Callable[..., Tensor] = torch.randn if law == "normal" else torch.rand
        address = (law, stream, "x".join(map(str, shape)), index)
        with torch.inference_mode(False), torch.no_grad():
            rows = [
                draw(
                    shape,
                    generator=self._generator.manual_seed(derive_seed(self.seed, *address, r, number)),
                    device=self.device,
                    dtype=self.dtype,
                )
                for r in self.replicates
            ]
            # (steps, R, *shape): the draws of one step lie together.
            return torch.stack(rows, dim=1)
