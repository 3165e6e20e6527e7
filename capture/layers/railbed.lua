-- Railbed's protocols for Wireshark: reliable datagrams, as transports/rd/PROTOCOL.md
-- of Railbed has them, and the blocks of in-band telemetry before them and in probes
-- (fabric/softswitch/PROTOCOL.md). In-network aggregation, gentle flow control and
-- the records of switches follow. Tried with Wireshark 4.0.
--
--   railbed dissector > ~/.local/lib/wireshark/plugins/railbed.lua
--
-- The bit library is Wireshark's own and in every version of it; plain arithmetic is
-- the same in Lua 5.2, where numbers are floating point, and in 5.4. Parts of a packet
-- are told by their offset and never as a Tvb of their own, which would forget how
-- long the packet was before the capture cut it off.

local PORT_INT = 61441
local PORT_RD, PORTS_RD = 61696, 256
local BASE_LEN, DATA_LEN, ACK_LEN = 24, 64, 48
local SEALED_LEN, TAG_LEN = 36, 16
local MAX_WORDS, MAX_ECHOES = 16, 64
local TWO32 = 4294967296

-- CRC-32C, RFC 3720 B.4.
local crc_table = {}
for i = 0, 255 do
    local c = i
    for _ = 1, 8 do
        local low = bit.band(c, 1)
        c = bit.rshift(c, 1)
        if low == 1 then c = bit.bxor(c, 0x82F63B78) end
    end
    crc_table[i] = c
end

local function crc32c(s)
    local c = 0xFFFFFFFF
    for i = 1, #s do
        c = bit.bxor(bit.rshift(c, 8), crc_table[bit.band(bit.bxor(c, s:byte(i)), 0xFF)])
    end
    return bit.bnot(c) % TWO32
end

---------------------------------------------------------------------------
-- In-band telemetry, INT-MD v2.1 with a shim header for UDP.

local int = Proto("railbed_int", "In-band telemetry (INT-MD)")

local i = {
    length = ProtoField.uint8("railbed_int.length", "Words behind the first"),
    next_port = ProtoField.uint16("railbed_int.next_port", "Next port"),
    discard = ProtoField.bool("railbed_int.discard", "Made for its telemetry", 8, nil, 0x08),
    exceeded = ProtoField.bool("railbed_int.exceeded", "A hop found no room", 8, nil, 0x04),
    mtu = ProtoField.bool("railbed_int.mtu_exceeded", "A hop could not make room", 8, nil, 0x02),
    hop_words = ProtoField.uint8("railbed_int.hop_words", "Words of a hop", base.DEC, nil, 0x1F),
    remaining = ProtoField.uint8("railbed_int.remaining", "Hops that may still write"),
    instructions = ProtoField.uint16("railbed_int.instructions", "Instructions", base.HEX),
    domain = ProtoField.uint16("railbed_int.domain", "Domain", base.HEX),
    hops = ProtoField.uint8("railbed_int.hops", "Hops that wrote"),
    switch = ProtoField.uint32("railbed_int.hop.switch", "Switch"),
    ingress = ProtoField.uint16("railbed_int.hop.ingress", "Ingress port"),
    egress = ProtoField.uint16("railbed_int.hop.egress", "Egress port"),
    latency = ProtoField.uint32("railbed_int.hop.latency", "Time in the switch (ns)"),
    queue = ProtoField.uint8("railbed_int.hop.queue", "Queue"),
    queue_bytes = ProtoField.uint24("railbed_int.hop.queue_bytes", "Bytes in the queue"),
    arrival = ProtoField.uint64("railbed_int.hop.arrival", "Arrival (ns)"),
    departure = ProtoField.uint64("railbed_int.hop.departure", "Departure (ns)"),
    ingress2 = ProtoField.uint32("railbed_int.hop.ingress2", "Ingress interface, level 2"),
    egress2 = ProtoField.uint32("railbed_int.hop.egress2", "Egress interface, level 2"),
    utilisation = ProtoField.uint32("railbed_int.hop.utilisation", "Use of the egress link (millionths)"),
    buffer = ProtoField.uint8("railbed_int.hop.buffer", "Buffer"),
    buffer_bytes = ProtoField.uint24("railbed_int.hop.buffer_bytes", "Bytes in the buffer"),
    sequence = ProtoField.uint64("railbed_int.probe.sequence", "Probe"),
    sent = ProtoField.uint64("railbed_int.probe.sent", "Sent (ns)"),
}
int.fields = i
local int_invalid = ProtoExpert.new("railbed_int.invalid", "No valid block of telemetry", expert.group.MALFORMED, expert.severity.ERROR)
int.experts = { int_invalid }

