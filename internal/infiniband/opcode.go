package infiniband

import "fmt"

// Opcode is the type of a packet: three bits of transport service and five of the operation (9.2.1,
// table 38).
type Opcode uint8

// Service is the transport service of an opcode.
type Service uint8

// Services.
const (
	RC Service = 0    // reliable connection
	UC Service = 0x20 // unreliable connection
	UD Service = 0x60 // unreliable datagram
)

// Operations of the RC service. The opcodes of UC, up to RDMAWriteOnlyImm, and of UD, only
// UDSendOnly, are the same plus the service.
const (
	SendFirst          Opcode = 0x00
	SendMiddle         Opcode = 0x01
	SendLast           Opcode = 0x02
	SendLastImm        Opcode = 0x03
	SendOnly           Opcode = 0x04
	SendOnlyImm        Opcode = 0x05
	WriteFirst         Opcode = 0x06
	WriteMiddle        Opcode = 0x07
	WriteLast          Opcode = 0x08
	WriteLastImm       Opcode = 0x09
	WriteOnly          Opcode = 0x0A
	WriteOnlyImm       Opcode = 0x0B
	ReadRequest        Opcode = 0x0C
	ReadResponseFirst  Opcode = 0x0D
	ReadResponseMiddle Opcode = 0x0E
	ReadResponseLast   Opcode = 0x0F
	ReadResponseOnly   Opcode = 0x10
	Acknowledge        Opcode = 0x11
	AtomicAcknowledge  Opcode = 0x12
	CompareSwap        Opcode = 0x13
	FetchAdd           Opcode = 0x14
	SendLastInvalidate Opcode = 0x16
	SendOnlyInvalidate Opcode = 0x17

	UDSendOnly    = SendOnly + Opcode(UD)
	UDSendOnlyImm = SendOnlyImm + Opcode(UD)

	// CNP is the congestion notification packet, which belongs to no service (A17.9.3).
	CNP Opcode = 0x81
)

// Header is a set of extended transport headers, which follow the BTH.
type Header uint8

// Headers, in the order in which a packet has them.
const (
	HasDETH Header = 1 << iota
	HasRETH
	HasAtomicETH
	HasAETH
	HasAtomicAckETH
	HasImmDt
	HasIETH
	hasReserved // of a CNP, 16 bytes
)

var headerLens = [...]int{DETHLen, RETHLen, AtomicETHLen, AETHLen, AtomicAckETHLen, ImmDtLen, IETHLen,
	cnpReserved}

// role is the role of a packet in its message.
type role uint8

const (
	first    role = 1 << iota // One of several packets.
	middle                    // One of several packets.
	last                      // One of several packets.
	only                      // The only packet of its message.
	request                   // From the requester.
	response                  // From the responder.
	payload                   // It has a payload, perhaps an empty one.
)

// kind is a row of the table of opcodes.
type kind struct {
	name    string
	headers Header
	role    role
}

// operations is indexed by the low five bits (table 38).
var operations = [32]kind{
	SendFirst:          {"SEND_FIRST", 0, first | request | payload},
	SendMiddle:         {"SEND_MIDDLE", 0, middle | request | payload},
	SendLast:           {"SEND_LAST", 0, last | request | payload},
	SendLastImm:        {"SEND_LAST_IMM", HasImmDt, last | request | payload},
	SendOnly:           {"SEND_ONLY", 0, only | request | payload},
	SendOnlyImm:        {"SEND_ONLY_IMM", HasImmDt, only | request | payload},
	WriteFirst:         {"WRITE_FIRST", HasRETH, first | request | payload},
	WriteMiddle:        {"WRITE_MIDDLE", 0, middle | request | payload},
	WriteLast:          {"WRITE_LAST", 0, last | request | payload},
	WriteLastImm:       {"WRITE_LAST_IMM", HasImmDt, last | request | payload},
	WriteOnly:          {"WRITE_ONLY", HasRETH, only | request | payload},
	WriteOnlyImm:       {"WRITE_ONLY_IMM", HasRETH | HasImmDt, only | request | payload},
	ReadRequest:        {"READ_REQUEST", HasRETH, only | request},
	ReadResponseFirst:  {"READ_RESPONSE_FIRST", HasAETH, first | response | payload},
	ReadResponseMiddle: {"READ_RESPONSE_MIDDLE", 0, middle | response | payload},
	ReadResponseLast:   {"READ_RESPONSE_LAST", HasAETH, last | response | payload},
	ReadResponseOnly:   {"READ_RESPONSE_ONLY", HasAETH, only | response | payload},
	Acknowledge:        {"ACKNOWLEDGE", HasAETH, only | response},
	AtomicAcknowledge:  {"ATOMIC_ACKNOWLEDGE", HasAETH | HasAtomicAckETH, only | response},
	CompareSwap:        {"COMPARE_SWAP", HasAtomicETH, only | request},
	FetchAdd:           {"FETCH_ADD", HasAtomicETH, only | request},
	SendLastInvalidate: {"SEND_LAST_INVALIDATE", HasIETH, last | request | payload},
	SendOnlyInvalidate: {"SEND_ONLY_INVALIDATE", HasIETH, only | request | payload},
}

