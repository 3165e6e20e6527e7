package infiniband

import "fmt"

// AETHLen is the length of an acknowledge extended transport header, in bytes.
const AETHLen = 4

// AETH is an acknowledge extended transport header (9.3.5).
type AETH []byte

// AETHFields are the fields of an AETH.
type AETHFields struct {
	Syndrome Syndrome
	// MSN is the number of messages that the responder has completed, modulo 2^24.
	MSN uint32
}

// Valid reports whether the bytes hold an AETH.
func (h AETH) Valid() bool { return len(h) >= AETHLen }

// Fields reads all fields.
func (h AETH) Fields() AETHFields { return AETHFields{Syndrome: Syndrome(h[0]), MSN: uint24(h[1:])} }

// Encode writes the header.
func (h AETH) Encode(f *AETHFields) {
	_ = h[AETHLen-1]
	h[0] = uint8(f.Syndrome)
	putUint24(h[1:], f.MSN)
}

// Syndrome is the type of an acknowledgement in bits 5 and 6, and its value in the five bits below
// (9.7.5.2.2, table 43).
type Syndrome uint8

// Kinds of acknowledgements.
const (
	Ack    Syndrome = 0x00
	RNRNak Syndrome = 0x20 // receiver not ready: with a timer's code
	Nak    Syndrome = 0x60 // with a reason

	syndromeKind  Syndrome = 0x60
	syndromeValue Syndrome = 0x1F
)

// Complete syndromes.
const (
	// AckUnlimited has the credit count that means no limit. Responders without end-to-end credits
	// send it.
	AckUnlimited = Ack | 0x1F

	NakSequence     = Nak + 0 // a PSN is missing
	NakInvalid      = Nak + 1 // invalid request
	NakAccess       = Nak + 2 // remote access error
	NakOperation    = Nak + 3 // remote operational error
	NakInvalidRDReq = Nak + 4 // of reliable datagrams

	// NakSelective is defined by package queuepair, with a code that IBTA reserves. The responder
	// received a packet out of order and keeps it. The BTH has the PSN that the responder expects;
	// the MSN field has the PSN of the packet that it keeps.
	NakSelective = Nak + 0x1F
)

// Kind is Ack, RNRNak, Nak, or a reserved type.
func (s Syndrome) Kind() Syndrome { return s & syndromeKind }

// Value is the credit count of an Ack, the timer's code of an RNRNak and the
// reason of a Nak.
func (s Syndrome) Value() uint8 { return uint8(s & syndromeValue) }

// Reserved reports whether IBTA defines no meaning for the syndrome.
func (s Syndrome) Reserved() bool {
	kind := s.Kind()
	return s > Nak|syndromeValue || kind != Ack && kind != RNRNak && kind != Nak ||
		kind == Nak && s > NakInvalidRDReq
}

var nakNames = [...]string{"sequence error", "invalid request", "remote access error",
	"remote operational error", "invalid RD request"}

// String is the syndrome in words.
func (s Syndrome) String() string {
	switch value := s.Value(); s.Kind() {
	case Ack:
		return "ACK"
	case RNRNak:
		return fmt.Sprintf("RNR NAK %v", RNRTimer(value))
	case Nak:
		if int(value) < len(nakNames) {
			return "NAK " + nakNames[value]
		}
	}
	return fmt.Sprintf("syndrome %#02x", uint8(s))
}