-- What each instruction bit asks for: its bytes, and the fields in them.
local instructions = {
    { 0x8000, 4, { { i.switch, 0, 4 } } },
    { 0x4000, 4, { { i.ingress, 0, 2 }, { i.egress, 2, 2 } } },
    { 0x2000, 4, { { i.latency, 0, 4 } } },
    { 0x1000, 4, { { i.queue, 0, 1 }, { i.queue_bytes, 1, 3 } } },
    { 0x0800, 8, { { i.arrival, 0, 8 } } },
    { 0x0400, 8, { { i.departure, 0, 8 } } },
    { 0x0200, 8, { { i.ingress2, 0, 4 }, { i.egress2, 4, 4 } } },
    { 0x0100, 4, { { i.utilisation, 0, 4 } } },
    { 0x0080, 4, { { i.buffer, 0, 1 }, { i.buffer_bytes, 1, 3 } } },
}

local function popcount(v)
    local n = 0
    while v > 0 do
        n = n + v % 2
        v = (v - v % 2) / 2
    end
    return n
end

-- int_length is the length of the valid block at the start of a Tvb, or nil.
local function int_length(tvb)
    if tvb:len() < 16 then return nil end
    local length = 4 + 4 * tvb(1, 1):uint()
    if tvb(0, 1):bitfield(0, 4) ~= 1 or tvb(4, 1):bitfield(0, 4) ~= 2 or tvb:len() < length then return nil end
    local stack, hop, asked = length / 4 - 4, tvb(6, 1):bitfield(3, 5), tvb(8, 2):uint()
    local least = popcount(asked) + popcount(bit.band(asked, 0x0E00))
    if stack < 0 or hop == 0 or hop < least or stack % hop ~= 0 then return nil end
    if tvb(10, 2):uint() == 0x5242 and tvb(7, 1):uint() > stack / hop then return nil end
    return length
end

local function unknown(tvb, offset, length)
    return tvb:raw(offset, length) == string.rep("\255", length)
end

local function dissect_hop(tvb, offset, length, number, asked, tree)
    local hop = tree:add(tvb(offset, length), "Hop " .. number)
    for _, what in ipairs(instructions) do
        if bit.band(asked, what[1]) ~= 0 then
            if not unknown(tvb, offset, what[2]) then
                for _, field in ipairs(what[3]) do
                    hop:add(field[1], tvb(offset + field[2], field[3]))
                end
            end
            offset = offset + what[2]
        end
    end
end

-- dissect_int shows the block and returns where it ends and the next port, or
-- nothing when there is no valid one.
local function dissect_int(tvb, tree)
    local length = int_length(tvb)
    if not length then
        tree:add(int, tvb()):add_proto_expert_info(int_invalid)
        return nil
    end
    local block = tree:add(int, tvb(0, length))
    local hop, remaining, asked = 4 * tvb(6, 1):bitfield(3, 5), tvb(7, 1):uint(), tvb(8, 2):uint()
    local hops = (length - 16) / hop
    if tvb(10, 2):uint() == 0x5242 then hops = hops - remaining end
    block:add(i.length, tvb(1, 1))
    block:add(i.next_port, tvb(2, 2))
    block:add(i.discard, tvb(4, 1))
    block:add(i.exceeded, tvb(4, 1))
    block:add(i.mtu, tvb(4, 1))
    block:add(i.hop_words, tvb(6, 1))
    block:add(i.remaining, tvb(7, 1))
    block:add(i.instructions, tvb(8, 2))
    block:add(i.domain, tvb(10, 2))
    block:add(i.hops, hops):set_generated()
    for n = 1, hops do
        dissect_hop(tvb, length - n * hop, hop, n, asked, block)
    end
    block:append_text(string.format(", hops=%d, %d may still write", hops, remaining))
    return length, tvb(2, 2):uint(), hops
end

---------------------------------------------------------------------------
-- Reliable datagrams.

