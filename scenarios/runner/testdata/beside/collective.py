# The loop of collective.c over PyTorch's Gloo backend. Arguments: rank, ranks, the address and
# port where they meet, allreduce or alltoall, then BYTES:WARMUP:ITERATIONS.
import sys
import time

import torch
import torch.distributed as dist

rank, ranks, meet, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="tcp://" + meet, rank=rank, world_size=ranks)


def operate(data, out):
    if kind == "alltoall":
        dist.all_to_all_single(out, data)
    else:
        dist.all_reduce(data)


for argument in sys.argv[5:]:
    size, warmup, iterations = map(int, argument.split(":"))
    data = torch.full((size // 4,), float(rank + 1))
    out = torch.zeros_like(data)
    operate(data, out)
    first = out if kind == "alltoall" else data
    want = torch.arange(1, ranks + 1).repeat_interleave(size // 4 // ranks) if kind == "alltoall" else ranks * (ranks + 1) / 2
    assert bool((first == want).all())
    data.fill_(0)
    for _ in range(warmup - 1):
        operate(data, out)
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(iterations):
        operate(data, out)
    mean = torch.tensor([(time.perf_counter() - begin) / iterations * 1e6 / ranks], dtype=torch.float64)
    dist.all_reduce(mean)
    if rank == 0:
        print(size, mean.item(), flush=True)
