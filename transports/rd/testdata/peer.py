"""A second implementation of reliable datagrams, for the tests: written from PROTOCOL.md alone, to find what only the first one knows.

It is one endpoint with one engine and several paths. It reads commands, one JSON object in a line, and writes events likewise; main()
has both. Section numbers are PROTOCOL.md's. It is slow (some MB/s), and loses, doubles, trims and delays packets as its orders say, by
PSN, so that a run can be repeated. To encrypt it needs the package cryptography.
"""

import base64
import hashlib
import heapq
import hmac
import json
import os
import select
import socket
import struct
import sys
import time

DATA, SKIP, ACK, NACK, PROBE, REJECT, CLOSE = 1, 2, 3, 4, 5, 6, 7
ENCRYPTED, REPEATED, IMMEDIATE, HOLES, ASK = 0x80, 0x40, 0x20, 0x10, 0x08
TRIMMED, BUSY, NO_REGION, NOT_WRITABLE, BOUNDS, WINDOW = 1, 2, 3, 4, 5, 6
R_VERSION, R_LIFE, R_STRANGER, R_SECURITY = 1, 2, 3, 4
PORT, PORTS_PATH, NOTHING = 61696, (63488, 65535), 0xFFFFFFFF
LENGTHS = {SKIP: 52, NACK: 40, PROBE: 32, REJECT: 40, CLOSE: 24}
MS, US = 10**6, 10**3


def table():
    t = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        t.append(n)
    return t


CRC = table()


def crc(data):
    c, t = NOTHING, CRC
    for b in data:
        c = c >> 8 ^ t[(c ^ b) & 255]
    return c ^ NOTHING


def behind(a, b):
    """How far serial number a is behind (after) b; negative when it is before."""
    return (a - b + 2**31) % 2**32 - 2**31


def add(a, n):
    return (a + n) % 2**32


def seal(packet, header):
    """Puts the Check over the first header bytes in."""
    packet[22:24] = b"\0\0"
    packet[22:24] = struct.pack(">H", crc(packet[:header]) & 0xFFFF)
    return packet


def valid(p):
    """Section 2.10 for a packet that has a base and version 1."""
    kind, length, n = p[0] & 15, struct.unpack_from(">H", p, 20)[0], len(p)
    if p[1] & ENCRYPTED:
        header = 24
    elif kind == DATA:
        header = 64
        if not 64 <= n <= 64 + length:
            return False
    else:
        header = n
        if length != 0:
            return False
        if kind == ACK:
            if n < 48 or p[44] > 16 or p[45] > 64 or n != 48 + 8 * p[44] + 4 * p[45]:
                return False
        elif LENGTHS.get(kind) != n:
            return False
    h = bytearray(p[:header])
    h[22:24] = b"\0\0"
    return crc(h) & 0xFFFF == struct.unpack_from(">H", p, 22)[0]


