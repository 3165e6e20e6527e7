#!/usr/bin/python3
"""Prints testdata/vectors.txt: digests of what numpy (half) and torch (bfloat16) make of
numbers, for TestAgainstNumpyAndTorch. Made with Debian's python3-numpy 1.24.2 and
python3-torch 1.13.1:

    python3 vectors.py > vectors.txt

A digest is the SHA-256 of all results in order, little-endian, each NaN as 0x7fc00000,
0x7fc0 (bfloat16) or 0x7e00 (half).
"""
import hashlib

import numpy as np
import torch

ALL = np.arange(1 << 16, dtype=np.uint32)


def bfloats(bits):
    return torch.from_numpy(bits.astype(np.uint16).view(np.int16)).view(torch.bfloat16)


def bits_of(bfloat):
    return bfloat.view(torch.int16).numpy().view(np.uint16)


def show(name, bits, nan, nan_bits):
    bits = np.where(nan, nan_bits, bits).astype(bits.dtype)
    print(name, hashlib.sha256(bits.tobytes()).hexdigest())


def half(name, value):
    show("half " + name, value.view(np.uint16), np.isnan(value), 0x7E00)


def bfloat(name, value):
    show("bfloat16 " + name, bits_of(value), torch.isnan(value).numpy(), 0x7FC0)


np.seterr(all="ignore")
# Every value, as a float32.
wide = ALL.astype(np.uint16).view(np.float16).astype(np.float32)
show("half to float", wide.view(np.uint32), np.isnan(wide), 0x7FC00000)
wide = bfloats(ALL).float().numpy()
show("bfloat16 to float", wide.view(np.uint32), np.isnan(wide), 0x7FC00000)
# Float32s at, just below and just above each multiple of 2^12 ulp: every tie of both types.
near = ((np.arange(1 << 20, dtype=np.uint32) << 12)[:, None] + np.array([-1, 0, 1]).astype(np.uint32)).reshape(-1)
half("from float", near.view(np.float32).astype(np.float16))
bfloat("from float", torch.from_numpy(near.view(np.float32)).to(torch.bfloat16))
# Every value with sixteen others: their sum, and the sum of both times 1/3.
a = np.tile(ALL, 16)
b = np.concatenate([(ALL * (2 * k + 1) + k * 40503) & 0xFFFF for k in range(16)])
x, y = (v.astype(np.uint16).view(np.float16) for v in (a, b))
half("sum", x + y)
third = np.float16(np.float32(1 / 3))
half("weighted", x * third + y * third)
x, y = bfloats(a), bfloats(b)
bfloat("sum", x + y)
third = torch.tensor(1 / 3, dtype=torch.float32).to(torch.bfloat16)
bfloat("weighted", x * third + y * third)