// layout contains the places of an opcode's headers.
type layout struct {
	kind
	known  bool
	length uint8 // of all headers, BTH included
	at     [len(headerLens)]uint8
}

var layouts = makeLayouts()

func makeLayouts() (all [256]layout) {
	add := func(o Opcode, k kind) {
		l := layout{kind: k, known: true, length: BTHLen}
		for i, length := range headerLens {
			if k.headers&(1<<i) != 0 {
				l.at[i] = l.length
				l.length += uint8(length)
			}
		}
		all[o] = l
	}
	named := func(k kind, service string) kind {
		k.name = service + k.name
		return k
	}
	for i, k := range operations {
		if k.name == "" {
			continue
		}
		add(Opcode(i), named(k, "RC_"))
		if Opcode(i) <= WriteOnlyImm {
			add(Opcode(i)+Opcode(UC), named(k, "UC_"))
		}
	}
	for _, o := range []Opcode{SendOnly, SendOnlyImm} {
		k := named(operations[o], "UD_")
		k.headers |= HasDETH
		add(o+Opcode(UD), k)
	}
	add(CNP, kind{"CNP", hasReserved, only})
	return all
}

// Known reports whether the package supports the opcode. For others the methods below return false
// or zero.
func (o Opcode) Known() bool { return layouts[o].known }

// Service is the transport service of an opcode that is Known, and not CNP.
func (o Opcode) Service() Service { return Service(o & 0xE0) }

// Operation returns the opcode of the same operation in the RC service.
func (o Opcode) Operation() Opcode { return o & 0x1F }

// Has reports whether the opcode's packets have all of the given headers.
func (o Opcode) Has(h Header) bool { return layouts[o].headers&h == h }

// HeaderLen is the length of all headers in bytes, including the BTH, or 0 for opcodes that are not
// Known.
func (o Opcode) HeaderLen() int { return int(layouts[o].length) }

// HasPayload reports whether a payload may follow the headers.
func (o Opcode) HasPayload() bool { return layouts[o].role&payload != 0 }

// Request reports whether a requester sends such packets: they take PSNs of their own.
func (o Opcode) Request() bool { return layouts[o].role&request != 0 }

// Response reports whether a responder sends such packets, with PSNs of requests.
func (o Opcode) Response() bool { return layouts[o].role&response != 0 }

// Starts reports whether the packet is the first or only one of its message.
func (o Opcode) Starts() bool { return layouts[o].role&(first|only) != 0 }

// Ends reports whether the packet is the last or only one of its message.
func (o Opcode) Ends() bool { return layouts[o].role&(last|only) != 0 }

// IsWrite reports whether the packet is part of an RDMA WRITE.
func (o Opcode) IsWrite() bool {
	op := o.Operation()
	return o.Request() && op >= WriteFirst && op <= WriteOnlyImm
}

// IsSend reports whether the packet is part of a SEND.
func (o Opcode) IsSend() bool { return o.Request() && o.HasPayload() && !o.IsWrite() }

// IsRead reports whether the packet is a response to an RDMA READ, or a part of it.
func (o Opcode) IsRead() bool { return o.Response() && o.HasPayload() }

// IsAtomic reports whether the packet requests an atomic operation.
func (o Opcode) IsAtomic() bool { return o.Has(HasAtomicETH) }

// String is the opcode as the specification writes it, in short: RC_WRITE_ONLY_IMM.
func (o Opcode) String() string {
	if o.Known() {
		return layouts[o].name
	}
	return fmt.Sprintf("opcode %#02x", uint8(o))
}