def expand(root, info, n):
    """HKDF-Expand of RFC 5869 with SHA-256."""
    out = block = b""
    while len(out) < n:
        block = hmac.digest(root, block + info + bytes([len(out) // 32 + 1]), hashlib.sha256)
        out += block
    return out[:n]


class Epoch:
    """One key of a direction (10.2)."""

    def __init__(self, root, info, number):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # only who encrypts needs it

        out = expand(root, info + struct.pack(">H", number), 44)
        self.number, self.gcm, self.iv = number, AESGCM(out[:32]), int.from_bytes(out[32:], "big")
        self.come, self.highest = set(), -1

    def nonce(self, counter):
        return (self.iv ^ counter).to_bytes(12, "big")

    def seen(self, counter):
        """Whether a counter came before, or is too old to tell."""
        return counter in self.come or counter < self.highest - 4095

    def note(self, counter):
        self.come.add(counter)
        self.highest = max(self.highest, counter)
        if len(self.come) > 3 * 4096:
            self.come = {c for c in self.come if c >= self.highest - 4095}


class Seal:
    """What seals packets to an engine (10.2); limit is of packets by a key, and smaller in tests."""

    def __init__(self, root, info, limit):
        self.root, self.info, self.limit = root, info, limit
        self.epoch, self.counter, self.confirmed, self.began = Epoch(root, info, 0), 0, False, None

    def seal(self, p, readable, heard, now):
        if self.began is None:
            self.began = now
        if (self.counter >= self.limit or now - self.began >= 600 * 1000 * MS) and self.confirmed and self.epoch.number < 65535:
            self.epoch = Epoch(self.root, self.info, self.epoch.number + 1)
            self.counter, self.confirmed, self.began = 0, False, now
        head = bytearray(p[:24])
        head[1] |= ENCRYPTED
        seal(head, 24)
        head += struct.pack(">BBHQ", readable, heard, self.epoch.number, self.counter) + p[24:24 + 4 * readable]
        self.counter += 1
        return bytes(head) + self.epoch.gcm.encrypt(self.epoch.nonce(self.counter - 1), bytes(p[24 + 4 * readable:]), bytes(head))


class Open:
    """What opens packets of an engine (10.2, 10.3)."""

    def __init__(self, root, info):
        self.root, self.info = root, info
        self.before, self.until = None, 0
        self.newest, self.next = Epoch(root, info, 0), Epoch(root, info, 1)
        self.heard = False

    def open(self, p, now):
        """The plain packet and what it says was heard, or None and why not."""
        readable, heard, number, counter = struct.unpack_from(">BBHQ", p, 24)
        clear = 36 + 4 * readable
        if clear + 16 > len(p):
            return None, "invalid"
        known = [e for e in (self.newest, self.next, self.before if now < self.until else None) if e and e.number == number]
        if not known:
            return None, "stale"
        if known[0].seen(counter):
            return None, "replayed"
        try:
            rest = known[0].gcm.decrypt(known[0].nonce(counter), p[clear:], p[:clear])
        except Exception:  # InvalidTag, of a package that need not be there
            return None, "forged"
        known[0].note(counter)
        self.heard = True
        if known[0] is self.next:
            self.before, self.until, self.newest = self.newest, now + 1000 * MS, self.next
            self.next = Epoch(self.root, self.info, number + 1) if number < 65535 else None
        plain = bytearray(p[:24]) + p[36:clear] + rest
        plain[1] &= ~ENCRYPTED
        return bytes(plain), heard


class Packet:
    """One PSN of a sequence that goes out."""

    def __init__(self, message, position, length):
        self.message, self.position, self.length = message, position, length
        self.state, self.skip, self.times, self.lost = "new", False, 0, 0
        self.hole = self.skipped = self.hinted = False
        self.at = self.order = 0
        self.path, self.until = 0, 0


class Message:
    """One message that goes out."""

    def __init__(self, number, tag, key, offset, data, immediate, droppable):
        self.number, self.tag, self.key, self.offset, self.data, self.immediate = number, tag, key, offset, data, immediate
        self.cut, self.left, self.empty, self.error, self.total = 0, 0, len(data) == 0, "", len(data)
        self.droppable, self.missing = droppable, 0  # bytes
        self.canceled = self.told = self.over = False  # told: a SKIP without D was sent

    def rest(self):
        """Whether some of its bytes have no PSN."""
        return self.empty or self.cut < len(self.data)

    def more(self):
        """Whether it needs another PSN: for bytes, or to tell that it was canceled."""
        return not self.error and self.rest()


class To:
    """What the sender of a sequence knows (section 3)."""

    def __init__(self, peer, life):
        self.peer = peer
        self.una = self.next = life >> 32
        self.limit, self.room = add(self.una, 1024), max(2, peer.room)
        self.first = self.last = life & 0xFFFFFFFF
        self.packets, self.messages, self.queue, self.waiting = {}, {}, [], []
        self.flying, self.repeat = set(), []
        self.come = 0  # the order of the latest transmission that is known to have come
        self.shortest, self.smooth, self.dev = None, 0, 0
        self.longest, self.longest_before, self.trips, self.period, self.quarters = 0, 0, 0, 0, 1
        self.duplicates, self.again = 0, False
        self.sign = self.probed = self.sent = 0
        self.silence, self.probes, self.busy = 0, {}, 100 * US

    def bound(self):
        if self.shortest is None:
            return 20 * MS
        b = max(self.longest, self.longest_before, self.smooth + 4 * self.dev)
        return b + b * self.quarters // 4 + 20 * US

    def trip(self, now, rtt):
        if self.shortest is None:
            self.shortest, self.smooth, self.dev, self.period = rtt, rtt, rtt // 2, now
        self.shortest = min(self.shortest, rtt)
        self.dev += (abs(self.smooth - rtt) - self.dev) // 4
        self.smooth += (rtt - self.smooth) // 8
        self.longest, self.trips = max(self.longest, rtt), self.trips + 1
        if self.trips >= 32 and now - self.period >= max(10 * MS, 8 * self.longest):
            self.longest_before, self.longest, self.trips, self.period = self.longest, 0, 0, now


class From:
    """What the receiver of a sequence knows (section 3)."""

    def __init__(self, source, life):
        self.source, self.next, self.message = source, life >> 32, life & 0xFFFFFFFF
        self.come, self.messages = set(), {}
        self.duplicates = self.received = 0
        self.count, self.due, self.probe, self.late, self.echoes = 0, None, None, None, []


class Incoming:
    """One message that comes: state is open, refused or over."""

    def __init__(self):
        self.state, self.said, self.place, self.pieces, self.got, self.reason, self.detail = "unseen", None, None, [], 0, 0, 0
        self.holes = []


class Peer:
    def __init__(self, e, c):
        self.life, self.ip, self.port, self.engines, self.room = c["life"], c["ip"], c["port"], c["engines"], c["room"]
        self.failed, self.pause, self.until, self.heard = "", MS, 0, 0
        self.to, self.froms = To(self, e.life), {}
        self.seals, self.opens, self.hinted, self.hints = {}, {}, set(), []


class Endpoint:
    def __init__(self, c):
        self.life, self.ip, self.port, self.mtu, self.room = c["life"], c["ip"], c["port"], c["mtu"], c["room"]
        self.faults, self.seen, self.acks = c.get("faults") or {}, {}, 0
        self.root, self.readable, self.limit = None, c.get("readable", False), c.get("packets") or 2**22
        if c.get("secret"):
            self.root = hmac.digest(b"railbed rd 1", base64.b64decode(c["secret"]), hashlib.sha256)
        self.peers, self.regions, self.order, self.turn, self.later = {}, {}, 0, 0, []
        self.bind(c["paths"], c.get("slots", [(self.port - PORT) // 16]))
        self.stats = dict.fromkeys(("invalid", "dropped", "twice", "sent", "repeated", "lost_in", "lost_out", "lost_acks", "doubled",
            "delayed", "duplicates_told", "skips_in", "skips_out", "nacks_in", "nacks_out", "rejects_in", "rejects_out", "probes_in", "probes_out",
            "ack_words", "out_of_order", "trimmed_in", "trimmed_out", "stale", "replayed", "forged", "epochs_in", "epochs_out"), 0)

    def bind(self, paths, slots):
        """Takes the first slot of 16 ports that is free, with the paths that are numbered in it."""
        for slot in slots:
            self.port, at = PORT + 16 * slot, 128 * (slot - slots[0])
            try:
                self.socket = self.open(self.port)
                self.paths = [self.open(PORTS_PATH[0] + (p + at - PORTS_PATH[0]) % 2048) for p in paths]
                return
            except OSError:
                if slot == slots[-1]:
                    raise

    def open(self, port):
        s = socket.socket(socket.AF_INET6 if ":" in self.ip else socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        if ":" in self.ip:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        else:
            s.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
        s.bind((self.ip, port))
        s.setblocking(False)
        return s

    # Sending.

    def base(self, kind, flags, life, destination, psn, length=0, version=1):
        return bytearray(struct.pack(">BBBBIQIHH", 0x80 | version << 4 | kind, flags, self.port - PORT, destination, life & 0xFFFFFFFF,
            self.life, psn, length, 0))

    def emit(self, packet, ip, destination, data=False, path=None):
        """Sends by a path, the next in turn if none is named, with the marks of section 1.2."""
        if path is None:
            path, self.turn = self.turn // 4 % len(self.paths), self.turn + 1
        tos = 35 << 2 | 2 if data else 51 << 2  # of data ECT(0)
        mark = (socket.IPPROTO_IPV6, socket.IPV6_TCLASS) if ":" in self.ip else (socket.IPPROTO_IP, socket.IP_TOS)
        try:
            self.paths[path].sendmsg([packet], [(*mark, struct.pack("i", tos))], 0, (ip, PORT + destination))
        except OSError:
            self.stats["dropped"] += 1

    def control(self, peer, kind, destination, psn, fields=b""):
        p = self.base(kind, 0, peer.life, destination, psn)
        p += fields
        self.emit(self.protect(peer, destination, seal(p, len(p)), len(p)), peer.ip, destination)

    def info(self, sender, receiver, source, destination):
        """What HKDF is told of a direction, without the epoch."""
        return b"packets" + struct.pack(">QQBB", sender, receiver, source, destination)

    def opener(self, peer, source):
        if source not in peer.opens:
            peer.opens[source] = Open(self.root, self.info(peer.life, self.life, source, self.port - PORT))
        return peer.opens[source]

    def protect(self, peer, destination, p, header):
        """Encrypts a packet where packets are (10.1)."""
        if self.root is None:
            return p
        if destination not in peer.seals:
            peer.seals[destination] = Seal(self.root, self.info(self.life, peer.life, self.port - PORT, destination), self.limit)
        p = peer.seals[destination].seal(p, (header - 24) // 4 if self.readable else 0, self.opener(peer, destination).newest.number & 255, time.monotonic_ns())
        self.stats["epochs_out"] = max(self.stats["epochs_out"], peer.seals[destination].epoch.number)
        return p

    def hit(self, fault, psn):
        n = self.faults.get(fault, 0)
        return n > 0 and psn % n == n // 2

    def transmit(self, to, psn, now):
        k, peer = to.packets[psn], to.peer
        m, destination = k.message, peer.port - PORT
        k.times += 1
        self.order += 1
        k.at, k.order, k.state, self_flags = now, self.order, "flying", 0
        to.flying.add(psn)
        if to.silence == 0 or len(to.flying) == 1:
            to.sent = now
        self_flags |= REPEATED if k.times > 1 else 0
        self_flags |= IMMEDIATE if m.immediate is not None else 0
        path, self.turn = self.turn // 4 % len(self.paths), self.turn + 1
        ts, imm = now % 2**32, m.immediate or 0
        if k.skip:
            self.stats["skips_out"] += 1
            k.skipped = True
            if m.error or m.canceled:
                m.told = True
            else:
                self_flags |= HOLES
            p = self.base(SKIP, self_flags, peer.life, destination, psn)
            p += struct.pack(">IIIIIII", 1, m.number, m.total, imm, ts, k.length, k.position)
            return self.emit(self.protect(peer, destination, seal(p, 52), 52), peer.ip, destination, True, path)
        self_flags |= HOLES if m.droppable > 0 else 0
        full = len(to.flying) >= to.room or behind(to.next, to.limit) >= 0 or behind(to.next, to.una) >= 1024
        piece = m.data[k.position:k.position + k.length]
        p = self.base(DATA, self_flags | (ASK if full else 0), peer.life, destination, psn, k.length)
        p += struct.pack(">QQIIIIII", m.key, m.offset, m.number, m.total, k.position, imm, ts, crc(piece))
        seal(p, 64)
        p = self.protect(peer, destination, p + piece, 64)
        self.stats["sent" if k.times == 1 else "repeated"] += 1
        if self.hit("lose_out", psn) and k.times <= 1 + psn % 2:
            self.stats["lost_out"] += 1
            return None
        if self.hit("trim_out", psn) and k.times <= 1 + psn % 2 and k.length > 0:
            self.stats["trimmed_out"] += 1
            return self.emit(p[:64 if self.root is None else 92], peer.ip, destination, True, path)
        if self.hit("delay_out", psn) and k.times == 1:
            self.stats["delayed"] += 1
            heapq.heappush(self.later, (now + 3 * MS, self.order, p, peer.ip, destination, path))
            return None
        if self.hit("double_out", psn):
            self.stats["doubled"] += 1
            self.emit(p, peer.ip, destination, True, path)
        return self.emit(p, peer.ip, destination, True, path)

    def write(self, peer, tag, key, offset, data, immediate, droppable):
        peer.to.waiting.append((tag, key, offset, data, immediate, droppable))

    def cancel(self, peer, tag):
        """Section 4, canceled messages."""
        to = peer.to
        for w in [w for w in to.waiting if w[0] == tag]:
            to.waiting.remove(w)
            self.event("sent", id=tag, error="canceled")
        for m in [m for m in to.messages.values() if m.tag == tag and not m.error and not m.canceled]:
            m.canceled = True
            if m.cut == 0 and m.left == 0 and (m.total or m.empty):
                self.ended(m, "canceled")  # it had no PSN; a SKIP goes all the same
            self.skip_rest(to, m)

    def skip_rest(self, to, m):
        for q, o in to.packets.items():
            if o.message is m and o.state != "done":
                o.skip, was, o.state = True, o.state, "lost"
                to.flying.discard(q)
                if was != "lost":
                    to.repeat.append(q)

    def ended(self, m, error):
        if not m.over:
            m.over = True
            self.event("sent", id=m.tag, error=error, missing=m.missing)

    def admit(self, to):
        while to.waiting and behind(to.last, to.first) < 256:
            m = Message(to.last, *to.waiting.pop(0))
            to.last = add(to.last, 1)
            to.messages[m.number] = m
            to.queue.append(m)

    def pump(self, to, now):
        """Sends what may go (section 4): the lost first."""
        if to.peer.failed or now < to.peer.until:
            return
        self.admit(to)
        while len(to.flying) < to.room:
            if to.repeat:
                psn = to.repeat.pop(0)
                if psn in to.packets and to.packets[psn].state == "lost":
                    to.again = True
                    self.transmit(to, psn, now)
                continue
            while to.queue and not to.queue[0].more():
                to.queue.pop(0)
            if not to.queue or behind(to.next, to.limit) >= 0 or behind(to.next, to.una) >= 1024:
                return
            m = to.queue[0]
            if m.cut >= self.faults.get("hold", m.cut + 1) and not m.canceled:
                return
            n = 0 if m.canceled else min(self.mtu, m.total - m.cut)
            to.packets[to.next] = Packet(m, m.cut, n)
            if m.canceled:  # the one SKIP for all that has no PSN
                to.packets[to.next].skip, m.cut = True, m.total
            psn, to.next, m.cut, m.empty, m.left = to.next, add(to.next, 1), m.cut + n, False, m.left + 1
            self.transmit(to, psn, now)

    def done(self, to, psn):
        k = to.packets[psn]
        if k.state == "done":
            return
        k.state, m = "done", k.message
        to.flying.discard(psn)
        if k.hole and not k.skipped:
            m.missing -= k.length  # it came before the SKIP was sent
        m.left -= 1
        if m.left == 0 and not m.more():
            del to.messages[m.number]
            while to.first != to.last and to.first not in to.messages:
                to.first = add(to.first, 1)
            self.ended(m, m.error or ("canceled" if m.told else ""))

    def lose(self, to, psn):
        k = to.packets[psn]
        k.state, k.lost, m = "lost", k.lost + 1, k.message
        to.flying.discard(psn)
        to.repeat.append(psn)
        if not k.skip and k.length and m.missing + k.length <= m.droppable:
            k.skip = k.hole = True
            m.missing += k.length
        if k.lost == 255:
            self.fail(to.peer, "a packet was lost 255 times")

    def late(self, to, now):
        """Finds what is late (6.1), lets busy packets go again, and asks into silence (6.3)."""
        bound = to.bound()
        for psn in [p for p in to.flying if to.packets[p].order < to.come and now - to.packets[p].at > bound]:
            self.lose(to, psn)
        for psn, k in to.packets.items():
            if k.state == "busy" and now >= k.until:
                self.lose(to, psn)
        stuck = to.queue and (behind(to.next, to.limit) >= 0 or behind(to.next, to.una) >= 1024)
        if not to.flying and not stuck or now < to.peer.until:
            to.silence = 0
            return
        wait = to.silence or (20 * MS if to.shortest is None else max(500 * US, bound + to.smooth))
        if now - max(to.sign, to.probed, to.sent if to.silence == 0 else 0) < wait:
            return
        to.silence, to.probed = min(2 * wait, 250 * MS), now
        self.order += 1
        to.probes[now % 2**32] = self.order
        self.stats["probes_out"] += 1
        self.control(to.peer, PROBE, to.peer.port - PORT, to.next, struct.pack(">II", now % 2**32, 0))

    def fail(self, peer, why):
        if not peer.failed:
            peer.failed = why
            for m in list(peer.to.messages.values()):
                self.ended(m, why)
            for w in peer.to.waiting:
                self.event("sent", id=w[0], error=why, missing=0)
            self.event("failed", life=peer.life, why=why)

    # What comes back.

    def on_ack(self, peer, source, p, psn, now):
        to = peer.to
        if source != peer.port - PORT or behind(psn, to.next) > 0:
            return
        limit, ts, delay, duplicates, _, words, _, room = struct.unpack_from(">IIIIIBBH", p, 24)
        to.sign, to.silence, peer.pause = now, 0, MS
        if delay != NOTHING and 0 < (now - ts - delay) % 2**32 < 10**9:
            to.trip(now, (now - ts - delay) % 2**32)
        to.come = max(to.come, to.probes.pop(ts, 0))
        if behind(psn, to.una) < 0:
            return
        if duplicates != to.duplicates and to.again:
            to.quarters, to.again = min(12, to.quarters + 1), False
        to.duplicates = duplicates
        if behind(limit, to.limit) > 0 and behind(limit, psn) <= 1024:
            to.limit = limit
        to.room, to.busy = max(1, room), 100 * US
        came = [add(to.una, i) for i in range(behind(psn, to.una))]
        bits = int.from_bytes(p[48:48 + 8 * words], "big")
        came += [add(psn, 1 + i) for i in range(64 * words) if bits >> 64 * words - 1 - i & 1]
        for q in came:
            k = to.packets.get(q)
            if k is None or k.state == "done":
                continue
            if k.times == 1 or to.shortest is not None and now - k.at >= to.shortest:
                to.come = max(to.come, k.order)
            self.done(to, q)
        while to.una != psn:
            del to.packets[to.una]
            to.una = add(to.una, 1)

    def on_nack(self, peer, source, p, psn, now):
        to, (reason, _, _, message) = peer.to, struct.unpack_from(">BBHI", p, 24)
        k = to.packets.get(psn)
        self.stats["nacks_in"] += 1
        to.sign, to.silence = now, 0
        if source != peer.port - PORT or k is None or k.state != "flying":
            return
        if self.root is not None and reason == TRIMMED:  # a hint (10.4)
            if not k.hinted and (to.shortest is None or now - k.at >= to.shortest // 2):
                k.hinted, k.state = True, "lost"
                to.flying.discard(psn)
                to.repeat.append(psn)
            return
        if k.message.number != message:
            return
        if reason == TRIMMED:
            if to.shortest is None or now - k.at >= to.shortest // 2:
                self.lose(to, psn)
        elif reason == BUSY:
            k.state, k.until, to.busy = "busy", now + to.busy, min(2 * to.busy, 10 * MS)
            to.flying.discard(psn)
        elif reason in (NO_REGION, NOT_WRITABLE, BOUNDS) and not k.skip:
            k.message.error = {NO_REGION: "no-region", NOT_WRITABLE: "not-writable", BOUNDS: "bounds"}[reason]
            self.skip_rest(to, k.message)

    # Receiving.

    def answer_reject(self, p, ip, source, reason):
        if p[0] & 15 in (REJECT, CLOSE) and p[0] >> 4 == 9:
            return
        tag, life = struct.unpack_from(">IQ", p, 4)
        self.stats["rejects_out"] += 1
        q = self.base(REJECT, 0, life, source, 0)
        q += struct.pack(">BBBBIQ", reason, 1, 1, 0, tag, life)
        self.emit(seal(q, 40), ip, source)

    def receive(self, p, addr, marked, now):
        """Section 5.1."""
        if len(p) < 24 or not p[0] & 0x80:
            self.stats["invalid"] += 1
            return
        ip, path = addr[0], addr[1]
        kind, flags, source, destination = p[0] & 15, p[1], p[2], p[3]
        tag, life, psn, length = struct.unpack_from(">IQIH", p, 4)
        if p[0] >> 4 & 7 != 1:
            return self.answer_reject(p, ip, source, R_VERSION)
        if not valid(p):
            self.stats["invalid"] += 1
            return None
        if kind == REJECT and not flags & ENCRYPTED:
            return self.on_reject(p, source, now)
        if (flags & ENCRYPTED != 0) != (self.root is not None):
            return self.answer_reject(p, ip, source, R_SECURITY)
        if tag != self.life & 0xFFFFFFFF or destination != self.port - PORT:
            return self.answer_reject(p, ip, source, R_LIFE)
        peer = self.peers.get(life)
        if peer is None:
            return self.answer_reject(p, ip, source, R_STRANGER)
        if kind == DATA and length and self.hit("trim_in", psn):
            self.seen["trim", source, psn] = self.seen.get(("trim", source, psn), 0) + 1
            if self.seen["trim", source, psn] <= 1 + psn % 2:
                self.stats["trimmed_in"] += 1
                p = p[:64 if self.root is None else 92]
        if self.root is not None:
            p = self.unprotect(peer, source, kind, p, psn, length, path, now)
            if p is None:
                return None
            flags = p[1]
        if peer.failed:
            if kind != CLOSE:
                self.control(peer, CLOSE, source, peer.life >> 32)
            return None
        if kind == ACK:
            if self.faults.get("lose_acks"):
                self.acks += 1
                if self.acks % self.faults["lose_acks"] == 0:
                    self.stats["lost_acks"] += 1
                    return None
            return self.on_ack(peer, source, p, psn, now)
        if kind == NACK:
            return self.on_nack(peer, source, p, psn, now)
        if kind == CLOSE:
            if source == peer.port - PORT and 0 <= behind(psn, peer.to.una) <= behind(peer.to.next, peer.to.una):
                for i in range(behind(psn, peer.to.una)):
                    self.done(peer.to, add(peer.to.una, i))
            return self.fail(peer, "closed")
        if not 0 <= source - (peer.port - PORT) < peer.engines:
            self.stats["dropped"] += 1
            return None
        f = peer.froms.setdefault(source, From(source, peer.life))
        peer.heard = now
        if kind in (DATA, SKIP) and (kind == SKIP or len(p) == 64 + length) and self.hit("lose_in", psn):
            self.seen[source, psn] = self.seen.get((source, psn), 0) + 1
            if self.seen[source, psn] <= 1 + psn % 2:
                self.stats["lost_in"] += 1
                return None
        return self.take(peer, f, kind, flags, psn, length, p, path, marked, now)

    def unprotect(self, peer, source, kind, p, psn, length, path, now):
        """Section 10.3: the plain packet, or None."""
        if not 0 <= source - (peer.port - PORT) < peer.engines or len(p) < 52:
            self.stats["dropped"] += 1
            return None
        if kind == DATA and len(p) < 92 + length:
            self.hint(peer, source, psn, path, now)
            return None
        o = self.opener(peer, source)
        plain, heard = o.open(p, now)
        if plain is None:
            self.stats[heard] += 1
            return None
        self.stats["epochs_in"] = max(self.stats["epochs_in"], o.newest.number)
        if source in peer.seals and heard == peer.seals[source].epoch.number & 255:
            peer.seals[source].confirmed = True
        n = len(plain)
        if n != 64 + length if kind == DATA else n < 48 or n != 48 + 8 * plain[44] + 4 * plain[45] if kind == ACK else LENGTHS.get(kind) != n:
            self.stats["invalid"] += 1
            return None
        return plain

    def hint(self, peer, source, psn, path, now):
        """Section 10.4."""
        f = peer.froms.setdefault(source, From(source, peer.life))
        if peer.failed or not 0 <= behind(psn, f.next) < 1024 or psn in f.come or (source, psn) in peer.hinted:
            return
        peer.hints = [t for t in peer.hints if now - t < MS]
        if len(peer.hints) < 64:
            peer.hints.append(now)
            peer.hinted.add((source, psn))
            self.nack(peer, f, psn, path, 0, TRIMMED)

    def take(self, peer, f, kind, flags, psn, length, p, path, marked, now):
        """Sections 5.2 to 5.4 for what belongs to a sequence."""
        high, trimmed, wait = max((behind(q, f.next) for q in f.come), default=-1), kind == DATA and len(p) < 64 + length, MS
        at_once = kind != DATA or flags & ASK or behind(psn, f.next) < high
        if behind(psn, f.next) > 0:
            self.stats["out_of_order"] += 1
        if kind == PROBE:
            self.stats["probes_in"] += 1
            f.probe = (struct.unpack_from(">I", p, 24)[0], now)
        else:
            ts = struct.unpack_from(">I", p, 56 if kind == DATA else 40)[0]
            if not trimmed and (f.late is None or (now - ts - f.late[2]) % 2**32 < 2**31):
                f.late = (ts, now, (now - ts) % 2**32)
            if kind == SKIP:
                self.stats["skips_in"] += 1
                self.on_skip(peer, f, flags, psn, p, path)
            elif self.on_data(peer, f, flags, psn, length, p, path, trimmed):
                wait = 50 * US
        if not trimmed:
            e = f.echoes
            if e and e[-1][0] == path and e[-1][1] < 255:
                e[-1][1:] = [e[-1][1] + 1, e[-1][2] + marked]
            elif len(e) < 64:
                e.append([path, 1, marked])
        f.count += 1
        due = now if at_once or f.count >= 8 else now + wait
        f.due = due if f.due is None else min(f.due, due)

    def nack(self, peer, f, psn, path, message, reason, detail=0):
        self.stats["nacks_out"] += 1
        self.control(peer, NACK, f.source, psn, struct.pack(">BBHIQ", reason, 0, path, message, detail))

    def counts(self, f, psn):
        f.come.add(psn)
        while f.next in f.come:
            f.come.remove(f.next)
            f.next = add(f.next, 1)

    def over(self, f, m):
        m.state = "over"
        while f.message in f.messages and f.messages[f.message].state == "over":
            del f.messages[f.message]
            f.message = add(f.message, 1)

    def decide(self, m, key, offset, total):
        r = self.regions.get(key)
        if r is None:
            m.reason = NO_REGION
        elif not r["writable"]:
            m.reason = NOT_WRITABLE
        elif total > 2**30 or offset + total > len(r["bytes"]):
            m.reason, m.detail = BOUNDS, len(r["bytes"])
        m.state = "refused" if m.reason else "open"

    def on_data(self, peer, f, flags, psn, length, p, path, trimmed):
        """Section 5.2; true when a message is whole."""
        key, offset, number, total, position, imm, _, total_sum = struct.unpack_from(">QQIIIIII", p, 24)
        if behind(psn, f.next) >= 1024:
            return self.nack(peer, f, psn, path, number, WINDOW)
        if behind(psn, f.next) < 0 or psn in f.come:
            f.duplicates = add(f.duplicates, 1)
            return False
        if trimmed:
            return self.nack(peer, f, psn, path, number, TRIMMED)
        piece = p[64:]
        if crc(piece) != total_sum or length == 0 and total != 0 or position + length > total:
            self.stats["dropped"] += 1
            return False
        if behind(number, f.message) >= 256:
            return self.nack(peer, f, psn, path, number, WINDOW)
        if behind(number, f.message) < 0 or number in f.messages and f.messages[number].state == "over":
            return self.counts(f, psn)
        m = f.messages.setdefault(number, Incoming())
        said = (total, imm, flags & IMMEDIATE)
        if m.place is None and m.state in ("unseen", "open"):
            m.said, m.place = m.said or said, (key, offset)
            if total:
                self.decide(m, key, offset, total)
            else:
                m.state = "open"
        if m.state == "refused":
            return self.nack(peer, f, psn, path, number, m.reason, m.detail)
        if said != m.said or total and m.place != (key, offset) or m.got + length > total:
            self.stats["dropped"] += 1
            return False
        last = m.got + length == total
        if last and not self.covered(m, position, length, total):
            self.stats["dropped"] += 1
            return False
        if length:
            r, at = self.regions[key], offset + position
            r["bytes"][at:at + length] = piece
            self.stats["twice"] += length - r["free"].count(1, at, at + length)
            r["free"][at:at + length] = bytes(length)
        m.pieces.append((position, length))
        m.got, f.received = m.got + length, add(f.received, length)
        self.counts(f, psn)
        if last:
            self.whole(peer, f, m)
        return last

    def whole(self, peer, f, m):
        total, imm, has = m.said
        self.over(f, m)
        self.event("came", life=peer.life, total=total, immediate=imm if has else None, missing=sum(n for _, n in m.holes), holes=sorted(m.holes))

    def covered(self, m, position, length, total):
        at = 0
        for b, n in sorted(m.pieces + [(position, length)]):
            if b != at:
                return False
            at += n
        return at == total

    def on_skip(self, peer, f, flags, psn, p, path):
        """Section 5.3."""
        count, number, total, imm, _, size, position = struct.unpack_from(">IIIIIII", p, 24)
        end = behind(psn, f.next) + count
        if count == 0 or end > 1024 or behind(number, f.message) >= 256 or end <= 0:
            return
        m = f.messages.setdefault(number, Incoming()) if behind(number, f.message) >= 0 else Incoming()
        if not flags & HOLES:
            self.over(f, m)
        elif count != 1 or not self.hole(peer, f, m, flags, psn, total, imm, size, position):
            return
        for i in range(count):
            if behind(add(psn, i), f.next) >= 0:
                self.counts(f, add(psn, i))

    def hole(self, peer, f, m, flags, psn, total, imm, size, position):
        if psn in f.come or m.state in ("over", "refused"):
            return True
        if m.said is None:
            m.said, m.state = (total, imm, flags & IMMEDIATE), "open"
        last = m.got + size == total
        if size == 0 or m.got + size > total or position + size > total or m.said != (total, imm, flags & IMMEDIATE):
            return False
        if last and not self.covered(m, position, size, total):
            return False
        m.pieces.append((position, size))
        m.holes.append((position, size))
        m.got += size
        if last:
            self.whole(peer, f, m)
        return True

    def on_reject(self, p, source, now):
        """Section 5.5."""
        self.stats["rejects_in"] += 1
        reason, least, most, _, meant, to_life = struct.unpack_from(">BBBBIQ", p, 24)
        for peer in self.peers.values():
            to = peer.to
            if to_life != self.life or peer.failed or not (to.messages or to.waiting) or peer.life & 0xFFFFFFFF != meant:
                continue
            if source != peer.port - PORT or reason == R_VERSION and least <= 1 <= most:
                continue
            if self.root is not None and (reason != R_STRANGER or any(o.heard for o in peer.opens.values())):
                continue  # anybody can have made it (10.5)
            if reason == R_STRANGER:
                for psn in list(to.flying):
                    self.lose(to, psn)
                peer.until, peer.pause, to.sign = now + peer.pause, min(2 * peer.pause, 50 * MS), now
            else:
                self.fail(peer, "reject %d" % reason)

    def acknowledge(self, peer, f, now):
        high = max((behind(q, f.next) for q in f.come), default=0)
        words = (high + 63) // 64
        bits = 0
        for q in f.come:
            bits |= 1 << 64 * words - behind(q, f.next)
        ts, delay = 0, NOTHING
        if f.probe or f.late:
            ts, at = f.probe or f.late[:2]
            delay = min(now - at, NOTHING)
        senders = sum(len(q.froms) for q in self.peers.values() if now - q.heard < 20 * MS) or 1
        fields = struct.pack(">IIIIIBBH", add(f.next, 1024), ts, delay, f.duplicates, f.received, words, len(f.echoes), max(2, self.room // senders))
        fields += bits.to_bytes(8 * words, "big")
        for path, packets, marked in f.echoes:
            fields += struct.pack(">HBB", path, packets, marked)
        self.stats["ack_words"] = max(self.stats["ack_words"], words)
        self.stats["duplicates_told"] = max(self.stats["duplicates_told"], f.duplicates)
        f.count, f.due, f.probe, f.late, f.echoes = 0, None, None, None, []
        self.control(peer, ACK, f.source, f.next, fields)

    def tick(self, now):
        while self.later and self.later[0][0] <= now:
            _, _, p, ip, destination, path = heapq.heappop(self.later)
            self.emit(p, ip, destination, True, path)
        for peer in self.peers.values():
            if peer.failed:
                continue
            for f in peer.froms.values():
                if f.due is not None and f.due <= now:
                    self.acknowledge(peer, f, now)
            self.late(peer.to, now)
            self.pump(peer.to, now)

    def close(self):
        for peer in self.peers.values():
            engines = set(peer.froms) | {peer.port - PORT}
            for d in engines if not peer.failed else ():
                self.control(peer, CLOSE, d, peer.froms[d].next if d in peer.froms else peer.life >> 32)

    def event(self, name, **fields):
        sys.stdout.write(json.dumps({"event": name, **fields}) + "\n")
        sys.stdout.flush()

    # Commands.

    def command(self, c):
        """Does one command: peer, region, write, cancel, read, stats, close."""
        op = c["op"]
        if op == "peer":
            self.peers[c["life"]] = Peer(self, c)
        elif op == "region":
            self.regions[c["key"]] = {"bytes": bytearray(c["size"]), "free": bytearray(b"\1") * c["size"], "writable": c["writable"]}
        elif op == "write":
            self.write(self.peers[c["life"]], c["id"], c["key"], c["offset"], base64.b64decode(c["data"] or ""), c.get("immediate"),
                c.get("droppable", 0))
        elif op == "cancel":
            self.cancel(self.peers[c["life"]], c["id"])
        elif op == "read":
            self.event("bytes", data=base64.b64encode(self.regions[c["key"]]["bytes"]).decode())
        elif op == "stats":
            self.event("stats", **self.stats)
        elif op == "close":
            self.close()
            return False
        return True

    def run(self):
        rest, go = b"", True
        while go:
            soon = 0.001 if any(p.to.flying or any(f.due for f in p.froms.values()) for p in self.peers.values()) or self.later else 0.02
            ready, _, _ = select.select([0, self.socket], [], [], soon)
            if self.socket in ready:
                self.drain()
            if 0 in ready:
                got = os.read(0, 1 << 20)
                if not got:
                    return
                *lines, rest = (rest + got).split(b"\n")
                for line in lines:
                    go = go and self.command(json.loads(line))
            self.tick(time.monotonic_ns())

    def drain(self):
        for _ in range(8):
            try:
                p, marks, _, addr = self.socket.recvmsg(65536, 64)
            except BlockingIOError:
                return
            self.receive(p, addr, int(any(d[0] & 3 == 3 for _, _, d in marks)), time.monotonic_ns())


def main():
    """Reads the endpoint from the first line, says that it is there, and does commands.

    The endpoint is life, ip, port or the slots of ports to try, paths, mtu, room and faults; secret, readable and packets (of a key) where it
    encrypts. Events: ready (with the port); came (a message is whole, but for holes), sent (one is over, with the error), failed (a peer has),
    bytes and stats (what was asked for). Faults are moduli of PSNs, by kind: lose_in, lose_out, double_out, delay_out, trim_in, trim_out;
    lose_acks is one for ACKs. With hold no more than so many bytes of a message get a PSN, unless it is canceled.
    """
    e = Endpoint(json.loads(sys.stdin.buffer.raw.readline()))
    e.event("ready", port=e.port)
    e.run()


main()
