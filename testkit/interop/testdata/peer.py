"""A peer on the kernel's rdma_rxe, through rdma-core's libibverbs as it is.

Each line of standard input is an order in JSON, each line of standard output the
answer to it, with "error" where it failed. A queue is a queue pair and memory of its
own, which is filled by SHAKE128 of a seed and which the other end may use in every way.
"""
import hashlib
import json
import pathlib
import socket
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 1
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
OPCODES = {
    "SEND": e.IBV_WR_SEND, "SEND_IMM": e.IBV_WR_SEND_WITH_IMM, "WRITE": e.IBV_WR_RDMA_WRITE, "WRITE_IMM": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "READ": e.IBV_WR_RDMA_READ, "COMPARE_SWAP": e.IBV_WR_ATOMIC_CMP_AND_SWP, "FETCH_ADD": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
STATES = {e.IBV_QPS_RTS: "RTS", e.IBV_QPS_ERR: "ERR", e.IBV_QPS_SQE: "SQE"}
MTUS = {256: e.IBV_MTU_256, 512: e.IBV_MTU_512, 1024: e.IBV_MTU_1024, 2048: e.IBV_MTU_2048, 4096: e.IBV_MTU_4096}


def sysfs(device):
    return pathlib.Path("/sys/class/infiniband") / device / "ports" / str(PORT)


def gid_of(address):
    b = socket.inet_pton(socket.AF_INET6, address if ":" in address else "::ffff:" + address)
    return ":".join("%02x%02x" % (b[i], b[i + 1]) for i in range(0, 16, 2))


class Device:
    """A device with what its queues share."""

    def __init__(self, name):
        self.name = name
        self.context = Context(name=name)
        self.pd = PD(self.context)

    def index(self, gid):
        # The kernel lists a thousand places, most of them empty, and in no order.
        return next(i for i in range(1024) if (sysfs(self.name) / "gids" / str(i)).read_text().strip() == gid)


class Queue:
    def __init__(self, device, o):
        self.order = o
        self.gid = device.index(gid_of(o["address"]))
        self.cq = CQ(device.context, 2 * o["depth"])
        cap = QPCap(max_send_wr=o["depth"], max_recv_wr=o["depth"], max_send_sge=1, max_recv_sge=1)
        self.qp = QP(device.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1))
        self.memory = MR(device.pd, o["size"], ACCESS)
        self.memory.write(hashlib.shake_128(o["seed"].encode()).digest(o["size"]), o["size"])

    def connect(self, o):
        mine = self.order
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = ACCESS
        attr.path_mtu = MTUS[mine["mtu"]]
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = o["qpn"], o["psn"], mine["psn"]
        attr.max_rd_atomic = attr.max_dest_rd_atomic = mine["reads"]
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = mine["timeout"], mine.get("retries", 7), 7, 12
        route = GlobalRoute(dgid=GID(gid_of(o["address"])), sgid_index=self.gid)
        attr.ah_attr = AHAttr(port_num=PORT, is_global=1, gr=route)
        self.qp.to_rts(attr)

    def receive(self, o):
        for i, (offset, length) in enumerate(o["places"], o["from"]):
            self.qp.post_recv(RecvWR(wr_id=i, num_sge=1, sg=[SGE(self.memory.buf + offset, length, self.memory.lkey)]))

    def post(self, o):
        for i, m in enumerate(o["messages"], o["from"]):
            sge = SGE(self.memory.buf + m["local"], m["length"], self.memory.lkey)
            wr = SendWR(wr_id=i, num_sge=1, sg=[sge], opcode=OPCODES[o["op"]], imm_data=socket.htonl(m["imm"]), send_flags=e.IBV_SEND_SIGNALED)
            if o["op"] in ("COMPARE_SWAP", "FETCH_ADD"):
                first = m["compare"] if o["op"] == "COMPARE_SWAP" else m["operand"]
                wr.set_wr_atomic(o["rkey"], o["base"] + m["remote"], first, m["operand"])
            else:
                wr.set_wr_rdma(o["rkey"], o["base"] + m["remote"])
            self.qp.post_send(wr)

    def wait(self, count, seconds):
        """The next completions, at most so many; fewer when the time is over."""
        done, end = [], time.monotonic() + seconds
        while len(done) < count:
            n, completions = self.cq.poll(count - len(done))
            for c in completions:
                one = {"id": c.wr_id, "status": c.status}
                if c.opcode & e.IBV_WC_RECV:
                    one["bytes"] = c.byte_len
                    if c.wc_flags & e.IBV_WC_WITH_IMM:
                        one["imm"] = socket.ntohl(c.imm_data)
                done.append(one)
            if n == 0:
                if time.monotonic() > end:
                    break
                time.sleep(0.002)  # the guest has one processor
        return done

    def report(self, ranges):
        content = self.memory.read(self.order["size"], 0)
        attr, _ = self.qp.query(e.IBV_QP_STATE)
        return {"state": STATES.get(attr.qp_state, str(attr.qp_state)),
                "sums": [hashlib.sha256(content[at:at + n]).hexdigest() for at, n in ranges]}

    def close(self):
        self.qp.close()
        self.cq.close()
        self.memory.close()


devices, queues = {}, {}


def serve(o):
    do = o["do"]
    if do == "open":
        name = o["device"]
        if name not in devices:
            devices[name] = Device(name)
        q = queues[o["queue"]] = Queue(devices[name], o)
        return {"qpn": q.qp.qp_num, "rkey": q.memory.rkey, "base": q.memory.buf}
    if do == "counters":
        return {"counters": {f.name: int(f.read_text()) for f in (sysfs(o["device"]) / "hw_counters").iterdir()}}
    q = queues[o["queue"]]
    if do == "connect":
        q.connect(o)
    elif do == "receive":
        q.receive(o)
    elif do == "post":
        q.post(o)
    elif do == "wait":
        return {"done": q.wait(o["count"], o["seconds"])}
    elif do == "report":
        return q.report(o["ranges"])
    elif do == "close":
        queues.pop(o["queue"]).close()
    return {}


for line in sys.stdin:
    try:
        answer = serve(json.loads(line))
    except Exception as problem:  # whatever it is, the other side is to know
        answer = {"error": "%s: %s" % (type(problem).__name__, problem)}
    print(json.dumps(answer), flush=True)
