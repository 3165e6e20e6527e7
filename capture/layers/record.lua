-- What Railbed's recordings say of a packet beside its bytes, as fields: the comment
-- that switches write, and the tap. capture/display has the same fields under the same
-- names. A recording that lacks a value has no field.
--
--   railbed.verdict == "drop" && railbed.depth > 64000
--
-- railbed.rank is the rank that sent a packet. It is there for packets that leave the
-- NIC of one rank. railbed.message is the number in the packet's header. The fields
-- run.message and run.rank of railbed decode need a whole run.

local record = Proto("railbed", "Railbed")

local f = {
    node = ProtoField.string("railbed.node", "Node or switch of the tap"),
    port = ProtoField.string("railbed.port", "Port of the tap"),
    rank = ProtoField.uint32("railbed.rank", "Rank that sent the packet"),
    verdict = ProtoField.string("railbed.verdict", "Verdict"),
    reason = ProtoField.string("railbed.reason", "Reason"),
    fault = ProtoField.string("railbed.fault", "Fault"),
    depth = ProtoField.uint64("railbed.depth", "Depth of the queue (bytes)"),
    late = ProtoField.relative_time("railbed.late", "Late"),
    message = ProtoField.uint32("railbed.message", "Message"),
}
record.fields = f

local name_of = Field.new("frame.interface_name")
local description_of = Field.new("frame.interface_description")
local direction_of = Field.new("frame.packet_flags_direction")
local comments = Field.new("frame.comment")
-- Message numbers of reliable datagrams, and the round of an aggregation's slot.
local messages = { Field.new("rd.data.message"), Field.new("rd.skip.message"), Field.new("rd.nack.message"), Field.new("railbed_agg.round") }

local OUTBOUND = 2

local function nstime(ns)
    local seconds = ns < 0 and math.ceil(ns / 1e9) or math.floor(ns / 1e9)
    return NSTime.new(seconds, ns - seconds * 1e9)
end

local function whole(text) return text:match("^[+-]?%d+$") and tonumber(text) end

-- The pairs of a comment in their order, and what each becomes; nil refuses the comment.
local pairs_of = {
    verdict = { 1, function(v) return v end },
    reason = { 2, function(v) return v end },
    name = { 3, function(v) return v end },
    depth = { 4, whole },
    late = { 5, function(v) return whole(v:match("^(.*)ns$") or "") end },
}

-- parse returns the values of a comment of the grammar, or nil for any other comment.
local function parse(comment)
    local rest = comment:match("^railbed(.*)$")
    if not rest then return nil end
    local values, last = {}, 0
    while rest ~= "" do
        local key, value, after = rest:match("^ ([^ =]*)=([^ ]+)(.*)$")
        local known = key and pairs_of[key]
        if not known or known[1] <= last then return nil end
        last = known[1]
        values[key] = known[2](value)
        if values[key] == nil then return nil end
        rest = after
    end
    return values
end

-- annotation is the last comment of the grammar, as in package display.
local function annotation()
    local found
    for _, info in ipairs({ comments() }) do
        found = parse(tostring(info.value)) or found
    end
    return found
end

local function tap(fields)
    local name = name_of()
    local node, port = (name and tostring(name.value) or ""):match("^([a-z][a-z0-9-]*):([%w._-]+)$")
    if not node then return end
    fields[#fields + 1] = { f.node, node }
    fields[#fields + 1] = { f.port, port }
    local description, direction = description_of(), direction_of()
    local rank = (description and tostring(description.value) or ""):match("^[^ ]+ ranks=(%d+)$")
    if rank and direction and direction.value == OUTBOUND then
        fields[#fields + 1] = { f.rank, tonumber(rank) }
    end
end

local function switch(note, fields)
    if note.verdict then fields[#fields + 1] = { f.verdict, note.verdict } end
    if note.reason then fields[#fields + 1] = { f.reason, note.reason } end
    if note.name then fields[#fields + 1] = { f.fault, note.name } end
    if note.depth and note.depth >= 0 then fields[#fields + 1] = { f.depth, UInt64.new(string.format("%.0f", note.depth)) } end
    if note.late then fields[#fields + 1] = { f.late, nstime(note.late) } end
end

function record.dissector(tvb, _, root)
    local fields, note = {}, annotation()
    tap(fields)
    if note then switch(note, fields) end
    for _, of in ipairs(messages) do
        for _, info in ipairs({ of() }) do
            fields[#fields + 1] = { f.message, info.value }
        end
    end
    if not note and #fields == 0 then return end
    -- The protocol itself is a field, too: it means that a switch wrote a record.
    local tree = note and root:add(record, tvb(0, 0)) or root:add(tvb(0, 0), "Railbed")
    for _, field in ipairs(fields) do
        tree:add(field[1], tvb(0, 0), field[2]):set_generated()
    end
end

register_postdissector(record)
