-- Gentle flow control (fabric/softswitch/PROTOCOL.md, section 1.1): MAC control frames
-- of the extension opcode with the identifier 06 'R' 'G'. Wireshark's own dissector of
-- MAC control comes first and keeps its fields.

local MAC_CONTROL = 0x8808
local GFC_LEN, IDENTIFIER = 24, "\255\254\006RG"

local gfc = Proto("railbed_gfc", "Gentle flow control")

local kinds = { [0] = "buffer-based: stages", [1] = "time-based: shares of the line's rate" }
local f = {
    kind = ProtoField.uint8("railbed_gfc.kind", "Kind", base.DEC, kinds),
    enable = ProtoField.uint8("railbed_gfc.enable", "Priorities with a value", base.HEX),
    priority = ProtoField.uint8("railbed_gfc.priority", "Priority"),
    value = ProtoField.uint16("railbed_gfc.value", "Value"),
}
gfc.fields = f

local function dissect_gfc(tvb, pinfo, root)
    local tree = root:add(gfc, tvb(0, GFC_LEN))
    local kind, enable, rates = tvb(5, 1):uint(), tvb(7, 1):uint(), {}
    tree:add(f.kind, tvb(5, 1))
    tree:add(f.enable, tvb(7, 1))
    for priority = 0, 7 do
        if bit.band(enable, bit.lshift(1, priority)) ~= 0 then
            local at = 8 + 2 * priority
            local value = tvb(at, 2):uint()
            local share = kind == 0 and 1 / 2 ^ value or math.max(value, 1) / 65535
            local text = string.format("%.4g %%", 100 * share)
            local one = tree:add(tvb(at, 2), string.format("Priority %d: %s of the line's rate", priority, text))
            one:add(f.priority, tvb(at, 2), priority):set_generated()
            one:add(f.value, tvb(at, 2))
            rates[#rates + 1] = string.format("%d=%s", priority, text)
        end
    end
    pinfo.cols.protocol = "GFC"
    pinfo.cols.info = "GFC " .. table.concat(rates, " ")
end

local ethertype = DissectorTable.get("ethertype")
local original = ethertype:get_dissector(MAC_CONTROL)

function gfc.dissector(tvb, pinfo, root)
    if original then original:call(tvb, pinfo, root) end
    if tvb:len() >= GFC_LEN and tvb:raw(0, #IDENTIFIER) == IDENTIFIER and kinds[tvb(5, 1):uint()] then
        dissect_gfc(tvb, pinfo, root)
    end
    return tvb:len()
end

ethertype:set(MAC_CONTROL, gfc)
