# Trains a small network with PyTorch's DistributedDataParallel over Gloo, as its users
# do, on data that differ among ranks:
#
#     ddp.py GRADIENT-BYTES ITERATIONS
#
# MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE are torch.distributed's own. Rank 0
# prints the table. It is an error when replicas differ in a bit at the end.
import hashlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FEATURES = 32
BATCH = 64
ROWS = 10  # of the table, at most


def main():
    size, iterations = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    hidden = max(1, size // 4 // (FEATURES + 2))
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05 / max(1, hidden) ** 0.5)
    teacher = torch.linspace(-1, 1, FEATURES).unsqueeze(1)
    data = torch.Generator().manual_seed(100 + rank)
    parameters = sum(p.numel() for p in model.parameters())
    if rank == 0:
        print("# parameters %d" % parameters)
    each = max(1, (iterations + ROWS - 1) // ROWS)
    began = time.perf_counter()
    for i in range(1, iterations + 1):
        x = torch.randn(BATCH, FEATURES, generator=data)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(ddp(x), torch.tanh(x @ teacher))
        loss.backward()
        optimizer.step()
        if i % each == 0 or i == iterations:
            took = (time.perf_counter() - began) / (i % each or each)
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print("%d %.6f %.3f" % (i, mean.item() / world, took * 1e3))
            began = time.perf_counter()
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    digest = torch.tensor(list(hashlib.sha256(flat.numpy().tobytes()).digest()), dtype=torch.uint8)
    all_digests = [torch.zeros_like(digest) for _ in range(world)]
    dist.all_gather(all_digests, digest)
    different = [r for r, d in enumerate(all_digests) if not torch.equal(d, all_digests[0])]
    if different:
        sys.exit("ranks %s have other weights than rank 0" % different)
    if rank == 0:
        print("# replicas %d equal" % world, flush=True)
    dist.destroy_process_group()


main()
