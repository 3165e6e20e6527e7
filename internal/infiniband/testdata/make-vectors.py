#!/usr/bin/python3
"""Makes vectors.json: packets of RoCEv2 by scapy, which computes their ICRC.

    PYTHONPATH=SCAPY SCAPY_VERSION=git.ac38b273405b ./make-vectors.py > vectors.json

where SCAPY is a checkout of github.com/secdev/scapy at that commit, of July 2026.
Debian's python3-scapy, 2.5.0, makes the same vectors of IPv4, and knows no ICRC over
IPv6. contrib/roce.py has BTH, AETH, CNP and the ICRC; the other headers are packed
here, by the struct module.
"""
import json
import random
import struct

import scapy
from scapy.contrib.roce import AETH, BTH, cnp
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

draw = random.Random(4791)


def bits(n):
    return draw.getrandbits(n)


def deth(f):
    f["qkey"], f["srcqp"] = bits(32), bits(24)
    return struct.pack("!II", f["qkey"], f["srcqp"])


def reth(f):
    f["va"], f["rkey"], f["length"] = bits(64), bits(32), bits(31)
    return struct.pack("!QII", f["va"], f["rkey"], f["length"])


def atomic(f):
    f["va"], f["rkey"], f["swapadd"], f["compare"] = bits(64), bits(32), bits(64), bits(64)
    return struct.pack("!QIQQ", f["va"], f["rkey"], f["swapadd"], f["compare"])


def aeth(f):
    f["syndrome"], f["msn"] = bits(7), bits(24)
    return bytes(AETH(syndrome=f["syndrome"], msn=f["msn"]))


def original(f):
    f["original"] = bits(64)
    return struct.pack("!Q", f["original"])


def immediate(f):
    f["imm"] = bits(32)
    return struct.pack("!I", f["imm"])


def invalidate(f):
    f["invalidate"] = bits(32)
    return struct.pack("!I", f["invalidate"])


# The headers of each opcode behind the BTH, and whether it has a payload: IBTA
# volume 1, table 38.
connected = {
    0x00: ("SEND_FIRST", [], True), 0x01: ("SEND_MIDDLE", [], True), 0x02: ("SEND_LAST", [], True),
    0x03: ("SEND_LAST_IMM", [immediate], True), 0x04: ("SEND_ONLY", [], True), 0x05: ("SEND_ONLY_IMM", [immediate], True),
    0x06: ("WRITE_FIRST", [reth], True), 0x07: ("WRITE_MIDDLE", [], True), 0x08: ("WRITE_LAST", [], True),
    0x09: ("WRITE_LAST_IMM", [immediate], True), 0x0A: ("WRITE_ONLY", [reth], True), 0x0B: ("WRITE_ONLY_IMM", [reth, immediate], True),
}
reliable = {
    0x0C: ("READ_REQUEST", [reth], False), 0x0D: ("READ_RESPONSE_FIRST", [aeth], True), 0x0E: ("READ_RESPONSE_MIDDLE", [], True),
    0x0F: ("READ_RESPONSE_LAST", [aeth], True), 0x10: ("READ_RESPONSE_ONLY", [aeth], True), 0x11: ("ACKNOWLEDGE", [aeth], False),
    0x12: ("ATOMIC_ACKNOWLEDGE", [aeth, original], False), 0x13: ("COMPARE_SWAP", [atomic], False), 0x14: ("FETCH_ADD", [atomic], False),
    0x16: ("SEND_LAST_INVALIDATE", [invalidate], True), 0x17: ("SEND_ONLY_INVALIDATE", [invalidate], True),
}
opcodes = {}
for op, (name, headers, payload) in {**connected, **reliable}.items():
    opcodes[op] = ("RC_" + name, headers, payload)
for op, (name, headers, payload) in connected.items():
    opcodes[op + 0x20] = ("UC_" + name, headers, payload)
opcodes[0x64] = ("UD_SEND_ONLY", [deth], True)
opcodes[0x65] = ("UD_SEND_ONLY_IMM", [deth, immediate], True)


def network(version):
    """Random fields of IP, those that routers change included."""
    if version == 4:
        return IP(src=f"10.{bits(8)}.{bits(8)}.1", dst=f"192.168.{bits(8)}.{bits(8)}", tos=bits(8), ttl=1 + bits(7), id=bits(16), flags="DF" if bits(1) else 0)
    return IPv6(src=f"fd00::{bits(16):x}", dst=f"2001:db8::{bits(16):x}:{bits(16):x}", tc=bits(8), fl=bits(20), hlim=1 + bits(7))


def packet(version, f, transport):
    return {"ip": version, "fields": f, "bytes": bytes(network(version) / UDP(sport=0xC000 | bits(14), dport=4791, chksum=bits(16)) / transport).hex()}


vectors = []
for op, (name, headers, has_payload) in opcodes.items():
    for version in 4, 6:
        payload = draw.randbytes(draw.choice([0, 1, 2, 3, 4, 64, 255])) if has_payload else b""
        f = {"opcode": op, "name": name, "se": bits(1), "migreq": bits(1), "pad": -len(payload) % 4, "pkey": bits(16),
             "fecn": bits(1), "becn": bits(1), "destqp": bits(24), "ackreq": bits(1), "psn": bits(24), "payload": payload.hex()}
        behind = b"".join(h(f) for h in headers) + payload + bytes(f["pad"])
        bth = BTH(opcode=op, solicited=f["se"], migreq=f["migreq"], padcount=f["pad"], pkey=f["pkey"], fecn=f["fecn"],
                  becn=f["becn"], dqpn=f["destqp"], ackreq=f["ackreq"], psn=f["psn"])
        vectors.append(packet(version, f, bth / Raw(behind)))
for version in 4, 6:
    f = {"opcode": 0x81, "name": "CNP", "se": 0, "migreq": 0, "pad": 0, "pkey": 0xFFFF, "fecn": 0, "becn": 1, "destqp": bits(24), "ackreq": 0, "psn": 0, "payload": ""}
    vectors.append(packet(version, f, cnp(dqpn=f["destqp"])))
print(json.dumps({"scapy": scapy.__version__, "vectors": vectors}, indent=0))
