package infiniband

import "encoding/binary"

// Layout of the first fields of all messages except REQ, and of REJ, MRA and DREQ (12.6.6, 12.6.7,
// 12.6.10: tables 107, 108, 112).
const (
	cmLocalComm  = 0
	cmRemoteComm = 4
	cmMessage    = 8 // of REJ and MRA: which message, 2 bits
	cmSecond     = 9 // of REJ: length of information 7 bits; of MRA: timeout 5 bits
	mraPrivate   = 10
	rejReason    = 10
	rejInfo      = 12
	rejPrivate   = 84
	dreqQPN      = 8
	dreqPrivate  = 12
	rtuPrivate   = 8 // of RTU and DREP

	// Lengths in bytes of private data in these messages, and of additional information in a REJ.
	RTUPrivate  = CMLen - rtuPrivate
	REJPrivate  = CMLen - rejPrivate
	REJInfo     = rejPrivate - rejInfo
	DREQPrivate = CMLen - dreqPrivate
	DREPPrivate = CMLen - rtuPrivate
	MRAPrivate  = CMLen - mraPrivate
)

// Messages to which a REJ or MRA can respond.
const (
	AboutREQ   = 0
	AboutREP   = 1
	AboutOther = 2
)

// Reasons of a REJ (12.6.7.2, table 109) that a RoCE endpoint uses.
const (
	RejectNoQP       = 1
	RejectTimeout    = 4
	RejectServiceID  = 8
	RejectService    = 9 // transport service type
	RejectStale      = 10
	RejectMTU        = 26
	RejectConsumer   = 28
	RejectRNRRetries = 29
)

// Comm names a connection at both its ends.
type Comm struct {
	Local, Remote uint32 // at the sender, and at the receiver
}

// CommOf reads the names of a connection in a message of CMLen bytes that is not a
// REQ.
func CommOf(m []byte) Comm {
	return Comm{Local: binary.BigEndian.Uint32(m[cmLocalComm:]),
		Remote: binary.BigEndian.Uint32(m[cmRemoteComm:])}
}

func (c Comm) encode(m []byte) {
	clear(m[:CMLen])
	binary.BigEndian.PutUint32(m[cmLocalComm:], c.Local)
	binary.BigEndian.PutUint32(m[cmRemoteComm:], c.Remote)
}

// RTU reports that the sender is ready to use the connection.
type RTU []byte

// RTUFields are the fields of an RTU.
type RTUFields struct {
	Comm
	Private [RTUPrivate]byte
}

// Valid reports whether the bytes hold an RTU.
func (m RTU) Valid() bool { return len(m) >= CMLen }

// Fields reads all fields.
func (m RTU) Fields() RTUFields {
	return RTUFields{Comm: CommOf(m), Private: [RTUPrivate]byte(m[rtuPrivate:])}
}

// Encode writes an RTU of CMLen bytes.
func (m RTU) Encode(f *RTUFields) {
	f.encode(m)
	copy(m[rtuPrivate:CMLen], f.Private[:])
}

// REJ refuses a connection.
type REJ []byte

// REJFields are the fields of a REJ.
type REJFields struct {
	Comm
	About      uint8 // AboutREQ and so on
	InfoLength uint8 // number of meaningful bytes in Info, 7 bits
	Reason     uint16
	Info       [REJInfo]byte
	Private    [REJPrivate]byte
}

// Valid reports whether the bytes hold a REJ.
func (m REJ) Valid() bool { return len(m) >= CMLen }

// Fields reads all fields.
func (m REJ) Fields() REJFields {
	return REJFields{
		Comm:       CommOf(m),
		About:      field(m[cmMessage], 6, 2),
		InfoLength: field(m[cmSecond], 1, 7),
		Reason:     binary.BigEndian.Uint16(m[rejReason:]),
		Info:       [REJInfo]byte(m[rejInfo:]), Private: [REJPrivate]byte(m[rejPrivate:]),
	}
}

// Encode writes a REJ of CMLen bytes.
func (m REJ) Encode(f *REJFields) {
	f.encode(m)
	m[cmMessage], m[cmSecond] = f.About<<6, f.InfoLength<<1
	binary.BigEndian.PutUint16(m[rejReason:], f.Reason)
	copy(m[rejInfo:], f.Info[:])
	copy(m[rejPrivate:CMLen], f.Private[:])
}

// MRA reports that a message was received and its answer will take time.
type MRA []byte

// MRAFields are the fields of an MRA.
type MRAFields struct {
	Comm
	About   uint8 // AboutREQ and so on
	Timeout uint8 // code of AckTimeout
	Private [MRAPrivate]byte
}

// Valid reports whether the bytes hold an MRA.
func (m MRA) Valid() bool { return len(m) >= CMLen }

// Fields reads all fields.
func (m MRA) Fields() MRAFields {
	return MRAFields{
		Comm:    CommOf(m),
		About:   field(m[cmMessage], 6, 2),
		Timeout: field(m[cmSecond], 3, 5),
		Private: [MRAPrivate]byte(m[mraPrivate:]),
	}
}

// Encode writes an MRA of CMLen bytes.
func (m MRA) Encode(f *MRAFields) {
	f.encode(m)
	m[cmMessage], m[cmSecond] = f.About<<6, f.Timeout<<3
	copy(m[mraPrivate:CMLen], f.Private[:])
}

// DREQ requests the end of a connection.
type DREQ []byte

// DREQFields are the fields of a DREQ.
type DREQFields struct {
	Comm
	QPN     QPN // of the receiver
	Private [DREQPrivate]byte
}

// Valid reports whether the bytes hold a DREQ.
func (m DREQ) Valid() bool { return len(m) >= CMLen }

// Fields reads all fields.
func (m DREQ) Fields() DREQFields {
	return DREQFields{Comm: CommOf(m), QPN: QPN(uint24(m[dreqQPN:])),
		Private: [DREQPrivate]byte(m[dreqPrivate:])}
}

// Encode writes a DREQ of CMLen bytes.
func (m DREQ) Encode(f *DREQFields) {
	f.encode(m)
	putUint24(m[dreqQPN:], uint32(f.QPN))
	copy(m[dreqPrivate:CMLen], f.Private[:])
}

// DREP reports that a connection has ended.
type DREP []byte

// DREPFields are the fields of a DREP.
type DREPFields struct {
	Comm
	Private [DREPPrivate]byte
}

// Valid reports whether the bytes hold a DREP.
func (m DREP) Valid() bool { return len(m) >= CMLen }

// Fields reads all fields.
func (m DREP) Fields() DREPFields {
	return DREPFields{Comm: CommOf(m), Private: [DREPPrivate]byte(m[rtuPrivate:])}
}

// Encode writes a DREP of CMLen bytes.
func (m DREP) Encode(f *DREPFields) {
	f.encode(m)
	copy(m[rtuPrivate:CMLen], f.Private[:])
}
