-- In-network aggregation (fabric/softswitch/PROTOCOL.md, section 3): messages to and
-- from UDP port 61442.

local PORT_AGGREGATION = 61442
local HEADER_LEN, VERSION, MAX_FAN_IN = 36, 3, 64

local agg = Proto("railbed_agg", "In-network aggregation")

local kinds = { [1] = "UPDATE", [2] = "RESULT", [3] = "REJECT", [4] = "PARTIAL" }
local UPDATE, RESULT, REJECT, PARTIAL = 1, 2, 3, 4
local types = { [1] = "float32", [2] = "fixed", [3] = "int32", [4] = "bfloat16", [5] = "float16" }
local sizes = { 4, 4, 4, 2, 2 }
local ops = { [0] = "sum", [1] = "max", [2] = "min" }
local codes = {
    [0] = "none", [1] = "version-unknown", [2] = "job-unknown", [3] = "epoch-old", [4] = "worker-wrong",
    [5] = "slot-unknown", [6] = "mismatch", [7] = "timeout",
}

local f = {
    version = ProtoField.uint8("railbed_agg.version", "Version", base.DEC, nil, 0xF0),
    kind = ProtoField.uint8("railbed_agg.kind", "Kind", base.DEC, kinds, 0x0F),
    flags = ProtoField.uint8("railbed_agg.flags", "Flags", base.HEX),
    saturated = ProtoField.bool("railbed_agg.flags.saturated", "A sum was held at the end of its range", 8, nil, 0x04),
    again = ProtoField.bool("railbed_agg.flags.repeat", "Sent before", 8, nil, 0x02),
    set = ProtoField.uint8("railbed_agg.flags.set", "Set of the slot", base.DEC, nil, 0x01),
    op = ProtoField.uint8("railbed_agg.op", "Operation", base.DEC, ops, 0xF0),
    type = ProtoField.uint8("railbed_agg.type", "Type", base.DEC, types, 0x0F),
    code = ProtoField.uint8("railbed_agg.code", "Code", base.DEC, codes),
    job = ProtoField.uint16("railbed_agg.job", "Job"),
    epoch = ProtoField.uint16("railbed_agg.epoch", "Epoch"),
    slot = ProtoField.uint16("railbed_agg.slot", "Slot"),
    worker = ProtoField.uint8("railbed_agg.worker", "Worker"),
    fan_in = ProtoField.uint8("railbed_agg.fan_in", "Workers of the job"),
    key = ProtoField.uint32("railbed_agg.key", "Key", base.HEX),
    round = ProtoField.uint32("railbed_agg.round", "Round"),
    offset = ProtoField.uint32("railbed_agg.offset", "First element"),
    bitmap = ProtoField.uint64("railbed_agg.bitmap", "Workers included", base.HEX),
    elements = ProtoField.uint16("railbed_agg.elements", "Elements"),
    scale = ProtoField.int8("railbed_agg.scale", "Scale"),
    next_scale = ProtoField.int8("railbed_agg.next_scale", "Next scale"),
    data = ProtoField.bytes("railbed_agg.data", "Data"),
}
agg.fields = f
local invalid = ProtoExpert.new("railbed_agg.invalid", "No valid message", expert.group.MALFORMED, expert.severity.ERROR)
local version = ProtoExpert.new("railbed_agg.version.unknown", "Another version", expert.group.UNDECODED, expert.severity.WARN)
local again = ProtoExpert.new("railbed_agg.repeated", "Sent before", expert.group.SEQUENCE, expert.severity.CHAT)
local saturated = ProtoExpert.new("railbed_agg.saturated", "A sum was held at the end of its range", expert.group.SEQUENCE, expert.severity.WARN)
local rejected = ProtoExpert.new("railbed_agg.rejected", "Rejected", expert.group.RESPONSE_CODE, expert.severity.WARN)
agg.experts = { invalid, version, again, saturated, rejected }

