"""A small model trained by torch.distributed on NCCL: each step's averaged gradients against those that one process computes alone.

One rank per process, as tools/nccl/run starts them (RANK, WORLD_SIZE, LOCAL_RANK, ID_FILE).
usage: train.py [STEPS]
"""

import os
import sys

import torch
import torch.distributed as dist


def batch(rank, step):
    """What a rank trains with: 64 rows, the same whoever asks."""
    make = torch.Generator().manual_seed(1000 * step + rank)
    rows = torch.randn(64, 1024, generator=make, dtype=torch.float64)
    return rows.cuda(), rows.flip(1).cuda()


def gradients(model, data):
    model.zero_grad()
    rows, want = data
    ((model(rows) - want) ** 2).mean().backward()
    return [p.grad.clone() for p in model.parameters()]


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("nccl", init_method=f"file://{os.environ['ID_FILE']}.torch", rank=rank, world_size=world)
    torch.manual_seed(7)
    layers = [torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1024)]
    model = torch.nn.Sequential(*layers).double().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    worst = 0.0
    for step in range(steps):
        alone = [sum(g) / world for g in zip(*(gradients(model, batch(r, step)) for r in range(world)))]
        together = gradients(model, batch(rank, step))
        for g, p in zip(together, model.parameters()):
            dist.all_reduce(g)
            g /= world
            p.grad = g
        worst = max(worst, *(float((g - a).abs().max() / a.abs().max()) for g, a in zip(together, alone)))
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        print(f"torch {torch.__version__}, NCCL {nccl}, {world} ranks, {steps} steps: gradients differ by {worst:.1e} of the largest")
    return 0 if worst < 1e-12 else 1


if __name__ == "__main__":
    sys.exit(main())
