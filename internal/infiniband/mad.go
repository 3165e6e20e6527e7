package infiniband

import "encoding/binary"

// Layout of the common header of management datagrams (13.4.2): offsets in bytes.
const (
	madBaseVersion  = 0
	madClass        = 1
	madClassVersion = 2
	madMethod       = 3
	madStatus       = 4
	madTransaction  = 8
	madAttribute    = 16
	madModifier     = 20
	madData         = 24

	// MADLen is the length of a management datagram, and CMLen the length of the message after its
	// header, in bytes.
	MADLen = 256
	CMLen  = MADLen - madData
)

// Values of the MAD header in communication management (16.7.1).
const (
	madBase        = 1    // base version
	classCM        = 0x07 // management class
	classCMVersion = 2
	methodSend     = 0x03
)

// Attribute specifies the message of communication management in a MAD (16.7.3).
type Attribute uint16

// Messages that connect and disconnect queue pairs.
const (
	AttributeREQ  Attribute = 0x0010
	AttributeMRA  Attribute = 0x0011
	AttributeREJ  Attribute = 0x0012
	AttributeREP  Attribute = 0x0013
	AttributeRTU  Attribute = 0x0014
	AttributeDREQ Attribute = 0x0015
	AttributeDREP Attribute = 0x0016
)

var attributeNames = [...]string{"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP"}

// String is the message's name.
func (a Attribute) String() string {
	if i := int(a) - int(AttributeREQ); i >= 0 && i < len(attributeNames) {
		return attributeNames[i]
	}
	return "unknown"
}

// MAD is a management datagram: the payload of a UDSendOnly packet to GSI.
type MAD []byte

// MADFields are the fields of the header of a MAD.
type MADFields struct {
	Class, ClassVersion uint8
	Method              uint8
	Status              uint16
	// Transaction is the same in a request and its answer.
	Transaction uint64
	Attribute   Attribute
	Modifier    uint32
}

// Valid reports whether the bytes are a MAD of base version 1.
func (m MAD) Valid() bool { return len(m) == MADLen && m[madBaseVersion] == madBase }

// IsCM reports whether a valid MAD is a message of communication management.
func (m MAD) IsCM() bool {
	return m[madClass] == classCM && m[madClassVersion] == classCMVersion && m[madMethod] == methodSend
}

// Attribute returns the type of the message.
func (m MAD) Attribute() Attribute { return Attribute(binary.BigEndian.Uint16(m[madAttribute:])) }

// CM is the message after the header.
func (m MAD) CM() []byte { return m[madData:] }

// Fields reads the header.
func (m MAD) Fields() MADFields {
	return MADFields{
		Class:        m[madClass],
		ClassVersion: m[madClassVersion],
		Method:       m[madMethod],
		Status:       binary.BigEndian.Uint16(m[madStatus:]),
		Transaction:  binary.BigEndian.Uint64(m[madTransaction:]),
		Attribute:    m.Attribute(),
		Modifier:     binary.BigEndian.Uint32(m[madModifier:]),
	}
}

// EncodeCM writes the header of a message of communication management.
func (m MAD) EncodeCM(a Attribute, transaction uint64) {
	clear(m[:madData])
	m[madBaseVersion], m[madClass], m[madClassVersion], m[madMethod] = madBase, classCM, classCMVersion,
		methodSend
	binary.BigEndian.PutUint64(m[madTransaction:], transaction)
	binary.BigEndian.PutUint16(m[madAttribute:], uint16(a))
}