local rd = Proto("rd", "Reliable datagram")
rd.prefs.sum = Pref.bool("Verify the sums of payloads", true, "Compute the CRC-32C of each payload that was captured whole")

local types = { [1] = "DATA", [2] = "SKIP", [3] = "ACK", [4] = "NACK", [5] = "PROBE", [6] = "REJECT", [7] = "CLOSE" }
local reasons = { [1] = "trimmed", [2] = "busy", [3] = "no-region", [4] = "not-writable", [5] = "bounds", [6] = "window" }
local rejections = { [1] = "version", [2] = "life", [3] = "stranger", [4] = "security" }
local statuses = { [0] = "Bad", [1] = "Good", [2] = "Unverified" }
local BAD, GOOD, UNVERIFIED = 0, 1, 2

local f = {
    version = ProtoField.uint8("rd.version", "Version", base.DEC, nil, 0x70),
    type = ProtoField.uint8("rd.type", "Type", base.DEC, types, 0x0F),
    flags = ProtoField.uint8("rd.flags", "Flags", base.HEX),
    encrypted = ProtoField.bool("rd.flags.encrypted", "Encrypted", 8, nil, 0x80),
    again = ProtoField.bool("rd.flags.repeat", "Sent before", 8, nil, 0x40),
    has_imm = ProtoField.bool("rd.flags.imm", "The message has an immediate", 8, nil, 0x20),
    droppable = ProtoField.bool("rd.flags.droppable", "The message may have holes", 8, nil, 0x10),
    ack_request = ProtoField.bool("rd.flags.ack_request", "Acknowledge at once", 8, nil, 0x08),
    source = ProtoField.uint8("rd.source", "Source"),
    destination = ProtoField.uint8("rd.destination", "Destination"),
    tag = ProtoField.uint32("rd.tag", "Tag (low half of the receiver's life)", base.HEX),
    life = ProtoField.uint64("rd.life", "Life of the sender", base.HEX),
    psn = ProtoField.uint32("rd.psn", "PSN"),
    length = ProtoField.uint16("rd.length", "Length"),
    check = ProtoField.uint16("rd.check", "Check", base.HEX),
    check_status = ProtoField.uint8("rd.check.status", "Check status", base.DEC, statuses),
    valid = ProtoField.bool("rd.valid", "Valid"),

    key = ProtoField.uint64("rd.data.key", "Key", base.HEX),
    offset = ProtoField.uint64("rd.data.offset", "Offset of the message in the region"),
    message = ProtoField.uint32("rd.data.message", "Message"),
    total = ProtoField.uint32("rd.data.total", "Total"),
    position = ProtoField.uint32("rd.data.position", "Position in the message"),
    imm = ProtoField.uint32("rd.data.imm", "Immediate", base.HEX),
    timestamp = ProtoField.uint32("rd.data.timestamp", "Timestamp (ns)"),
    sum = ProtoField.uint32("rd.data.sum", "Sum", base.HEX),
    sum_status = ProtoField.uint8("rd.data.sum.status", "Sum status", base.DEC, statuses),
    payload = ProtoField.bytes("rd.data.payload", "Payload"),

    skip_count = ProtoField.uint32("rd.skip.count", "Packets that will not come"),
    skip_message = ProtoField.uint32("rd.skip.message", "Message"),
    skip_total = ProtoField.uint32("rd.skip.total", "Total"),
    skip_imm = ProtoField.uint32("rd.skip.imm", "Immediate", base.HEX),
    skip_timestamp = ProtoField.uint32("rd.skip.timestamp", "Timestamp (ns)"),
    skip_bytes = ProtoField.uint32("rd.skip.bytes", "Bytes that will not come"),
    skip_position = ProtoField.uint32("rd.skip.position", "Position"),

    ack_limit = ProtoField.uint32("rd.ack.limit", "Limit"),
    ack_timestamp = ProtoField.uint32("rd.ack.timestamp", "Timestamp echoed (ns)"),
    ack_delay = ProtoField.uint32("rd.ack.delay", "Delay (ns)"),
    ack_duplicates = ProtoField.uint32("rd.ack.duplicates", "Duplicates"),
    ack_received = ProtoField.uint32("rd.ack.received", "Payload bytes received"),
    ack_words = ProtoField.uint8("rd.ack.words", "Words of bitmap"),
    ack_echoes = ProtoField.uint8("rd.ack.echoes", "Echoes"),
    ack_room = ProtoField.uint16("rd.ack.room", "Packets that may be under way"),
    ack_bitmap = ProtoField.uint64("rd.ack.bitmap", "Bitmap", base.HEX),
    ack_psn = ProtoField.uint32("rd.ack.psn", "Came"),
    echo_path = ProtoField.uint16("rd.ack.echo.path", "Path"),
    echo_packets = ProtoField.uint8("rd.ack.echo.packets", "Packets"),
    echo_marked = ProtoField.uint8("rd.ack.echo.marked", "Marked"),

    nack_reason = ProtoField.uint8("rd.nack.reason", "Reason", base.DEC, reasons),
    nack_path = ProtoField.uint16("rd.nack.path", "Path"),
    nack_message = ProtoField.uint32("rd.nack.message", "Message"),
    nack_detail = ProtoField.uint64("rd.nack.detail", "Detail"),

    probe_timestamp = ProtoField.uint32("rd.probe.timestamp", "Timestamp (ns)"),

    reject_reason = ProtoField.uint8("rd.reject.reason", "Reason", base.DEC, rejections),
    reject_least = ProtoField.uint8("rd.reject.least", "Least version"),
    reject_most = ProtoField.uint8("rd.reject.most", "Most version"),
    reject_meant = ProtoField.uint32("rd.reject.meant", "Tag that is rejected", base.HEX),
    reject_to = ProtoField.uint64("rd.reject.to", "Life that is rejected", base.HEX),

    sec_readable = ProtoField.uint8("rd.security.readable", "Words that are authenticated and not encrypted"),
    sec_heard = ProtoField.uint8("rd.security.heard", "Epoch heard (low half)"),
    sec_epoch = ProtoField.uint16("rd.security.epoch", "Epoch"),
    sec_counter = ProtoField.uint64("rd.security.counter", "Counter"),
    readable = ProtoField.bytes("rd.readable", "Authenticated, not encrypted"),
    ciphertext = ProtoField.bytes("rd.encrypted", "Encrypted"),
    sec_tag = ProtoField.bytes("rd.security.tag", "Tag of AES-GCM"),
    excess = ProtoField.bytes("rd.excess", "Bytes behind the datagram"),
}
rd.fields = f