-- included lists the workers of the bitmap in ascending order, without an arithmetic
-- of 64 bits, which Lua 5.2 lacks.
local function included(tvb)
    local workers = {}
    for n = 0, 63 do
        if bit.band(tvb(31 - (n - n % 8) / 8, 1):uint(), bit.lshift(1, n % 8)) ~= 0 then workers[#workers + 1] = n end
    end
    return workers
end

-- problem says what contradicts the specification, or is nil.
local function problem(tvb)
    local kind, flags, op, type = tvb(0, 1):bitfield(4, 4), tvb(1, 1):uint(), tvb(2, 1):bitfield(0, 4), tvb(2, 1):bitfield(4, 4)
    local fan_in, worker, elements, code = tvb(11, 1):uint(), tvb(10, 1):uint(), tvb(32, 2):uint(), tvb(3, 1):uint()
    if not kinds[kind] then return "unknown kind" end
    if flags > 7 then return "unknown flags" end
    if flags % 2 ~= tvb(16, 4):uint() % 2 then return "the set is not the round's" end
    if not types[type] or not ops[op] or type == 2 and op ~= 0 then return "unknown type or operation" end
    if fan_in == 0 or fan_in > MAX_FAN_IN or worker >= fan_in then return "worker out of range" end
    local workers = included(tvb)
    if #workers > 0 and workers[#workers] >= fan_in then return "bitmap out of range" end
    if kind == UPDATE and not (#workers == 1 and workers[1] == worker) or kind == PARTIAL and workers[1] ~= worker or
        kind == RESULT and #workers == 0 then
        return "bitmap does not fit the kind"
    end
    if kind == REJECT and (elements > 0 or code == 0) or kind ~= REJECT and (elements == 0 or code ~= 0) then
        return "elements or code do not fit the kind"
    end
    if tvb:reported_len() ~= HEADER_LEN + sizes[type] * elements then return "length is not that of the elements" end
end

-- The fields that keep their place in every version.
local kept = {
    { f.kind, 0, 1 }, { f.code, 3, 1 }, { f.job, 4, 2 }, { f.epoch, 6, 2 }, { f.slot, 8, 2 }, { f.worker, 10, 1 },
    { f.key, 12, 4 }, { f.round, 16, 4 },
}
local others = {
    { f.op, 2, 1 }, { f.type, 2, 1 }, { f.fan_in, 11, 1 }, { f.offset, 20, 4 }, { f.bitmap, 24, 8 },
    { f.elements, 32, 2 }, { f.scale, 34, 1 }, { f.next_scale, 35, 1 },
}

local function show(tvb, tree)
    local flags = tree:add(f.flags, tvb(1, 1))
    flags:add(f.saturated, tvb(1, 1))
    flags:add(f.again, tvb(1, 1))
    flags:add(f.set, tvb(1, 1))
    for _, o in ipairs(others) do tree:add(o[1], tvb(o[2], o[3])) end
    if tvb:len() > HEADER_LEN then tree:add(f.data, tvb(HEADER_LEN)) end
    local bits = tvb(1, 1):uint()
    if bit.band(bits, 4) ~= 0 then flags:add_proto_expert_info(saturated) end
    if bit.band(bits, 2) ~= 0 then flags:add_proto_expert_info(again) end
    local info = string.format(" worker=%d/%d", tvb(10, 1):uint(), tvb(11, 1):uint())
    if tvb(0, 1):bitfield(4, 4) == REJECT then
        local name = codes[tvb(3, 1):uint()] or ("code " .. tvb(3, 1):uint())
        tree:add_proto_expert_info(rejected, "Rejected: " .. name)
        info = info .. " " .. name
    else
        info = info .. string.format(" %s of %s %d@%.0f", ops[tvb(2, 1):bitfield(0, 4)] or "?", types[tvb(2, 1):bitfield(4, 4)] or "?",
            tvb(32, 2):uint(), tvb(20, 4):uint())
    end
    if bit.band(bits, 2) ~= 0 then info = info .. " RTX" end
    return info
end

function agg.dissector(tvb, pinfo, root)
    if tvb:len() < HEADER_LEN then return 0 end
    pinfo.cols.protocol = "AGG"
    local tree = root:add(agg, tvb())
    tree:add(f.version, tvb(0, 1))
    for _, o in ipairs(kept) do tree:add(o[1], tvb(o[2], o[3])) end
    local kind = tvb(0, 1):bitfield(4, 4)
    local info = string.format("%s job=%d epoch=%d slot=%d round=%.0f", kinds[kind] or ("kind " .. kind), tvb(4, 2):uint(),
        tvb(6, 2):uint(), tvb(8, 2):uint(), tvb(16, 4):uint())
    if tvb(0, 1):bitfield(0, 4) ~= VERSION then
        tree:add_proto_expert_info(version)
        info = info .. " [version " .. tvb(0, 1):bitfield(0, 4) .. "]"
    else
        info = info .. show(tvb, tree)
        local what = problem(tvb)
        if what then
            tree:add_proto_expert_info(invalid, "No valid message: " .. what)
            info = info .. " [" .. what .. "]"
        end
    end
    tree:append_text(", " .. info)
    pinfo.cols.info = info
    return tvb:len()
end

DissectorTable.get("udp.port"):add(PORT_AGGREGATION, agg)
