#!/usr/bin/env bash
# torchsde 0.2.6: which seed the Brownian motion of `sdeint` follows.
# Guess: PyTorch's: two runs after `torch.manual_seed(0)` are the same path. Seen: they differ; the entropy is drawn from NumPy's global
# generator, so that `np.random.seed(0)` repeats the path, and every other use of that generator changes it.
. "$(dirname "$0")/_packages.sh" torchsde==0.2.6 torch==2.13.0 numpy==2.4.6
"$python" - <<'PY'
import numpy as np, torch, torchsde


class Ornstein(torch.nn.Module):
    noise_type, sde_type = "diagonal", "ito"
    f = staticmethod(lambda t, y: -y)
    g = staticmethod(lambda t, y: torch.ones_like(y))


def ends(seed):
    for _ in range(2):
        seed(0)
        yield torchsde.sdeint(Ornstein(), torch.zeros(1, 1), torch.tensor([0.0, 1.0]), dt=0.1)[-1].item()


of_torch, of_numpy = list(ends(torch.manual_seed)), list(ends(np.random.seed))
print("torch.manual_seed(0) twice:", of_torch, "np.random.seed(0) twice:", of_numpy)
raise SystemExit(not (of_torch[0] != of_torch[1] and of_numpy[0] == of_numpy[1]))
PY