local function finding(name, text, group, severity)
    return ProtoExpert.new("rd." .. name, text, group, severity)
end
local x = {
    base = finding("base.missing", "No base of a reliable datagram", expert.group.MALFORMED, expert.severity.ERROR),
    version = finding("version.unknown", "Another version", expert.group.UNDECODED, expert.severity.WARN),
    type = finding("type.unknown", "Unknown type", expert.group.UNDECODED, expert.severity.WARN),
    short = finding("header.short", "The header is not all there", expert.group.MALFORMED, expert.severity.ERROR),
    length = finding("length.bad", "Lengths contradict each other", expert.group.MALFORMED, expert.severity.ERROR),
    check = finding("check.bad", "Wrong check", expert.group.CHECKSUM, expert.severity.ERROR),
    sum = finding("data.sum.bad", "Wrong sum", expert.group.CHECKSUM, expert.severity.ERROR),
    trimmed = finding("trimmed", "Trimmed: payload is missing", expert.group.SEQUENCE, expert.severity.NOTE),
    again = finding("repeated", "Sent before", expert.group.SEQUENCE, expert.severity.CHAT),
    port = finding("destination.port", "Destination is not the datagram's port", expert.group.PROTOCOL, expert.severity.WARN),
    nack = finding("nack", "Not taken", expert.group.RESPONSE_CODE, expert.severity.NOTE),
    reject = finding("reject", "Rejected", expert.group.RESPONSE_CODE, expert.severity.WARN),
}
rd.experts = x

-- A packet under dissection, p: tvb; at, where it begins in there; there, the bytes
-- that were captured; sent, those that the datagram had; tree; info.

-- range is bytes of the plain datagram: shift is the length of the security header
-- of one that is encrypted but for its header.
local function range(p, offset, length)
    if p.shift and offset >= BASE_LEN then offset = offset + p.shift end
    return p.tvb(p.at + offset, length)
end

local function uint(p, offset, length) return range(p, offset, length):uint() end

local function add(p, tree, field, offset, length) return tree:add(field, range(p, offset, length)) end

local function find(p, tree, what, text)
    if text then tree:add_proto_expert_info(what, text) else tree:add_proto_expert_info(what) end
end

-- spell writes ascending numbers as ranges, at most a dozen of these.
local function spell(numbers)
    local parts, from, last = {}, nil, nil
    local function flush()
        if from then parts[#parts + 1] = from == last and string.format("%.0f", from) or string.format("%.0f-%.0f", from, last) end
    end
    for _, n in ipairs(numbers) do
        if last ~= nil and n == last + 1 then
            last = n
        else
            flush()
            if #parts == 12 then return table.concat(parts, ",") .. ",..." end
            from, last = n, n
        end
    end
    flush()
    return table.concat(parts, ",")
end

local function dissect_base(p)
    local tree = p.tree
    add(p, tree, f.version, 0, 1)
    add(p, tree, f.type, 0, 1)
    local flags = add(p, tree, f.flags, 1, 1)
    for _, flag in ipairs({ f.encrypted, f.again, f.has_imm, f.droppable, f.ack_request }) do
        add(p, flags, flag, 1, 1)
    end
    add(p, tree, f.source, 2, 1):append_text(" (port " .. PORT_RD + uint(p, 2, 1) .. ")")
    local destination = add(p, tree, f.destination, 3, 1)
    destination:append_text(" (port " .. PORT_RD + uint(p, 3, 1) .. ")")
    if PORT_RD + uint(p, 3, 1) ~= p.port then find(p, destination, x.port) end
    add(p, tree, f.tag, 4, 4)
    add(p, tree, f.life, 8, 8)
    add(p, tree, f.psn, 16, 4)
    add(p, tree, f.length, 20, 2)
end

-- dissect_check shows the check over the first bytes; nil says that nobody knows
-- how many. It returns the status.
local function dissect_check(p, bytes)
    local check = add(p, p.tree, f.check, 22, 2)
    local status = UNVERIFIED
    if bytes and bytes <= p.there then
        local want = crc32c(p.tvb:raw(p.at, 22) .. "\0\0" .. p.tvb:raw(p.at + 24, bytes - 24)) % 65536
        status = want == uint(p, 22, 2) and GOOD or BAD
        if status == BAD then find(p, check, x.check, string.format("Wrong check, should be 0x%04x", want)) end
    end
    check:append_text(" [" .. statuses[status]:lower() .. "]")
    check:add(f.check_status, status):set_generated()
    return status
end

local function dissect_sum(p, tree, length)
    local sum = add(p, tree, f.sum, 60, 4)
    local status = UNVERIFIED
    if rd.prefs.sum and not p.shift and p.there >= DATA_LEN + length then
        local want = crc32c(length > 0 and p.tvb:raw(p.at + DATA_LEN, length) or "")
        status = want == uint(p, 60, 4) and GOOD or BAD
        if status == BAD then find(p, sum, x.sum, string.format("Wrong sum, should be 0x%08x", want)) end
    end
    sum:append_text(" [" .. statuses[status]:lower() .. "]")
    sum:add(f.sum_status, status):set_generated()
    return status
end

local function show_flags(p, flags)
    if bit.band(flags, 0x40) ~= 0 then p.info = p.info .. " RTX" end
    if bit.band(flags, 0x10) ~= 0 then p.info = p.info .. " DROPPABLE" end
    if bit.band(flags, 0x08) ~= 0 then p.info = p.info .. " ACKREQ" end
end

local show = {}

show[1] = function(p, tree)
    local length, flags = uint(p, 20, 2), uint(p, 1, 1)
    add(p, tree, f.key, 24, 8)
    add(p, tree, f.offset, 32, 8)
    add(p, tree, f.message, 40, 4)
    add(p, tree, f.total, 44, 4)
    add(p, tree, f.position, 48, 4)
    add(p, tree, f.imm, 52, 4)
    add(p, tree, f.timestamp, 56, 4)
    local status = dissect_sum(p, tree, length)
    local payload = math.min(length, p.there - DATA_LEN)
    if payload > 0 and not p.shift then add(p, tree, f.payload, DATA_LEN, payload) end
    p.info = p.info .. string.format(" msg=%.0f %d@%.0f/%.0f key=0x%s+%s", uint(p, 40, 4), length, uint(p, 48, 4), uint(p, 44, 4),
        range(p, 24, 8):uint64():tohex(), tostring(range(p, 32, 8):uint64()))
    if bit.band(flags, 0x20) ~= 0 then p.info = p.info .. string.format(" imm=0x%s", tostring(range(p, 52, 4):bytes()):lower()) end
    if bit.band(flags, 0x40) ~= 0 then find(p, p.tree, x.again) end
    show_flags(p, flags)
    if not p.shift and p.sent < DATA_LEN + length then
        find(p, p.tree, x.trimmed, string.format("Trimmed: %d of %d bytes of payload are missing", DATA_LEN + length - p.sent, length))
        p.info = p.info .. " [trimmed]"
    end
    if status == BAD then p.info = p.info .. " [wrong sum]" end
end

show[2] = function(p, tree)
    add(p, tree, f.skip_count, 24, 4)
    add(p, tree, f.skip_message, 28, 4)
    add(p, tree, f.skip_total, 32, 4)
    add(p, tree, f.skip_imm, 36, 4)
    add(p, tree, f.skip_timestamp, 40, 4)
    add(p, tree, f.skip_bytes, 44, 4)
    add(p, tree, f.skip_position, 48, 4)
    p.info = p.info .. string.format(" count=%.0f msg=%.0f without %.0f@%.0f/%.0f", uint(p, 24, 4), uint(p, 28, 4), uint(p, 44, 4), uint(p, 48, 4), uint(p, 32, 4))
    show_flags(p, uint(p, 1, 1))
end

-- show_bitmap adds each PSN that came and returns them all.
local function show_bitmap(p, tree, words)
    local psn, came = uint(p, 16, 4), {}
    for w = 0, words - 1 do
        local at = ACK_LEN + 8 * w
        local word = add(p, tree, f.ack_bitmap, at, 8)
        word:append_text(string.format(" (from PSN %.0f on)", (psn + 1 + 64 * w) % TWO32))
        for n = 0, 63 do
            local byte = at + math.floor(n / 8)
            if bit.band(uint(p, byte, 1), bit.rshift(0x80, n % 8)) ~= 0 then
                local number = (psn + 1 + 64 * w + n) % TWO32
                came[#came + 1] = number
                word:add(f.ack_psn, range(p, byte, 1), number):set_generated()
            end
        end
    end
    return came
end

show[3] = function(p, tree)
    local words, echoes = uint(p, 44, 1), uint(p, 45, 1)
    add(p, tree, f.ack_limit, 24, 4)
    add(p, tree, f.ack_timestamp, 28, 4)
    add(p, tree, f.ack_delay, 32, 4)
    add(p, tree, f.ack_duplicates, 36, 4)
    add(p, tree, f.ack_received, 40, 4)
    add(p, tree, f.ack_words, 44, 1)
    add(p, tree, f.ack_echoes, 45, 1)
    add(p, tree, f.ack_room, 46, 2)
    local came = show_bitmap(p, tree, words)
    local packets, marked = 0, 0
    for e = 0, echoes - 1 do
        local at = ACK_LEN + 8 * words + 4 * e
        local echo = tree:add(range(p, at, 4), string.format("By path %d: %d packets, %d marked", uint(p, at, 2), uint(p, at + 2, 1), uint(p, at + 3, 1)))
        add(p, echo, f.echo_path, at, 2)
        add(p, echo, f.echo_packets, at + 2, 1)
        add(p, echo, f.echo_marked, at + 3, 1)
        packets, marked = packets + uint(p, at + 2, 1), marked + uint(p, at + 3, 1)
    end
    if #came > 0 then p.info = p.info .. " came=" .. spell(came) end
    p.info = p.info .. string.format(" limit=%.0f room=%d", uint(p, 24, 4), uint(p, 46, 2))
    if echoes > 0 then p.info = p.info .. string.format(" marked=%d/%d", marked, packets) end
end

show[4] = function(p, tree)
    local reason = add(p, tree, f.nack_reason, 24, 1)
    add(p, tree, f.nack_path, 26, 2)
    add(p, tree, f.nack_message, 28, 4)
    add(p, tree, f.nack_detail, 32, 8)
    local name = reasons[uint(p, 24, 1)] or ("reason " .. uint(p, 24, 1))
    find(p, reason, x.nack, "Not taken: " .. name)
    p.info = p.info .. string.format(" %s msg=%.0f path=%d", name, uint(p, 28, 4), uint(p, 26, 2))
    if name == "bounds" then p.info = p.info .. " region=" .. tostring(range(p, 32, 8):uint64()) end
end

show[5] = function(p, tree)
    add(p, tree, f.probe_timestamp, 24, 4)
    show_flags(p, uint(p, 1, 1))
end

show[6] = function(p, tree)
    local reason = add(p, tree, f.reject_reason, 24, 1)
    add(p, tree, f.reject_least, 25, 1)
    add(p, tree, f.reject_most, 26, 1)
    add(p, tree, f.reject_meant, 28, 4)
    add(p, tree, f.reject_to, 32, 8)
    local name = rejections[uint(p, 24, 1)] or ("reason " .. uint(p, 24, 1))
    find(p, reason, x.reject, "Rejected: " .. name)
    p.info = p.info .. string.format(" %s versions=%d-%d meant=0x%s to=0x%s", name, uint(p, 25, 1), uint(p, 26, 1), tostring(range(p, 28, 4):bytes()):lower(), range(p, 32, 8):uint64():tohex())
end

show[7] = function() end

local header_lens = { DATA_LEN, 52, ACK_LEN, 40, 32, 40, BASE_LEN }

-- header_len is what the type, and an ACK's lists, make of the header, or nil
-- where that is not there to be read or too much.
local function header_len(p, kind)
    local header = header_lens[kind]
    if p.there < header then return nil end
    if kind == 3 then
        local words, echoes = uint(p, 44, 1), uint(p, 45, 1)
        if words > MAX_WORDS or echoes > MAX_ECHOES then return nil end
        header = header + 8 * words + 4 * echoes
    end
    return p.there >= header and header or nil
end

-- dissect_fields shows what stands behind the base, and returns whether the
-- lengths agree.
local function dissect_fields(p, kind, header)
    local length, most = uint(p, 20, 2), header
    if kind == 1 then most = header + length end
    local tree = header > BASE_LEN and p.tree:add(range(p, BASE_LEN, header - BASE_LEN), types[kind]) or p.tree
    show[kind](p, tree)
    if p.there > most then add(p, p.tree, f.excess, most, p.there - most) end
    if p.sent > most or kind ~= 1 and length > 0 then
        find(p, p.tree, x.length)
        return false
    end
    return true
end

-- dissect_sealed shows what can be seen behind the base of an encrypted datagram. The
-- tag is where nothing was cut off.
local function dissect_sealed(p, kind)
    if p.there < SEALED_LEN then
        if p.there > BASE_LEN then add(p, p.tree, f.ciphertext, BASE_LEN, p.there - BASE_LEN) end
        p.info = p.info .. " [encrypted]"
        return
    end
    local security = p.tree:add(range(p, BASE_LEN, SEALED_LEN - BASE_LEN), "Security")
    add(p, security, f.sec_readable, 24, 1)
    add(p, security, f.sec_heard, 25, 1)
    add(p, security, f.sec_epoch, 26, 2)
    add(p, security, f.sec_counter, 28, 8)
    p.info = p.info .. string.format(" epoch=%d counter=%s", uint(p, 26, 2), tostring(range(p, 28, 8):uint64()))
    local most = DATA_LEN + (SEALED_LEN - BASE_LEN) + TAG_LEN + uint(p, 20, 2)
    local trimmed = kind == 1 and p.sent < most
    if trimmed then
        find(p, p.tree, x.trimmed, string.format("Trimmed: %d bytes are missing, the tag among them", most - p.sent))
    end
    local body, tag = p.there - SEALED_LEN, 0
    if not trimmed and p.there == p.sent and body >= TAG_LEN then tag = TAG_LEN end
    local readable = math.min(4 * uint(p, 24, 1), body - tag)
    if readable > 0 then
        add(p, p.tree, f.readable, SEALED_LEN, readable)
        local plain = { tvb = p.tvb, at = p.at, there = BASE_LEN + readable, tree = p.tree, info = "", shift = SEALED_LEN - BASE_LEN }
        local header = header_len(plain, kind)
        if header and header > BASE_LEN then
            show[kind](plain, p.tree:add(range(plain, BASE_LEN, header - BASE_LEN), types[kind]))
            p.info = p.info .. plain.info
        end
    end
    p.info = p.info .. " [encrypted]" .. (trimmed and " [trimmed]" or "")
    if body - tag > readable then add(p, p.tree, f.ciphertext, SEALED_LEN + readable, body - tag - readable) end
    if tag > 0 then add(p, security, f.sec_tag, p.there - tag, tag) end
end

-- dissect_known dissects a datagram of our version and a known type. It returns the
-- status of the check, and whether it is valid: nil where the capture left that open.
local function dissect_known(p, kind)
    if bit.band(uint(p, 1, 1), 0x80) ~= 0 then
        local status = dissect_check(p, BASE_LEN)
        dissect_sealed(p, kind)
        return status, status == GOOD
    end
    local header = header_len(p, kind)
    local status = dissect_check(p, header)
    if not header then
        p.info = p.info .. " [header cut off]"
        if p.there < p.sent then return status, nil end
        find(p, p.tree, x.short)
        return status, false
    end
    local agree = dissect_fields(p, kind, header)
    return status, agree and status == GOOD
end

-- dissect_rd shows the datagram from an offset on, to the end of the Tvb.
local function dissect_rd(tvb, at, pinfo, root)
    local p = { tvb = tvb, at = at, there = tvb:len() - at, sent = tvb:reported_len() - at, port = pinfo.dst_port }
    pinfo.cols.protocol = "RD"
    if p.there < BASE_LEN or uint(p, 0, 1) < 0x80 then
        local tree = p.there > 0 and root:add(rd, tvb(at)) or root:add(rd)
        find(p, tree, x.base)
        return "[no base]"
    end
    p.tree = root:add(rd, tvb(at))
    local version, kind = range(p, 0, 1):bitfield(1, 3), range(p, 0, 1):bitfield(4, 4)
    local name = types[kind] or ("type " .. kind)
    p.info = string.format("%s psn=%.0f", name, uint(p, 16, 4))
    dissect_base(p)
    local status, valid = UNVERIFIED, false
    if version ~= 1 or not types[kind] then
        dissect_check(p, nil)
        if version ~= 1 then find(p, p.tree, x.version) else find(p, p.tree, x.type) end
        if version ~= 1 then p.info = p.info .. " [version " .. version .. "]" end
        if p.there > BASE_LEN then add(p, p.tree, f.excess, BASE_LEN, p.there - BASE_LEN) end
    else
        status, valid = dissect_known(p, kind)
    end
    if valid ~= nil then p.tree:add(f.valid, valid):set_generated() end
    if status == BAD then p.info = p.info .. " [wrong check]" end
    p.tree:append_text(", " .. p.info)
    return p.info
end

---------------------------------------------------------------------------

-- dissect_probe shows what follows the block of a telemetry probe.
local function dissect_probe(tvb, at, root)
    if tvb:len() < at + 16 then return end
    local tree = root:add(int, tvb(at, 16), "Telemetry probe")
    tree:add(i.sequence, tvb(at, 8))
    tree:add(i.sent, tvb(at + 8, 8))
end

function int.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "INT"
    local length, port, hops = dissect_int(tvb, root)
    if not length then
        pinfo.cols.info = "[no valid block of telemetry]"
        return
    end
    local info = string.format("INT hops=%d", hops)
    if port == PORT_INT then
        dissect_probe(tvb, length, root)
        info = "probe, " .. info
    elseif port >= PORT_RD and port < PORT_RD + PORTS_RD then
        info = dissect_rd(tvb, length, pinfo, root) .. " [" .. info .. "]"
    elseif tvb:len() > length then
        DissectorTable.get("udp.port"):try(port, tvb(length):tvb(), pinfo, root)
        return
    end
    pinfo.cols.info = info
end

function rd.dissector(tvb, pinfo, root)
    if tvb:len() > 0 and tvb(0, 1):uint() < 0x80 then
        return int.dissector(tvb, pinfo, root)
    end
    pinfo.cols.info = dissect_rd(tvb, 0, pinfo, root)
end

local ports = DissectorTable.get("udp.port")
ports:add(PORT_INT, int)
ports:add(PORT_RD .. "-" .. PORT_RD + PORTS_RD - 1, rd)
